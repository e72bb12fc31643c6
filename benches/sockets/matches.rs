//! How often a text occurs in what a connection brings, however it is cut into reads.
//!
//! Owns: the search, which is shared by all connections, and what one connection has to keep for it. Pure.

use memchr::memmem::{self, Finder};

/// A text that is looked for.
pub(super) struct Text(Finder<'static>);

/// What has been counted on one connection.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// The end of the last read, in which the text may have begun.
    tail: Vec<u8>,
    pub(super) count: usize,
}

impl Text {
    pub(super) fn new(text: &str) -> Text {
        Text(Finder::new(text).into_owned())
    }

    /// Adds what occurs in `bytes`, or began before them.
    pub(super) fn count(&self, matches: &mut Matches, bytes: &[u8]) {
        let joined;
        let mut rest = bytes;
        if !matches.tail.is_empty() {
            joined = [&matches.tail, bytes].concat();
            rest = &joined;
        }
        let text = self.0.needle();
        let mut kept = rest;
        while let Some(at) = self.0.find(kept) {
            matches.count += 1;
            kept = &kept[at + text.len()..];
        }
        // The longest end that is a beginning of the text: usually none, so nothing is kept.
        let longest = kept.len().min(text.len() - 1);
        let begun = (1..=longest)
            .rev()
            .find(|length| kept.ends_with(&text[..*length]));
        matches.tail.clear();
        matches.tail.extend_from_slice(&text[..begun.unwrap_or(0)]);
    }
}

/// Where `part` begins in `text`.
pub(super) fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    memmem::find(text, part)
}
