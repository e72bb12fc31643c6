//! The watched resources: the strategy and the last reported version of each.
//!
//! Pure: it decides whether a notification or an answer is new, and neither polls nor reports.

use std::collections::BTreeMap;

use super::inbox::is_older;
use super::known_etags::HeldEtags;
use super::strategy::WatchStrategy;
use super::version::Version;

/// The watched resources by URI.
#[derive(Debug, Default)]
pub(super) struct Reported {
    resources: BTreeMap<String, Watched>,
}

/// One watched resource.
#[derive(Debug)]
struct Watched {
    /// The version last reported.
    version: Version,
    /// The current strategy, or the last one if the resource is not present.
    strategy: WatchStrategy,
    presence: Presence,
    /// True while the server holds the subscription to a resource that does not exist.
    awaited: bool,
}

/// The news value of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// A version that was not reported yet.
    New,
    /// A version that was reported, or a resource that is not watched.
    Known,
    /// The notification has no etag, so the resource must be polled.
    Unclear,
}

/// The state of a resource at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It is watched on this connection.
    Present,
    /// It was not asked for on this connection yet.
    Unasked,
    /// The server refused it.
    Missing,
}

impl Reported {
    /// Adds a resource that is at `version`.
    pub(super) fn add(&mut self, uri: String, version: Version, strategy: WatchStrategy) {
        let watched = Watched {
            version,
            strategy,
            presence: Presence::Present,
            awaited: false,
        };
        self.resources.insert(uri, watched);
    }

    /// Returns the etag that was last reported of each of `uris`, for a server that compares them.
    pub(super) fn etags(&self, uris: &[String]) -> HeldEtags {
        let mut etags = HeldEtags::new();
        for uri in uris {
            let etag = match self.resources.get(uri) {
                Some(watched) => watched.version.etag.clone(),
                None => None,
            };
            etags.insert(uri.clone(), etag);
        }
        etags
    }

    /// Returns true if `uri` was there on the connection before, and was not asked for on this one.
    pub(super) fn was_present(&self, uri: &str) -> bool {
        match self.resources.get(uri) {
            Some(watched) => watched.presence == Presence::Unasked && !watched.awaited,
            None => false,
        }
    }

    /// Notes that the server holds the subscription to `uri`, which does not exist. Returns true if that is
    /// new.
    pub(super) fn awaits(&mut self, uri: &str) -> bool {
        match self.resources.get_mut(uri) {
            Some(watched) => {
                let was_missing = watched.presence == Presence::Missing;
                watched.presence = Presence::Present;
                !std::mem::replace(&mut watched.awaited, true) && !was_missing
            }
            None => false,
        }
    }

    /// Sets the version of `uri` without a report.
    pub(super) fn set_version(&mut self, uri: &str, version: Version) {
        if let Some(watched) = self.resources.get_mut(uri) {
            watched.version = version;
        }
    }

    /// Returns the current or last strategy of `uri`.
    pub(super) fn strategy(&self, uri: &str) -> Option<WatchStrategy> {
        Some(self.resources.get(uri)?.strategy)
    }

    /// Sets the strategy of `uri` and returns the one before.
    pub(super) fn set_strategy(&mut self, uri: &str, strategy: WatchStrategy) -> Option<WatchStrategy> {
        let watched = self.resources.get_mut(uri)?;
        Some(std::mem::replace(&mut watched.strategy, strategy))
    }

    /// Returns the present resources whose strategy `wanted` accepts.
    pub(super) fn present(&self, wanted: impl Fn(WatchStrategy) -> bool) -> Vec<String> {
        self.uris(|watched| watched.presence == Presence::Present && wanted(watched.strategy))
    }

    /// Returns the resources that are not present, asked for or not.
    pub(super) fn absent(&self) -> Vec<String> {
        self.uris(|watched| watched.presence != Presence::Present)
    }

    fn uris(&self, wanted: impl Fn(&Watched) -> bool) -> Vec<String> {
        let mut uris = Vec::new();
        for (uri, watched) in &self.resources {
            if wanted(watched) {
                uris.push(uri.clone());
            }
        }
        uris
    }

    /// Returns the version last reported and the strategy of `uri`.
    pub(super) fn known(&self, uri: &str) -> Option<(&Version, WatchStrategy)> {
        let watched = self.resources.get(uri)?;
        Some((&watched.version, watched.strategy))
    }

    /// Returns true if `version` is known to differ from the one last reported.
    pub(super) fn differs(&self, uri: &str, version: &Version) -> bool {
        match self.resources.get(uri) {
            Some(watched) => watched.version.differs(version) == Some(true),
            None => false,
        }
    }

    pub(super) fn remove(&mut self, uri: &str) {
        self.resources.remove(uri);
    }

    /// Notes a new connection, on which nothing was asked for yet.
    pub(super) fn reconnected(&mut self) {
        for watched in self.resources.values_mut() {
            watched.presence = Presence::Unasked;
        }
    }

    /// Takes in a notification. If it is new, its version becomes the one last reported.
    pub(super) fn notified(&mut self, uri: &str, etag: Option<&str>) -> Novelty {
        let Some(watched) = self.resources.get_mut(uri) else {
            return Novelty::Known;
        };
        let Some(new) = etag else {
            return Novelty::Unclear;
        };
        // Notifications may arrive out of order, so an older version is no news either.
        if let Some(known) = watched.version.etag.as_deref()
            && (new == known || is_older(new, known))
        {
            return Novelty::Known;
        }
        watched.version = Version {
            etag: Some(new.to_owned()),
            digest: None,
        };
        watched.awaited = false;
        Novelty::New
    }

