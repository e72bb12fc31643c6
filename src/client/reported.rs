//! What is watched, by which strategy, and which version of it was last reported.
//!
//! Owns the memory that decides whether a notification or an answer tells anything new. Pure: it neither asks nor
//! reports, and knows no connection but that a new one has not been asked for anything.

use std::collections::BTreeMap;

use super::inbox::is_older;
use super::strategy::WatchStrategy;
use super::version::Version;

#[derive(Debug, Default)]
pub(super) struct Reported {
    held: BTreeMap<String, Held>,
}

/// One watched resource.
#[derive(Debug)]
struct Held {
    /// The version last reported.
    version: Version,
    /// The strategy it is on, or was on while it was present.
    strategy: WatchStrategy,
    presence: Presence,
}

/// What a notification is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// It tells of a version that was not reported.
    New,
    /// It tells of what was reported, or of nothing that is watched.
    Known,
    /// It does not say which version it tells of.
    Unclear,
}

/// Whether the server tells of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It does, or answers when it is asked.
    Present,
    /// It was not asked on this connection.
    Unasked,
    /// It would not when it was last asked.
    Missing,
}

impl Reported {
    pub(super) fn contains(&self, uri: &str) -> bool {
        self.held.contains_key(uri)
    }

    /// Watches `uri`, which is at `version`, by `strategy`.
    pub(super) fn add(&mut self, uri: String, version: Version, strategy: WatchStrategy) {
        let presence = Presence::Present;
        let held = Held {
            version,
            strategy,
            presence,
        };
        self.held.insert(uri, held);
    }

    /// The strategy that `uri` is on, or was on last.
    pub(super) fn strategy(&self, uri: &str) -> Option<WatchStrategy> {
        self.held.get(uri).map(|held| held.strategy)
    }

    /// Notes that `uri` is on `strategy` now; the one it was on before.
    pub(super) fn put_on(&mut self, uri: &str, strategy: WatchStrategy) -> Option<WatchStrategy> {
        let held = self.held.get_mut(uri)?;
        Some(std::mem::replace(&mut held.strategy, strategy))
    }

    /// What is present on a strategy that `wanted` accepts.
    pub(super) fn on(&self, wanted: impl Fn(WatchStrategy) -> bool) -> Vec<String> {
        let found = self.held.iter().filter(|(_, held)| wanted(held.strategy));
        let present = found.filter(|(_, held)| held.presence == Presence::Present);
        present.map(|(uri, _)| uri.clone()).collect()
    }

    /// The version last reported, and the strategy that `uri` is on.
    pub(super) fn known(&self, uri: &str) -> Option<(&Version, WatchStrategy)> {
        self.held.get(uri).map(|held| (&held.version, held.strategy))
    }

    /// Whether `version` is surely another one than the one last reported.
    pub(super) fn surely_differs(&self, uri: &str, version: &Version) -> Option<bool> {
        self.held.get(uri)?.version.surely_differs(version)
    }

    pub(super) fn remove(&mut self, uri: &str) {
        self.held.remove(uri);
    }

    /// What is not present, asked for or not.
    pub(super) fn absent(&self) -> Vec<String> {
        let found = self
            .held
            .iter()
            .filter(|(_, held)| held.presence != Presence::Present);
        found.map(|(uri, _)| uri.clone()).collect()
    }

    /// Notes that a new connection was made, on which nothing was asked for.
    pub(super) fn reconnected(&mut self) {
        self.held
            .values_mut()
            .for_each(|held| held.presence = Presence::Unasked);
    }

    /// Notes a notification, and says what it is worth.
    pub(super) fn updated(&mut self, uri: &str, etag: Option<&str>) -> Novelty {
        let Some(held) = self.held.get_mut(uri) else {
            return Novelty::Known;
        };
        let Some(new) = etag else {
            return Novelty::Unclear;
        };
        if let Some(known) = held.version.etag.as_deref()
            && (new == known || is_older(new, known))
        {
            return Novelty::Known;
        }
        held.version = Version {
            etag: Some(new.to_owned()),
            digest: None,
        };
        Novelty::New
    }

