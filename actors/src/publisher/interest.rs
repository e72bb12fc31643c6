//! What each publisher shard may care about, so that a change is handed to no shard in which nobody wants it.
//!
//! Owns: per shard one counter per group of URIs, and one for those who want URIs that cannot be counted. Never:
//! knows who wants something, or is short: a counter is raised by the Etag actor *before* it passes a subscription
//! on, and lowered by the shard *after* it has removed one, so zero means that, at this point of the order of the bus,
//! nobody is there. URIs of one group are counted together, which costs a look into a table that finds nobody.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::model::ResourceUri;

/// Groups of URIs per shard, 64 KiB in all: at 1,000 subscribed URIs one change in 17 looks for nothing.
const GROUPS: usize = 1 << 14;

/// The group that a URI belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(usize);

#[derive(Debug)]
struct Wanted {
    groups: Box<[AtomicU32]>,
    /// How many want more than can be counted by URI: filters, queues, and subscribers that are on their way here.
    everything: AtomicU32,
}

/// What each shard may care about.
#[derive(Debug)]
pub(crate) struct Interest {
    shards: Box<[Wanted]>,
    /// Nobody outside can tell which URIs share a group.
    seed: u64,
}

impl Interest {
    /// For this many shards, in which nobody wants anything yet.
    pub(crate) fn new(shards: usize) -> Interest {
        let wanted = || Wanted {
            groups: (0..GROUPS).map(|_| AtomicU32::new(0)).collect(),
            everything: AtomicU32::new(0),
        };
        Interest {
            shards: (0..shards).map(|_| wanted()).collect(),
            seed: RandomState::new().hash_one(GROUPS),
        }
    }

    /// The group of `uri`.
    pub(crate) fn group(&self, uri: &ResourceUri) -> Group {
        let hash = xxh3_64_with_seed(uri.as_str().as_bytes(), self.seed);
        Group(hash as usize % GROUPS)
    }

    /// Whether anybody in `shard` may want a URI of `group`.
    pub(crate) fn wants(&self, shard: usize, group: Group) -> bool {
        // This one first: a shard that takes a subscriber over counts its URIs before it lowers this.
        let wanted = &self.shards[shard];
        wanted.everything.load(Ordering::Acquire) > 0 || wanted.groups[group.0].load(Ordering::Relaxed) > 0
    }

    /// A subscription to `uri` is on its way to `shard`, or has come to it with its subscriber.
    pub(crate) fn raise(&self, shard: usize, uri: &ResourceUri) {
        self.shards[shard].groups[self.group(uri).0].fetch_add(1, Ordering::Relaxed);
    }

    /// A subscription to `uri` has been removed from `shard`, or not been made there.
    pub(crate) fn lower(&self, shard: usize, uri: &ResourceUri) {
        let before = self.shards[shard].groups[self.group(uri).0].fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a subscription to {uri} was removed twice");
    }

    /// Somebody who wants more than can be counted is on the way to `shard`.
    pub(crate) fn raise_everything(&self, shard: usize) {
        self.shards[shard].everything.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a one is gone from `shard`, or is counted by URI from now on.
    pub(crate) fn lower_everything(&self, shard: usize) {
        let before = self.shards[shard].everything.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "somebody who wants everything was removed twice");
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
    fn whoever_moves_is_missed_at_no_moment() {
        let interest = Interest::new(2);
        let group = interest.group(&uri(1));
        std::thread::scope(|scope| {
            // The Etag actor raises, the shard takes over; nobody leaves.
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
        /// Whatever is there is seen; when all have gone, nothing is.
        #[test]
        fn never_misses_a_subscription_and_forgets_all_that_are_gone(
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
                    name.map_or_else(|| interest.lower_everything(shard), |name| interest.lower(shard, &uri(name)));
                }
            }
            for name in 0..200 {
                prop_assert!((0..2).all(|shard| !interest.wants(shard, interest.group(&uri(name)))));
            }
        }
    }
}
