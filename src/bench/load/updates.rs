//! The rule that says which notice announces which update; latencies, merged updates and missing notices
//! follow from it.
//!
//! *By version*, where the first version of a resource is known and notices carry theirs: version `first + n`
//! is update `n`, whatever was merged on the way. *By order*, where notices carry none: the n-th notice of a
//! resource stands for its n-th update, which never makes a latency look shorter than it was. Times are
//! nanoseconds since the start of the run.

/// The updates of every resource, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// The due times, by resource.
    due: Vec<Vec<u64>>,
    /// The time at which the last update was written to the server, by resource.
    sent: Vec<Option<u64>>,
    /// The version before the first update, where the rule is by version.
    first: Vec<Option<u64>>,
}

/// The progress of one subscription.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The number of the newest update that was announced to it; 0 is none. Updates before its begin count as
    /// announced.
    told: u64,
    /// The newest update that a notice named; 0 is none.
    heard: u64,
    /// The number of updates before it began to listen.
    from: u64,
    /// The time of the last notice.
    last: Option<u64>,
}

/// The meaning of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It announces `covered` updates for the first time; all but one of them were merged into it.
    New {
        covered: u64,
        /// The due time of the update that it names.
        due: u64,
        /// The due time of the oldest update that it covers.
        oldest_due: u64,
    },
    /// It repeats a known state.
    Again,
    /// It names an older version than the notice before.
    Backward,
    /// It names a version that this test did not make.
    Foreign,
}

impl Updates {
    /// Begins without updates.
    pub(crate) fn new(resources: usize) -> Updates {
        Updates {
            due: vec![Vec::new(); resources],
            sent: vec![None; resources],
            first: vec![None; resources],
        }
    }

    /// Sets the version of a resource before its first update; its notices are matched by version from then
    /// on.
    pub(crate) fn begin_at(&mut self, resource: usize, version: u64) {
        self.first[resource] = Some(version);
    }

    /// Notes an update that was due at `due` and written at `now`. Returns the version it will have, where
    /// the rule is by version.
    pub(crate) fn push(&mut self, resource: usize, due: u64, now: u64) -> Option<u64> {
        self.due[resource].push(due);
        self.sent[resource] = Some(now);
        Some(self.first[resource]? + self.count(resource))
    }

    /// Returns the number of updates of a resource.
    pub(crate) fn count(&self, resource: usize) -> u64 {
        self.due[resource].len() as u64
    }

    /// Returns the number of resources.
    pub(crate) fn resources(&self) -> usize {
        self.due.len()
    }

    fn due(&self, resource: usize, number: u64) -> u64 {
        self.due[resource][number as usize - 1]
    }
}

impl Watch {
    /// Begins to listen now, in the middle of the run.
    pub(crate) fn late(resource: usize, updates: &Updates) -> Watch {
        let from = updates.count(resource);
        Watch {
            told: from,
            heard: 0,
            from,
            last: None,
        }
    }

    /// Interprets a notice of `resource` that came at `now`.
    pub(crate) fn note(
        &mut self,
        resource: usize,
        version: Option<u64>,
        now: u64,
        updates: &Updates,
    ) -> Told {
        let made = updates.count(resource);
        let number = match (version, updates.first[resource]) {
            (Some(version), Some(first)) => match version.checked_sub(first) {
                // The state from before the run, announced late.
                None | Some(0) => return Told::Again,
                Some(number) if number > made => return Told::Foreign,
                Some(number) => number,
            },
            // More notices than updates: this one cannot stand for a new one.
            _ if self.told == made => {
                self.last = Some(now);
                return Told::Again;
            }
            _ => self.told + 1,
        };
        self.last = Some(now);
        // An update from before its begin may be announced afterwards: that is late, not backward.
        let backward = number < self.heard;
        self.heard = self.heard.max(number);
        if number <= self.told {
            return if backward { Told::Backward } else { Told::Again };
        }
        let told = Told::New {
            covered: number - self.told,
            due: updates.due(resource, number),
            oldest_due: updates.due(resource, self.told + 1),
        };
        self.told = number;
        told
    }

    /// Returns the number of updates that must be announced to it, merged or not.
    pub(crate) fn owed(&self, resource: usize, updates: &Updates) -> u64 {
        updates.count(resource) - self.from
    }

    /// Returns the number of updates that were not announced to it.
    pub(crate) fn untold(&self, resource: usize, updates: &Updates) -> u64 {
        updates.count(resource) - self.told
    }

