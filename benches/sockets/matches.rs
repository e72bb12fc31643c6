//! Counts how often a text occurs on a connection, across the boundaries of reads.

use memchr::memmem::Finder;

/// A text that is searched for on all connections.
pub(super) struct Text(Finder<'static>);

/// The occurrences on one connection.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// The end of the last read, if the text may have begun in it.
    tail: Vec<u8>,
    pub(super) count: usize,
}

impl Text {
    pub(super) fn new(text: &str) -> Text {
        Text(Finder::new(text).into_owned())
    }

    /// Counts the occurrences in `bytes`, and the one that began in an earlier read.
    pub(super) fn count(&self, matches: &mut Matches, bytes: &[u8]) {
        let joined;
        let mut rest = bytes;
        if !matches.tail.is_empty() {
            joined = [&matches.tail, bytes].concat();
            rest = &joined;
        }
        let text = self.0.needle();
        while let Some(start) = self.0.find(rest) {
            matches.count += 1;
            rest = &rest[start + text.len()..];
        }
        matches.tail.clear();
        // Keeps the longest end that is a beginning of the text: usually none, so that nothing is copied.
        for length in (1..text.len().min(rest.len() + 1)).rev() {
            if rest.ends_with(&text[..length]) {
                matches.tail.extend_from_slice(&text[..length]);
                return;
            }
        }
    }
}
