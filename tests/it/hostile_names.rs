//! The names of hostile peers, which try to steer a terminal, to turn a text round, and to forge a line, a
//! command to the runner of a build, or markup.

/// Each name begins and goes on with one of these.
const PARTS: [&str; 22] = [
    "\u{1b}[2J",
    "\u{1b}]0;t\u{7}",
    "\u{9b}31m",
    "\nFAKE",
    "\r",
    "\u{202e}",
    "\u{2066}",
    "\u{200f}",
    "\u{2028}",
    "\u{8}",
    "\0",
    "\u{7f}",
    "\n::error::FAKE",
    "##[error]",
    "%0A::error::",
    "<script>alert(1)</script>",
    "\"/><failure>",
    "]]>&",
    "\u{200b}",
    "\u{ad}",
    "\u{feff}",
    "\u{e0041}",
];

/// Returns the names, no two of which are the same.
pub(crate) fn names() -> Vec<String> {
    let mut names = Vec::new();
    for number in 0..300 {
        let first = PARTS[number % PARTS.len()];
        // Each part meets others, itself among them.
        let second = PARTS[(number + number / PARTS.len()) % PARTS.len()];
        names.push(format!("{first}FAKE{second}{number}"));
    }
    names
}

/// Returns true for a character that a terminal obeys, that turns a text round or that is not seen, but for
/// the end of a line.
pub(crate) fn steers(c: char) -> bool {
    (c != '\n' && c.is_control())
        || matches!(c, '\u{200b}' | '\u{ad}' | '\u{feff}' | '\u{e0041}')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks that nothing in a text steers, and that no line of it is forged.
#[track_caller]
pub(crate) fn assert_tame(text: &str) {
    assert!(!text.contains(steers), "{text:?}");
    for line in text.lines() {
        assert!(!line.starts_with("FAKE"), "{line:?}");
    }
}

/// Checks as [`assert_tame`] does, and that no text is a command to the runner of a build.
#[track_caller]
pub(crate) fn assert_no_command(text: &str) {
    assert_tame(text);
    assert!(!text.contains("##["), "{text}");
    for line in text.lines() {
        assert!(!line.trim_start().starts_with("::"), "{line:?}");
    }
}
