//! The language of comments and pages: plain technical English, with reasons.

use std::fs;

use super::{Finding, SourceFile, assert_none, find, root, rust_files};

/// Words that hide who or which part is meant.
const BANNED: [&str; 6] = ["whoever", "nobody", "somebody", "anybody", "everybody", "whom"];
const BANNED_REMEDY: &str = "name the part of the program or the person";
/// Sentences that begin with one of these are riddles more often than questions.
const QUESTION_WORDS: [&str; 9] = [
    "What", "How", "Whether", "Who", "Whom", "Whose", "Where", "When", "Why",
];
const QUESTION_STARTS_MAX_PERCENT: f64 = 5.0;
const QUESTION_REMEDY: &str = "say what it is or does, in the third person: `Returns …`, `True if …`";
const WHAT_MAX_PER_1000: f64 = 2.0;
const WHAT_REMEDY: &str = "name the thing";
const REASONS_MIN_PERCENT: f64 = 2.0;
/// Findings that are shown when a share is too large.
const SHOWN: usize = 25;

#[test]
fn code_is_in_plain_english() {
    check(&code_blocks(&["src", "actors/src"]));
}

#[test]
fn tests_are_in_plain_english() {
    check(&code_blocks(&["tests", "benches", "docs/examples"]));
}

#[test]
fn pages_are_in_plain_english() {
    check(&page_blocks());
}

#[test]
fn code_has_reasons() {
    let mut lines = 0;
    let mut reasons = 0;
    for file in rust_files(&["src", "actors/src"]) {
        if file.is_test {
            continue;
        }
        let tests = file.test_lines();
        for (number, line) in (1..).zip(file.text.lines()) {
            if tests
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&number))
            {
                continue;
            }
            lines += 1;
            let line = line.trim_start();
            let is_plain = line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
            reasons += usize::from(is_plain);
        }
    }
    let share = 100.0 * reasons as f64 / lines as f64;
    assert!(
        share >= REASONS_MIN_PERCENT,
        "{share:.1} % of the lines are comments that give a reason, less than {REASONS_MIN_PERCENT} %; \
         say why where the next line does not"
    );
}

/// Adjacent lines of one comment, or one paragraph of a page.
struct Block {
    file: String,
    line: usize,
    text: String,
}

impl Block {
    fn finding(&self, sentence: &str, remedy: &'static str) -> Finding {
        let start: String = sentence.chars().take(80).collect();
        Finding {
            place: format!("{}:{}", self.file, self.line),
            problem: format!("\"{start}\""),
            remedy,
        }
    }
}

fn check(blocks: &[Block]) {
    let mut words = 0;
    let mut sentences = 0;
    let mut banned = Vec::new();
    let mut questions = Vec::new();
    let mut whats = Vec::new();
    for block in blocks {
        for sentence in sentences_of(&block.text) {
            sentences += 1;
            if QUESTION_WORDS.contains(&first_word(sentence)) {
                questions.push(block.finding(sentence, QUESTION_REMEDY));
            }
            for word in words_of(sentence) {
                words += 1;
                let word = word.to_lowercase();
                if BANNED.contains(&word.as_str()) {
                    banned.push(block.finding(sentence, BANNED_REMEDY));
                } else if word == "what" {
                    whats.push(block.finding(sentence, WHAT_REMEDY));
                }
            }
        }
    }
    assert_none(&banned);
    let starts = 100.0 * questions.len() as f64 / sentences as f64;
    questions.truncate(SHOWN);
    if starts > QUESTION_STARTS_MAX_PERCENT {
        eprintln!("{starts:.1} % of the sentences begin with a question word");
        assert_none(&questions);
    }
    let density = 1000.0 * whats.len() as f64 / words as f64;
    whats.truncate(SHOWN);
    if density > WHAT_MAX_PER_1000 {
        eprintln!("{density:.1} of 1,000 words are `what`");
        assert_none(&whats);
    }
}

fn sentences_of(text: &str) -> impl Iterator<Item = &str> {
    let ends = [". ", "! ", "? "];
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = ends.iter().filter_map(|end| rest.find(end)).min();
        let sentence = match end {
            Some(end) => &rest[..=end],
            None => rest,
        };
        rest = rest[sentence.len()..].trim_start();
        Some(sentence)
    })
}

fn words_of(sentence: &str) -> impl Iterator<Item = &str> {
    let words = sentence.split(|letter: char| !letter.is_ascii_alphabetic() && letter != '\'');
    words.filter(|word| !word.is_empty())
}

fn first_word(sentence: &str) -> &str {
    words_of(sentence).next().unwrap_or("")
}

/// The comments of these folders, without code.
fn code_blocks(folders: &[&str]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for file in rust_files(folders) {
        comments(&file, &mut blocks);
    }
    blocks
}

fn comments(file: &SourceFile, blocks: &mut Vec<Block>) {
    let mut marker_before = "";
    let mut fenced = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        let (marker, text) = comment(line);
        let text = text.trim();
        let is_fence = text.starts_with("```");
        if is_fence {
            fenced = !fenced;
        }
        if marker.is_empty() || text.is_empty() || is_fence || fenced {
            marker_before = "";
            continue;
        }
        match blocks.last_mut() {
            Some(block) if marker == marker_before => {
                block.text.push(' ');
                block.text.push_str(&without_code(text));
            }
            _ => blocks.push(Block {
                file: file.path.clone(),
                line: number,
                text: without_code(text),
            }),
        }
        marker_before = marker;
    }
}

/// The marker of a line of comment and its text; both empty for code.
fn comment(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    for marker in ["///", "//!", "//"] {
        if let Some(text) = line.strip_prefix(marker) {
            return (marker, text);
        }
    }
    ("", "")
}

/// The paragraphs, rows and items of the pages, without code.
fn page_blocks() -> Vec<Block> {
    let mut paths = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    find(&root().join("docs"), "md", &mut paths);
    let mut blocks = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        let mut fenced = false;
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with("```") {
                fenced = !fenced;
            } else if !fenced && !line.trim().is_empty() {
                blocks.push(Block {
                    file: file.clone(),
                    line: number,
                    text: without_code(line),
                });
            }
        }
    }
    blocks
}

/// The text with `X` for each span of code.
fn without_code(text: &str) -> String {
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        let is_code = index % 2 == 1;
        plain.push_str(if is_code { "X" } else { part });
    }
    plain
}
