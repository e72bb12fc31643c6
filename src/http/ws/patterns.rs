//! The URI patterns of one connection: prefixes, templates and single URIs, as `/v1/events` takes them.

use std::sync::Arc;

use crate::{Filter, NoticeKind, UriPattern};

/// The patterns that a connection follows, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    patterns: Vec<UriPattern>,
}

impl Patterns {
    /// Returns the texts of all patterns.
    pub(super) fn texts(&self) -> Vec<String> {
        self.patterns.iter().map(ToString::to_string).collect()
    }

    /// Adds a pattern. One that is there already changes nothing.
    ///
    /// # Errors
    /// The text is no pattern, or there are as many as a filter may have.
    pub(super) fn add(&mut self, text: &str) -> Result<(), String> {
        let pattern: UriPattern = match text.parse() {
            Ok(pattern) => pattern,
            Err(error) => return Err(error.to_string()),
        };
        if self.patterns.contains(&pattern) {
            return Ok(());
        }
        // The filter alone knows how many there may be, so it is asked with the new one among them.
        self.patterns.push(pattern);
        match Filter::of(self.patterns.clone()) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.patterns.pop();
                Err(error.to_string())
            }
        }
    }

    /// Removes a pattern. Returns false if it is not there.
    pub(super) fn remove(&mut self, text: &str) -> bool {
        let before = self.patterns.len();
        // A text that is no pattern was never added, and is answered like any other that is not there.
        if let Ok(pattern) = text.parse::<UriPattern>() {
            self.patterns.retain(|one| *one != pattern);
        }
        self.patterns.len() < before
    }

    /// Returns the filter that lets through what any of them matches.
    pub(super) fn filter(&self) -> Arc<Filter> {
        let filter = match Filter::of(self.patterns.clone()) {
            // Without patterns a filter lets every URI through, so it gets no kinds.
            Ok(filter) if self.patterns.is_empty() => filter.kinds([]),
            Ok(filter) => filter.kinds([NoticeKind::Updated, NoticeKind::Removed]),
            // `add` lets none in that the filter refuses.
            Err(_) => Filter::default().kinds([]),
        };
        Arc::new(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResourceUri;

    #[test]
    fn filter_follows_the_patterns() {
        let mut patterns = Patterns::default();
        let uri = ResourceUri::new("note://a").unwrap();
        let wants = |patterns: &Patterns| {
            let filter = patterns.filter();
            filter.wants_uri(&uri) && filter.wants_kind(NoticeKind::Updated)
        };
        assert!(!wants(&patterns));
        patterns.add("note://*").unwrap();
        patterns.add("note://*").unwrap();
        assert_eq!(patterns.texts(), ["note://*"]);
        assert!(wants(&patterns));
        assert!(patterns.remove("note://*") && !patterns.remove("note://*"));
        assert!(!wants(&patterns));
    }

    #[test]
    fn pattern_that_cannot_be_is_refused() {
        let mut patterns = Patterns::default();
        assert!(patterns.add("no scheme").is_err());
        for number in 0..64 {
            patterns.add(&format!("note://{number}*")).unwrap();
        }
        assert!(patterns.add("demo://*").unwrap_err().contains("64"));
        assert_eq!(patterns.texts().len(), 64);
    }
}
