//! The interest of each shard, so that a change goes to no shard without a subscriber that wants it.
//!
//! Each shard has one counter per group of URIs, and one for subscribers that want more than single URIs.
//! The Etag actor raises and the shard takes over; no subscriber leaves.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::model::ResourceUri;

/// The groups of each shard, 64 KiB in all. With 1,000 subscribed URIs one change in 17 goes to a shard in
/// vain.
const GROUPS: usize = 1 << 14;

/// The group of a URI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(usize);

#[derive(Debug)]
struct Wanted {
    groups: Box<[AtomicU32]>,
    /// The subscribers that want more than single URIs: filters, and those that are on their way here.
    everything: AtomicU32,
}

/// The interest of all shards.
#[derive(Debug)]
pub(crate) struct Interest {
    shards: Box<[Wanted]>,
    /// Random, so that a client cannot choose URIs of one group.
    seed: u64,
}

impl Interest {
    /// Creates the interest of this many shards without subscribers.
    pub(crate) fn new(shards: usize) -> Interest {
        let wanted = (0..shards).map(|_| Wanted {
            groups: (0..GROUPS).map(|_| AtomicU32::new(0)).collect(),
            everything: AtomicU32::new(0),
        });
        Interest {
            shards: wanted.collect(),
            seed: RandomState::new().hash_one(GROUPS),
        }
    }

    /// Returns the group of `uri`.
    pub(crate) fn group(&self, uri: &ResourceUri) -> Group {
        let hash = xxh3_64_with_seed(uri.as_str().as_bytes(), self.seed);
        Group(hash as usize % GROUPS)
    }

    /// Returns true if a subscriber in `shard` may want a URI of `group`.
    pub(crate) fn wants(&self, shard: usize, group: Group) -> bool {
        // Loaded first: a shard that takes a subscriber over counts its URIs before it lowers this one.
        let wanted = &self.shards[shard];
        wanted.everything.load(Ordering::Acquire) > 0 || wanted.groups[group.0].load(Ordering::Relaxed) > 0
    }

    /// Counts a subscription to `uri` that goes to `shard`, or came with a subscriber taken over.
    pub(crate) fn raise(&self, shard: usize, uri: &ResourceUri) {
        self.shards[shard].groups[self.group(uri).0].fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts a subscription to `uri` that was removed from `shard`, or not made.
    pub(crate) fn lower(&self, shard: usize, uri: &ResourceUri) {
        let before = self.shards[shard].groups[self.group(uri).0].fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a subscription to {uri} was removed twice");
    }

    /// Counts a subscriber of `shard` that wants more than single URIs.
    pub(crate) fn raise_everything(&self, shard: usize) {
        self.shards[shard].everything.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts a subscriber that left `shard`, or is counted by its URIs from now on.
    pub(crate) fn lower_everything(&self, shard: usize) {
        let before = self.shards[shard].everything.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a subscriber of everything was removed twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    #[test]
    fn moving_subscriber_is_always_counted() {
        let interest = Interest::new(2);
        let group = interest.group(&uri(1));
        std::thread::scope(|scope| {
            // The Etag actor raises, the shard takes over; no subscriber leaves.
            interest.raise_everything(1);
            scope.spawn(|| {
                interest.raise(1, &uri(1));
                interest.lower_everything(1);
            });
            while interest.shards[1].everything.load(Ordering::Relaxed) > 0 {
                assert!(interest.wants(1, group));
            }
            assert!(interest.wants(1, group) && !interest.wants(0, group));
        });
    }

    proptest! {
        /// A subscription is never missed, and after the last one no counter is left.
        #[test]
        fn wants_agrees_with_a_model_of_counts(
            steps in prop::collection::vec((0..2usize, prop::option::of(0..200u8), any::<bool>()), 0..200),
        ) {
            let interest = Interest::new(2);
            let mut there: BTreeMap<(usize, Option<u8>), u32> = BTreeMap::new();
            for (shard, name, comes) in steps {
                let count = there.entry((shard, name)).or_default();
                match (comes, name) {
                    (true, Some(name)) => interest.raise(shard, &uri(name)),
                    (true, None) => interest.raise_everything(shard),
                    (false, _) if *count == 0 => continue,
                    (false, Some(name)) => interest.lower(shard, &uri(name)),
                    (false, None) => interest.lower_everything(shard),
                }
                *count = if comes { *count + 1 } else { *count - 1 };
                for ((shard, name), count) in &there {
                    let group = interest.group(&uri(name.unwrap_or(0)));
                    prop_assert!(*count == 0 || interest.wants(*shard, group));
                }
            }
            for ((shard, name), count) in there {
                for _ in 0..count {
                    match name {
                        Some(name) => interest.lower(shard, &uri(name)),
                        None => interest.lower_everything(shard),
                    }
                }
            }
            for name in 0..200 {
                prop_assert!((0..2).all(|shard| !interest.wants(shard, interest.group(&uri(name)))));
            }
        }
    }
}
