//! The account of the answers to publishers: the content that each version has, and the requests whose
//! outcome is not known.

use std::collections::BTreeMap;

use super::watcher::version;

/// The content of a version; none for a removal.
pub(super) type Content = Option<String>;

/// The answers about one resource.
#[derive(Debug, Default)]
struct Entry {
    /// Etag and content of the versions that were answered.
    versions: BTreeMap<u64, (String, Content)>,
    /// The requests that may have made a version without an answer.
    unknown: u64,
}

/// The answers of a run.
#[derive(Debug, Default)]
pub(super) struct Account {
    entries: BTreeMap<String, Entry>,
    /// The changes that were answered.
    pub(super) answered: u64,
    /// The requests that were refused without a change.
    pub(super) refused: u64,
    /// Broken promises, in words.
    pub(super) faults: Vec<String>,
}

impl Account {
    /// Notes an answered change.
    pub(super) fn made(&mut self, uri: &str, etag: &str, content: Content) {
        self.answered += 1;
        let entry = self.entries.entry(uri.to_owned()).or_default();
        let now = (etag.to_owned(), content);
        match entry.versions.insert(version(etag), now.clone()) {
            // A repetition that found its first try made.
            Some(before) if before != now => {
                self.faults
                    .push(format!("{uri}: {now:?} was answered, and {before:?} too"));
            }
            _ => {}
        }
    }

    /// Notes a request that may have made a version.
    pub(super) fn unknown(&mut self, uri: &str) {
        self.entries.entry(uri.to_owned()).or_default().unknown += 1;
    }

    /// Notes a version that an observer was told of, with its content if it came along.
    pub(super) fn observed(&mut self, uri: &str, etag: &str, content: Option<&str>) {
        let Some(entry) = self.entries.get(uri) else {
            return;
        };
        let Some((answered, body)) = entry.versions.get(&version(etag)) else {
            return;
        };
        if answered != etag || (content.is_some() && body.as_deref() != content) {
            self.faults.push(format!(
                "{uri}: {etag} with {content:?} was told, and {answered} with {body:?} was answered"
            ));
        }
    }

    /// The requests whose outcome is not known.
    pub(super) fn unknown_count(&self) -> u64 {
        self.entries.values().map(|entry| entry.unknown).sum()
    }

    /// Compares the answers with the state at the end: the etag and the content of each resource.
    pub(super) fn judge(&mut self, finals: &BTreeMap<String, (String, String)>) {
        for (uri, entry) in &self.entries {
            let Some((etag, body)) = finals.get(uri) else {
                self.faults.push(format!("{uri} is gone at the end"));
                continue;
            };
            let newest = version(etag);
            let answered = entry.versions.range(..=newest).count() as u64;
            if let Some((lost, (etag, _))) = entry.versions.range(newest + 1..).next() {
                self.faults
                    .push(format!("{uri}: {etag} was answered, and {newest} is the newest"));
                debug_assert!(*lost > newest);
            }
            // Each version has a request that made it.
            if newest - answered > entry.unknown {
                self.faults.push(format!(
                    "{uri}: {newest} versions of {answered} answered and {} unknown requests",
                    entry.unknown
                ));
            }
            if let Some((answered, content)) = entry.versions.get(&newest)
                && (answered != etag || content.as_ref() != Some(body))
            {
                self.faults.push(format!(
                    "{uri}: {etag} has {body:?}, and {answered} was answered for {content:?}"
                ));
            }
        }
    }

    /// Fails with the first faults.
    #[track_caller]
    pub(super) fn assert_kept(&self) {
        let first = &self.faults[..self.faults.len().min(10)];
        assert!(
            self.faults.is_empty(),
            "{} faults:\n{}",
            self.faults.len(),
            first.join("\n")
        );
    }
}

#[test]
fn lost_repeated_and_unaccounted_versions_are_faults() {
    let body = |text: &str| Some(text.to_owned());
    let finals = |etag: &str, text: &str| {
        BTreeMap::from([("demo://a".to_owned(), (etag.to_owned(), text.to_owned()))])
    };
    let mut account = Account::default();
    account.made("demo://a", "v1-5", body("one"));
    account.made("demo://a", "v1-5", body("one"));
    account.made("demo://a", "v2-6", body("two"));
    account.judge(&finals("v2-6", "two"));
    account.assert_kept();
    // A version without a request for it, and then one with a request that has no answer.
    account.judge(&finals("v3-6", "three"));
    assert_eq!(account.faults.len(), 1);
    account.unknown("demo://a");
    account.judge(&finals("v3-6", "three"));
    assert_eq!(account.faults.len(), 1);
    // An answered version that is gone, and one with other content.
    account.judge(&finals("v1-5", "one"));
    account.judge(&finals("v2-6", "other"));
    account.made("demo://a", "v2-6", body("again"));
    account.observed("demo://a", "v1-6", None);
    assert_eq!(account.faults.len(), 5);
}
