//! The counts of this node, as it tells them to the other nodes of a cluster.

use std::collections::HashMap;

use tidings_actors::ResourceUri;

use super::elsewhere::{HeldCounts, key_of};
use super::{Counted, SharedLimits};

impl SharedLimits {
    /// Returns what callers hold at this node of the things that quotas limit, by the keys of the callers:
    /// the `most` that are nearest to a limit.
    pub fn held(&self, most: usize) -> Vec<(u64, HeldCounts)> {
        let shared = &self.shared;
        let quota = &shared.quota;
        let mut held: HashMap<u64, HeldCounts> = HashMap::new();
        let mut note = |counts: Vec<(Counted, usize)>, set: fn(&mut HeldCounts, usize)| {
            for (caller, count) in counts {
                if let Some(key) = key_of(&caller) {
                    set(held.entry(key).or_default(), count);
                }
            }
        };
        if quota.sessions_max.is_some() {
            note(shared.sessions.counts(), |held, count| held.sessions = count);
        }
        if quota.subscriptions_max.is_some() {
            note(shared.subscriptions.counts(), |held, count| {
                held.subscriptions = count;
            });
        }
        if quota.bytes_max.is_some() {
            note(shared.published.counts(), |held, count| held.bytes = count);
        }
        if quota.tool_places.is_some() {
            note(shared.tool_places.counts(), |held, count| held.tool_calls = count);
        }
        let mut held: Vec<_> = held.into_iter().collect();
        // The same order on each look, whatever the order of the map.
        held.sort_by_key(|(key, counts)| (std::cmp::Reverse(self.share_of(counts)), *key));
        held.truncate(most);
        held
    }

    /// The largest part of a limit that these counts use, in millionths.
    fn share_of(&self, held: &HeldCounts) -> u128 {
        let quota = &self.shared.quota;
        let part = |count: usize, max: Option<usize>| match max {
            Some(max) => count as u128 * 1_000_000 / (max.max(1) as u128),
            None => 0,
        };
        part(held.sessions, quota.sessions_max)
            .max(part(held.subscriptions, quota.subscriptions_max))
            .max(part(held.bytes, quota.bytes_max))
            .max(part(held.tool_calls, quota.tool_places))
    }

    /// Replaces what callers hold at other nodes, by the keys of the callers.
    pub fn set_elsewhere(&self, counts: HashMap<u64, HeldCounts>) {
        // First, because the allowances below read it.
        self.shared.elsewhere.set(counts);
        let elsewhere = |caller: &Counted| self.shared.elsewhere.of(caller).subscriptions;
        self.shared.subscriptions.set_elsewhere(elsewhere);
    }

    /// Gives the bytes back of those resources that another node has removed or replaced: of which `is_held`
    /// is false, with the bytes of the URI and the body.
    pub fn keep_published(&self, is_held: impl Fn(&ResourceUri, usize) -> bool) {
        if self.shared.quota.bytes_max.is_some() {
            self.shared.published.keep(is_held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HttpConfig, QuotaConfig, SessionConfig};

    fn limits() -> SharedLimits {
        let quota = QuotaConfig {
            sessions_max: Some(3),
            subscriptions_max: Some(10),
            bytes_max: Some(100),
            tool_places: Some(2),
            ..QuotaConfig::default()
        };
        SharedLimits::new(&HttpConfig::default(), &SessionConfig::default(), &quota)
    }

    fn caller(name: u8) -> Counted {
        Counted::Address([192, 0, 2, name].into())
    }

    fn uri(name: &str) -> ResourceUri {
        ResourceUri::new(name).unwrap()
    }

    #[test]
    fn counts_of_another_node_use_up_a_limit_here() {
        let [here, there] = [limits(), limits()];
        let session = there.session(&caller(1)).unwrap();
        let call = there.tool_place(&caller(1)).unwrap();
        drop(there.publish(&caller(1), &uri("demo://a"), 62).unwrap());
        let allowance = here.subscriptions(&caller(1)).unwrap();
        assert_eq!(there.held(9).len(), 1);
        let mut told: HashMap<_, _> = there.held(9).into_iter().collect();
        for counts in told.values_mut() {
            counts.subscriptions = 9;
        }
        here.set_elsewhere(told);
        let mine = [
            here.session(&caller(1)).unwrap(),
            here.session(&caller(1)).unwrap(),
        ];
        let refused = here.session(&caller(1)).unwrap_err();
        assert!(refused.text.contains("quota.sessions_max"), "{}", refused.text);
        let calls = here.tool_place(&caller(1)).unwrap();
        assert!(here.tool_place(&caller(1)).is_err());
        assert!(here.publish(&caller(1), &uri("demo://b"), 23).is_err());
        assert!(here.publish(&caller(1), &uri("demo://b"), 22).is_ok());
        assert_eq!((allowance.used(), allowance.elsewhere()), (0, 9));
        // Another caller has its own limits, and a node that is gone counts no more.
        assert!(here.session(&caller(2)).is_ok());
        here.set_elsewhere(HashMap::new());
        assert!(here.session(&caller(1)).is_ok());
        assert_eq!(here.subscriptions(&caller(1)).unwrap().elsewhere(), 0);
        drop((session, call, mine, calls));
    }

    #[test]
    fn callers_nearest_to_a_limit_are_told() {
        let limits = limits();
        let mut places = Vec::new();
        for (name, count) in [(1, 1), (2, 3), (3, 2)] {
            for _ in 0..count {
                places.push(limits.session(&caller(name)).unwrap());
            }
        }
        let told: Vec<_> = limits
            .held(2)
            .into_iter()
            .map(|(_, held)| held.sessions)
            .collect();
        assert_eq!(told, [3, 2]);
        drop(limits.session(&Counted::Unknown).unwrap());
        assert_eq!(limits.held(9).len(), 3);
    }

    #[test]
    fn bytes_of_what_another_node_replaced_are_given_back() {
        let limits = limits();
        for name in ["demo://a", "demo://b"] {
            drop(limits.publish(&caller(1), &uri(name), 40).unwrap());
        }
        limits.keep_published(|uri, len| uri.as_str() == "demo://a" && len == 48);
        assert_eq!(limits.held(1)[0].1.bytes, 48);
    }
}
