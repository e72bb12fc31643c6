//! The URIs of former lives that their owners have not registered again.

use std::collections::VecDeque;

use crate::model::{Owner, ResourceUri, UriMap};

/// A URI that waits for its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    /// None in lines of old stores, which any owner may claim.
    owner: Option<Owner>,
    /// The time since which it waits, in seconds since 1970; none until it is marked.
    since: Option<u64>,
}

/// The unclaimed URIs. They exist for subscribers, and for every owner but their own they are taken.
#[derive(Debug, Default)]
pub(crate) struct Unclaimed {
    waiting: UriMap<Waiting>,
    /// The oldest change first. May contain URIs that were claimed meanwhile.
    order: VecDeque<ResourceUri>,
    /// The URIs whose wait ended by a change that is not durable; none without a store.
    ended: Option<UriMap<Waiting>>,
}

impl Unclaimed {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a URI of a former life; to be called in the order of the changes.
    pub(super) fn add(&mut self, uri: ResourceUri, owner: Option<Owner>, since: Option<u64>) {
        self.order.push_back(uri.clone());
        self.waiting.insert(uri, Waiting { owner, since });
    }

    /// Returns true if the URI is unclaimed as far as is visible.
    pub(super) fn contains(&self, uri: &ResourceUri) -> bool {
        let ended = match &self.ended {
            Some(ended) => ended.contains_key(uri),
            None => false,
        };
        ended || self.waiting.contains_key(uri)
    }

    /// Remembers each URI whose wait ends until [`keep`](Self::keep) or [`undo`](Self::undo) is called.
    pub(super) fn record_changes(&mut self) {
        self.ended = Some(UriMap::default());
    }

    /// Forgets the URIs whose wait ended.
    pub(super) fn keep(&mut self) {
        if let Some(ended) = &mut self.ended {
            ended.clear();
        }
    }

    /// Lets the URIs whose wait ended wait again.
    pub(super) fn undo(&mut self) {
        if let Some(ended) = &mut self.ended {
            for (uri, waiting) in ended.drain(..) {
                // Their order among each other is lost, but they are older than what was told since.
                self.order.push_front(uri.clone());
                self.waiting.insert(uri, waiting);
            }
        }
    }

    /// Returns the owner of an unclaimed URI if it is another one than `owner`.
    pub(super) fn other_owner(&self, uri: &ResourceUri, owner: &Owner) -> Option<&Owner> {
        // The usual case costs no look into the map.
        if self.waiting.is_empty() {
            return None;
        }
        let of = self.waiting.get(uri)?.owner.as_ref()?;
        (!of.yields_to(owner)).then_some(of)
    }

    /// Ends the wait of a URI. Returns true if it was unclaimed.
    pub(super) fn take(&mut self, uri: &ResourceUri) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        // The queue has the order, this map only what each of them waits with.
        let Some(waiting) = self.waiting.swap_remove(uri) else {
            return false;
        };
        if let Some(ended) = &mut self.ended {
            ended.insert(uri.clone(), waiting);
        }
        if self.waiting.is_empty() {
            self.order = VecDeque::new();
        }
        true
    }

    /// Takes the URI whose last change is the oldest.
    pub(super) fn take_oldest(&mut self) -> Option<ResourceUri> {
        while let Some(uri) = self.order.pop_front() {
            if self.take(&uri) {
                return Some(uri);
            }
        }
        None
    }

    /// The number of URIs of `owner`.
    pub(super) fn count_owned(&self, owner: &Owner) -> usize {
        let waiting = self.waiting.values();
        waiting
            .filter(|waiting| waiting.owner.as_ref() == Some(owner))
            .count()
    }

    /// Takes every URI of `owner`.
    pub(super) fn take_owned(&mut self, owner: &Owner) -> Vec<ResourceUri> {
        self.take_where(|waiting| waiting.owner.as_ref() == Some(owner))
    }

    /// Takes every URI that has waited since `deadline` or longer.
    pub(super) fn take_waiting_since(&mut self, deadline: u64) -> Vec<ResourceUri> {
        self.take_where(|waiting| match waiting.since {
            Some(since) => since <= deadline,
            None => false,
        })
    }

    /// Marks the URIs without a time as waiting since `now`. Returns them.
    pub(super) fn mark(&mut self, now: u64) -> Vec<ResourceUri> {
        let mut marked = Vec::new();
        for (uri, waiting) in &mut self.waiting {
            if waiting.since.is_none() {
                waiting.since = Some(now);
                marked.push(uri.clone());
            }
        }
        marked
    }

    fn take_where(&mut self, wanted: impl Fn(&Waiting) -> bool) -> Vec<ResourceUri> {
        let mut taken = Vec::new();
        // A URI may stand in the order twice, so each is taken as soon as it is found.
        for uri in self.order.clone() {
            match self.waiting.get(&uri) {
                Some(waiting) if wanted(waiting) => {
                    self.take(&uri);
                    taken.push(uri);
                }
                _ => {}
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(name: &str) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    fn three() -> Unclaimed {
        let mut unclaimed = Unclaimed::default();
        unclaimed.add(uri("a"), Some(Owner::Workspace), None);
        unclaimed.add(uri("b"), Some(Owner::Register), Some(5));
        unclaimed.add(uri("c"), None, None);
        unclaimed
    }

    #[test]
    fn claimed_uri_is_taken_once() {
        let mut unclaimed = three();
        assert!(unclaimed.take(&uri("a")));
        assert!(!unclaimed.take(&uri("a")));
        assert_eq!(unclaimed.take_oldest(), Some(uri("b")));
        assert_eq!(unclaimed.take_oldest(), Some(uri("c")));
        assert_eq!(unclaimed.take_oldest(), None);
    }

    #[test]
    fn other_owner_is_named_except_for_old_lines() {
        let unclaimed = three();
        assert_eq!(
            unclaimed.other_owner(&uri("a"), &Owner::Api),
            Some(&Owner::Workspace)
        );
        assert_eq!(unclaimed.other_owner(&uri("a"), &Owner::Workspace), None);
        assert_eq!(unclaimed.other_owner(&uri("c"), &Owner::Api), None);
    }

    #[test]
    fn wait_counts_from_the_mark() {
        let mut unclaimed = three();
        let mut marked = unclaimed.mark(9);
        marked.sort_unstable();
        assert_eq!(marked, [uri("a"), uri("c")]);
        assert_eq!(unclaimed.take_waiting_since(8), [uri("b")]);
        assert_eq!(unclaimed.take_owned(&Owner::Workspace), [uri("a")]);
        assert_eq!(unclaimed.len(), 1);
    }
}
