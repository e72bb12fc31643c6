//! What is watched, and which version of it was last reported.
//!
//! Owns the memory that decides whether a notification or a read tells anything new. Pure: it neither reads nor
//! reports, and knows no connection but that a new one has not been asked for anything.

use std::collections::BTreeMap;

use super::inbox::is_older;
use super::version::Version;

#[derive(Debug, Default)]
pub(super) struct Watched {
    held: BTreeMap<String, Held>,
}

/// One watched resource.
#[derive(Debug, Default)]
struct Held {
    /// The version last reported; none when that is not known.
    version: Option<Version>,
    presence: Presence,
}

/// Whether the server tells of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Presence {
    /// It does.
    #[default]
    Present,
    /// It was not asked on this connection.
    Unasked,
    /// It would not when it was last asked.
    Missing,
}

impl Watched {
    pub(super) fn contains(&self, uri: &str) -> bool {
        self.held.contains_key(uri)
    }

    /// Watches `uri`, which is at `version`.
    pub(super) fn add(&mut self, uri: String, version: Version) {
        let (version, presence) = (Some(version), Presence::Present);
        self.held.insert(uri, Held { version, presence });
    }

    pub(super) fn remove(&mut self, uri: &str) {
        self.held.remove(uri);
    }

    /// What the server tells of.
    pub(super) fn present(&self) -> Vec<String> {
        self.select(|presence| presence == Presence::Present)
    }

    /// What it does not tell of, asked or not.
    pub(super) fn absent(&self) -> Vec<String> {
        self.select(|presence| presence != Presence::Present)
    }

    fn select(&self, wanted: impl Fn(Presence) -> bool) -> Vec<String> {
        let found = self.held.iter().filter(|(_, held)| wanted(held.presence));
        found.map(|(uri, _)| uri.clone()).collect()
    }

    /// Notes that a new connection was made, on which nothing was asked for.
    pub(super) fn reconnected(&mut self) {
        self.held
            .values_mut()
            .for_each(|held| held.presence = Presence::Unasked);
    }

    /// Notes a notification; whether it tells anything new. One without an etag always does, and leaves the version
    /// unknown.
    pub(super) fn updated(&mut self, uri: &str, etag: Option<&str>) -> bool {
        let Some(held) = self.held.get_mut(uri) else {
            return false;
        };
        let known = held.version.as_ref().and_then(|version| version.etag.as_deref());
        if let (Some(new), Some(known)) = (etag, known)
            && (new == known || is_older(new, known))
        {
            return false;
        }
        held.version = etag.map(|etag| Version {
            etag: Some(etag.to_owned()),
            digest: None,
        });
        true
    }

    /// Notes what was read, and that the server has it; whether it may be another version than the one last reported.
    pub(super) fn compared(&mut self, uri: &str, version: Version) -> bool {
        let Some(held) = self.held.get_mut(uri) else {
            return false;
        };
        let changed = held
            .version
            .as_ref()
            .is_none_or(|known| known.may_differ(&version));
        held.version = Some(version);
        held.presence = Presence::Present;
        changed
    }

    /// Notes that the server does not have `uri` now; whether that is new.
    pub(super) fn missed(&mut self, uri: &str) -> bool {
        let before = self
            .held
            .get_mut(uri)
            .map(|held| std::mem::replace(&mut held.presence, Presence::Missing));
        before.is_some_and(|before| before != Presence::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(etag: &str) -> Version {
        Version {
            etag: Some(etag.to_owned()),
            digest: None,
        }
    }

    fn watching(version: Version) -> Watched {
        let mut watched = Watched::default();
        watched.add("demo://a".to_owned(), version);
        watched
    }

    #[test]
    fn a_version_is_news_once() {
        let mut watched = watching(at("v2-5"));
        for (etag, news) in [
            ("v2-5", false),
            ("v1-5", false),
            ("v3-6", true),
            ("v3-6", false),
            ("v2-5", false),
            ("other", true),
        ] {
            assert_eq!(watched.updated("demo://a", Some(etag)), news, "{etag}");
        }
        assert!(!watched.compared("demo://a", at("other")));
        assert!(
            watched.compared("demo://a", at("v1-9")),
            "a new life of the server begins anew"
        );
        assert!(
            !watched.updated("demo://b", Some("v9-9")),
            "what is not watched is no news"
        );
    }

    #[test]
    fn what_has_no_etag_is_always_news_and_leaves_the_version_open() {
        let mut watched = watching(at("v2-5"));
        assert!(watched.updated("demo://a", None));
        assert!(watched.updated("demo://a", None));
        assert!(watched.compared("demo://a", at("v2-5")));
        assert!(!watched.compared("demo://a", at("v2-5")));
    }

    #[test]
    fn what_is_missing_is_news_once_until_it_was_there() {
        let mut watched = watching(at("v2-5"));
        assert_eq!((watched.present().len(), watched.absent().len()), (1, 0));
        watched.reconnected();
        assert_eq!((watched.present().len(), watched.absent().len()), (0, 1));
        assert!(watched.missed("demo://a"));
        assert!(!watched.missed("demo://a"));
        watched.compared("demo://a", at("v1-5"));
        assert_eq!(watched.present(), ["demo://a"]);
        assert!(watched.missed("demo://a"));
        watched.remove("demo://a");
        assert!(!watched.missed("demo://a") && !watched.contains("demo://a"));
    }
}
