//! The pages, one test each; `workspace.md` is tested a little beyond its own commands.

use std::fs;

use super::{Story, wait};

#[test]
fn embedding_page_works_as_printed() {
    Story::new(include_str!("../../../docs/embed.md")).follow();
}

#[test]
fn watching_page_works_as_printed() {
    Story::new(include_str!("../../../docs/watch.md")).follow();
}

#[test]
fn events_page_works_as_printed() {
    Story::new(include_str!("../../../docs/events.md")).follow();
}

#[test]
fn wrapping_page_works_as_printed() {
    Story::new(include_str!("../../../docs/wrap.md")).follow();
}

#[test]
fn http_api_page_explains_missing_update() {
    let page = include_str!("../../../docs/http-api.md");
    let (_, rest) = page.split_once("## Who is slow").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    Story::new(section).follow();
}

#[test]
fn folders_page_works_as_printed() {
    let mut story = Story::new(include_str!("../../../docs/workspace.md"));
    for _ in 0..2 {
        assert!(story.step());
    }
    let mut calls = String::new();
    if let Some(super::Block::Shell(script)) = story.blocks.next() {
        calls = story.run(script);
    }
    assert!(
        calls.contains(r#""structuredContent":{"file":"hello.md","words":1}"#),
        "{calls}"
    );
    let filled = r#"Explain the word \"etag\" in three sentences.\nWrite for this reader: a child"#;
    assert!(calls.contains(filled), "{calls}");

    assert!(story.step());
    until(&mut story, "mcp tools/call weekday '{}'", "day");
    assert!(story.step());
    until(&mut story, "mcp tools/call disk_free '{}'", "Filesystem");
    let summary = story.run("mcp prompts/get summary '{}'");
    assert!(summary.contains("Summarise host://load."), "{summary}");
    assert!(!story.step(), "the page has further blocks");

    let refused = story.run(r#"mcp tools/call count_words '{"file":"../secret"}'"#);
    assert!(
        refused.contains(r#""isError":true"#) && refused.contains("/file: "),
        "{refused}"
    );
    fs::write(story.dir.path().join("notes/resources/two.md"), "two words").unwrap();
    let counted = story.run(r#"mcp tools/call count_words '{"file":"two.md"}'"#);
    assert!(counted.contains(r#""words":2"#), "{counted}");
}

/// Waits until `command` prints `expected`.
fn until(story: &mut Story, command: &str, expected: &str) {
    let complaint = || format!("{command} never printed {expected}");
    wait(complaint, || story.run(command).contains(expected).then_some(()));
}