    /// Notes what was answered, and that the server has it; whether it may be another version than the one last
    /// reported.
    pub(super) fn compared(&mut self, uri: &str, version: Version) -> bool {
        let Some(held) = self.held.get_mut(uri) else {
            return false;
        };
        held.presence = Presence::Present;
        let changed = held.version.may_differ(&version);
        let digest = held.version.digest.filter(|_| !changed);
        held.version = version;
        // An etag that stayed says that the content did too.
        held.version.digest = held.version.digest.or(digest);
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
    use crate::Digest;

    fn at(etag: &str) -> Version {
        Version {
            etag: Some(etag.to_owned()),
            digest: None,
        }
    }

    fn watching(version: Version) -> Reported {
        let mut watched = Reported::default();
        watched.add("demo://a".to_owned(), version, WatchStrategy::Listen);
        watched
    }

    #[test]
    fn a_version_is_news_once() {
        let mut watched = watching(at("v2-5"));
        for (etag, news) in [
            ("v2-5", Novelty::Known),
            ("v1-5", Novelty::Known),
            ("v3-6", Novelty::New),
            ("v3-6", Novelty::Known),
            ("v2-5", Novelty::Known),
            ("other", Novelty::New),
        ] {
            assert_eq!(watched.updated("demo://a", Some(etag)), news, "{etag}");
        }
        assert!(!watched.compared("demo://a", at("other")));
        assert!(
            watched.compared("demo://a", at("v1-9")),
            "a new life of the server begins anew"
        );
        assert_eq!(
            watched.updated("demo://b", Some("v9-9")),
            Novelty::Known,
            "what is not watched is no news"
        );
    }

    #[test]
    fn what_has_no_etag_is_unclear_until_it_is_read() {
        let mut watched = watching(at("v2-5"));
        assert_eq!(watched.updated("demo://a", None), Novelty::Unclear);
        assert!(!watched.compared("demo://a", at("v2-5")));
        let content = |text: &str| Version {
            etag: None,
            digest: Some(Digest::of(&[text.as_bytes()])),
        };
        assert!(
            watched.compared("demo://a", content("x")),
            "what cannot be compared may be news"
        );
        assert!(!watched.compared("demo://a", content("x")));
        assert!(watched.compared("demo://a", content("y")));
        assert_eq!(watched.surely_differs("demo://a", &content("y")), Some(false));
        assert_eq!(watched.surely_differs("demo://a", &at("v2-5")), None);
    }

    #[test]
    fn an_etag_that_stayed_keeps_the_digest() {
        let digest = Some(Digest::of(&[b"x"]));
        let mut watched = watching(Version { digest, ..at("v2-5") });
        assert!(!watched.compared("demo://a", at("v2-5")));
        assert!(!watched.compared("demo://a", Version { etag: None, digest }));
    }

    #[test]
    fn each_resource_is_on_a_road_of_its_own() {
        let mut watched = watching(at("v2-5"));
        watched.add("demo://b".to_owned(), at("v1-1"), WatchStrategy::ReadAndHash);
        assert_eq!(watched.on(WatchStrategy::is_push), ["demo://a"]);
        assert_eq!(
            watched.put_on("demo://a", WatchStrategy::EtagTool),
            Some(WatchStrategy::Listen)
        );
        assert!(watched.on(WatchStrategy::is_push).is_empty());
        watched.reconnected();
        assert!(
            watched.on(|_| true).is_empty(),
            "nothing was asked on a new connection"
        );
        assert_eq!(watched.strategy("demo://a"), Some(WatchStrategy::EtagTool));
    }

    #[test]
    fn what_is_missing_is_news_once_until_it_was_there() {
        let mut watched = watching(at("v2-5"));
        assert_eq!((watched.on(|_| true).len(), watched.absent().len()), (1, 0));
        watched.reconnected();
        assert_eq!((watched.on(|_| true).len(), watched.absent().len()), (0, 1));
        assert!(watched.missed("demo://a"));
        assert!(!watched.missed("demo://a"));
        watched.compared("demo://a", at("v1-5"));
        assert_eq!(watched.on(|_| true), ["demo://a"]);
        assert!(watched.missed("demo://a"));
        watched.remove("demo://a");
        assert!(!watched.missed("demo://a") && !watched.contains("demo://a"));
    }
}