    /// Reports whether its reader knows the newest state: by version that very one, by order any notice since
    /// the last update was sent.
    pub(crate) fn is_current(&self, resource: usize, updates: &Updates) -> bool {
        if self.owed(resource, updates) == 0 {
            return true;
        }
        match (updates.first[resource], updates.sent[resource]) {
            (Some(_), _) | (None, None) => self.untold(resource, updates) == 0,
            (None, Some(sent)) => matches!(self.last, Some(last) if last >= sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(first: Option<u64>, dues: &[u64]) -> Updates {
        let mut updates = Updates::new(1);
        if let Some(first) = first {
            updates.begin_at(0, first);
        }
        for due in dues {
            updates.push(0, *due, due + 1);
        }
        updates
    }

    fn new(covered: u64, due: u64, oldest_due: u64) -> Told {
        Told::New {
            covered,
            due,
            oldest_due,
        }
    }

    #[test]
    fn notice_with_version_stands_for_that_update() {
        let updates = made(Some(5), &[100, 200, 300, 400]);
        let mut watch = Watch::default();
        assert_eq!(
            watch.note(0, Some(5), 50, &updates),
            Told::Again,
            "the state before"
        );
        assert_eq!(watch.note(0, Some(6), 150, &updates), new(1, 100, 100));
        assert_eq!(watch.note(0, Some(8), 350, &updates), new(2, 300, 200));
        assert_eq!(watch.note(0, Some(8), 360, &updates), Told::Again);
        assert_eq!(watch.note(0, Some(7), 370, &updates), Told::Backward);
        assert_eq!(watch.note(0, Some(10), 380, &updates), Told::Foreign);
        assert_eq!(watch.untold(0, &updates), 1);
        assert!(
            !watch.is_current(0, &updates),
            "a notice after the last update is not enough"
        );
        assert_eq!(watch.note(0, Some(9), 450, &updates), new(1, 400, 400));
        assert!(watch.is_current(0, &updates));
    }

    #[test]
    fn notice_without_version_takes_the_oldest() {
        let mut updates = made(None, &[100, 200, 300]);
        let mut watch = Watch::default();
        assert_eq!(watch.note(0, None, 250, &updates), new(1, 100, 100));
        assert_eq!(watch.note(0, Some(9), 260, &updates), new(1, 200, 200));
        assert!(!watch.is_current(0, &updates));
        assert_eq!(watch.note(0, None, 310, &updates), new(1, 300, 300));
        assert!(watch.is_current(0, &updates));
        assert_eq!(watch.note(0, None, 320, &updates), Told::Again);
        updates.push(0, 400, 401);
        assert!(!watch.is_current(0, &updates), "told before it was sent");
    }

    #[test]
    fn late_subscription_is_owed_later_updates() {
        let mut updates = made(Some(1), &[100, 200]);
        let mut watch = Watch::late(0, &updates);
        assert!(watch.is_current(0, &updates));
        assert_eq!(watch.note(0, Some(3), 250, &updates), Told::Again);
        updates.push(0, 300, 301);
        assert!(!watch.is_current(0, &updates));
        assert_eq!(watch.owed(0, &updates), 1);
        assert_eq!(watch.note(0, Some(4), 350, &updates), new(1, 300, 300));
        assert!(watch.is_current(0, &updates));
    }

    #[test]
    fn late_subscription_accepts_older_notices_in_order() {
        let updates = made(Some(4), &[10, 20, 30]);
        let mut watch = Watch::late(0, &updates);
        assert_eq!(watch.note(0, Some(6), 40, &updates), Told::Again);
        assert_eq!(watch.note(0, Some(7), 41, &updates), Told::Again);
        assert_eq!(watch.note(0, Some(5), 42, &updates), Told::Backward);
    }

    #[test]
    fn pushed_update_knows_its_version() {
        let mut updates = made(Some(7), &[]);
        assert_eq!(updates.push(0, 1, 2), Some(8));
        assert_eq!(updates.push(0, 3, 4), Some(9));
        assert_eq!(made(None, &[]).push(0, 1, 2), None);
    }

    proptest! {
        #[test]
        fn announced_merged_and_missing_add_up(versions in prop::collection::vec(0u64..40, 0..60), made_count in 0u64..30) {
            let dues: Vec<u64> = (0..made_count).map(|number| number * 10).collect();
            let updates = made(Some(3), &dues);
            let (mut watch, mut covered_all) = (Watch::default(), 0);
            for version in versions {
                if let Told::New { covered, due, oldest_due } = watch.note(0, Some(version), 1_000, &updates) {
                    prop_assert!(oldest_due <= due);
                    covered_all += covered;
                }
            }
            prop_assert_eq!(covered_all + watch.untold(0, &updates), watch.owed(0, &updates));
        }
    }
}