    /// Takes in the answer to a poll. Returns true if it may differ from the version last reported, which it
    /// becomes.
    pub(super) fn polled(&mut self, uri: &str, version: Version) -> bool {
        let Some(watched) = self.resources.get_mut(uri) else {
            return false;
        };
        watched.presence = Presence::Present;
        watched.awaited = false;
        let changed = watched.version.may_differ(&version);
        let digest = watched.version.digest;
        watched.version = version;
        if !changed && watched.version.digest.is_none() {
            // The etag is the same, so the contents are too. Keeping their digest lets a server that stops
            // giving etags be compared without a false change.
            watched.version.digest = digest;
        }
        changed
    }

    /// Notes that the server refused `uri`. Returns true if it was not missing before.
    pub(super) fn missed(&mut self, uri: &str) -> bool {
        match self.resources.get_mut(uri) {
            Some(watched) => std::mem::replace(&mut watched.presence, Presence::Missing) != Presence::Missing,
            None => false,
        }
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

    fn content(text: &str) -> Version {
        Version {
            etag: None,
            digest: Some(Digest::of(&[text.as_bytes()])),
        }
    }

    fn watching(version: Version) -> Reported {
        let mut reported = Reported::default();
        reported.add("demo://a".to_owned(), version, WatchStrategy::Listen);
        reported
    }

    #[test]
    fn notified_version_is_new_once() {
        let mut reported = watching(at("v2-5"));
        for (etag, novelty) in [
            ("v2-5", Novelty::Known),
            ("v1-5", Novelty::Known),
            ("v3-6", Novelty::New),
            ("v3-6", Novelty::Known),
            ("v2-5", Novelty::Known),
            ("other", Novelty::New),
        ] {
            assert_eq!(reported.notified("demo://a", Some(etag)), novelty, "{etag}");
        }
        assert!(!reported.polled("demo://a", at("other")));
        // A restarted server may begin again at a lower version.
        assert!(reported.polled("demo://a", at("v1-9")));
        assert_eq!(reported.notified("demo://b", Some("v9-9")), Novelty::Known);
    }

    #[test]
    fn notice_without_etag_is_unclear_until_polled() {
        let mut reported = watching(at("v2-5"));
        assert_eq!(reported.notified("demo://a", None), Novelty::Unclear);
        assert!(!reported.polled("demo://a", at("v2-5")));
        // An etag and a digest cannot be compared, so this counts as a change.
        assert!(reported.polled("demo://a", content("x")));
        assert!(!reported.polled("demo://a", content("x")));
        assert!(reported.polled("demo://a", content("y")));
        assert!(!reported.differs("demo://a", &content("y")));
        assert!(reported.differs("demo://a", &content("z")));
        assert!(!reported.differs("demo://a", &at("v2-5")));
    }

    #[test]
    fn unchanged_etag_keeps_the_digest() {
        let digest = Some(Digest::of(&[b"x"]));
        let mut reported = watching(Version { digest, ..at("v2-5") });
        assert!(!reported.polled("demo://a", at("v2-5")));
        assert!(!reported.polled("demo://a", Version { etag: None, digest }));
    }

    #[test]
    fn resources_have_strategies_of_their_own() {
        let mut reported = watching(at("v2-5"));
        reported.add("demo://b".to_owned(), at("v1-1"), WatchStrategy::ReadAndHash);
        assert_eq!(reported.present(WatchStrategy::is_push), ["demo://a"]);
        assert_eq!(
            reported.set_strategy("demo://a", WatchStrategy::EtagTool),
            Some(WatchStrategy::Listen)
        );
        assert!(reported.present(WatchStrategy::is_push).is_empty());
        // Nothing was asked for on a new connection, but each resource keeps its strategy.
        reported.reconnected();
        assert!(reported.present(|_| true).is_empty());
        assert_eq!(reported.strategy("demo://a"), Some(WatchStrategy::EtagTool));
    }

    #[test]
    fn awaited_resource_is_present_but_not_trusted() {
        let mut reported = watching(at("v2-5"));
        reported.reconnected();
        assert!(reported.was_present("demo://a"));
        assert!(reported.awaits("demo://a"));
        assert!(!reported.awaits("demo://a"));
        // It stays subscribed, so nothing is tried again for it.
        assert_eq!(
            (reported.present(|_| true).len(), reported.absent().len()),
            (1, 0)
        );
        reported.reconnected();
        assert!(!reported.was_present("demo://a"));
        assert_eq!(reported.notified("demo://a", Some("v3-6")), Novelty::New);
        reported.reconnected();
        assert!(reported.was_present("demo://a"));
        let etags = reported.etags(&["demo://a".to_owned(), "demo://b".to_owned()]);
        let expected = [("demo://a", Some("v3-6")), ("demo://b", None)];
        let expected = expected.map(|(uri, etag)| (uri.to_owned(), etag.map(str::to_owned)));
        assert_eq!(etags, HeldEtags::from(expected));
    }

    #[test]
    fn missing_resource_is_new_once_until_it_returns() {
        let mut reported = watching(at("v2-5"));
        assert_eq!(
            (reported.present(|_| true).len(), reported.absent().len()),
            (1, 0)
        );
        reported.reconnected();
        assert_eq!(
            (reported.present(|_| true).len(), reported.absent().len()),
            (0, 1)
        );
        assert!(reported.missed("demo://a"));
        assert!(!reported.missed("demo://a"));
        reported.polled("demo://a", at("v1-5"));
        assert_eq!(reported.present(|_| true), ["demo://a"]);
        assert!(reported.missed("demo://a"));
        reported.remove("demo://a");
        assert!(!reported.missed("demo://a") && reported.known("demo://a").is_none());
    }
}
