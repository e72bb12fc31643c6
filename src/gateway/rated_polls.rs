//! The times at which subscribed resources are read again without a word of the server: each for itself, soon
//! after a change and ever more seldom after that, and all of them within a rate.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::ResourceUri;
use crate::backoff::shortened;

/// The interval between two reads right after a change. It doubles up to the configured one.
pub(super) const POLL_FIRST: Duration = Duration::from_secs(1);

/// The time whose reads may be made at once after a pause.
const BURST: Duration = Duration::from_secs(1);

/// The schedule of the resources of one server.
pub(super) struct RatedPolls {
    /// The longest interval.
    longest: Duration,
    /// The time that one read uses up of the rate.
    share: Duration,
    /// The time up to which the rate is used up.
    spent: Instant,
    resources: HashMap<ResourceUri, RatedPoll>,
    /// All of them but those that are being read.
    by_time: BTreeSet<(Instant, ResourceUri)>,
}

struct RatedPoll {
    due: Instant,
    interval: Duration,
}

impl RatedPolls {
    /// Makes an empty schedule with this longest interval, and so many reads in a second.
    pub(super) fn new(longest: Duration, reads_per_second: usize) -> RatedPolls {
        let rate = u32::try_from(reads_per_second.max(1)).unwrap_or(u32::MAX);
        RatedPolls {
            longest: longest.max(POLL_FIRST),
            share: BURST / rate,
            spent: Instant::now(),
            resources: HashMap::new(),
            by_time: BTreeSet::new(),
        }
    }

    fn set(&mut self, uri: &ResourceUri, due: Instant, interval: Duration) {
        let poll = RatedPoll { due, interval };
        if let Some(before) = self.resources.insert(uri.clone(), poll) {
            self.by_time.remove(&(before.due, uri.clone()));
        }
        self.by_time.insert((due, uri.clone()));
    }

    /// Has resources read soon, also those that are not in the schedule yet.
    pub(super) fn soon<'u>(&mut self, uris: impl IntoIterator<Item = &'u ResourceUri>, now: Instant) {
        for uri in uris {
            self.set(uri, now + POLL_FIRST, POLL_FIRST);
        }
    }

    /// Has every resource of the schedule read soon.
    pub(super) fn all_soon(&mut self, now: Instant) {
        let uris: Vec<ResourceUri> = self.resources.keys().cloned().collect();
        self.soon(&uris, now);
    }

    /// Makes these the resources of the schedule. New ones are read soon.
    pub(super) fn keep(&mut self, subscribed: &[ResourceUri], now: Instant) {
        let kept: HashSet<&ResourceUri> = subscribed.iter().collect();
        self.resources.retain(|uri, _| kept.contains(uri));
        self.by_time.retain(|(_, uri)| kept.contains(uri));
        let new: Vec<&ResourceUri> = subscribed
            .iter()
            .filter(|uri| !self.resources.contains_key(*uri))
            .collect();
        self.soon(new, now);
    }

    /// Takes note of a change: the resource is read again soon.
    pub(super) fn changed(&mut self, uri: &ResourceUri, now: Instant) {
        if self.resources.contains_key(uri) {
            self.soon([uri], now);
        }
    }

    /// Takes note that a resource was read when it was due, and was what it was before: the next interval is
    /// twice as long, shortened at random by up to a half.
    pub(super) fn unchanged(&mut self, uri: &ResourceUri, now: Instant, random: u32) {
        let Some(poll) = self.resources.get(uri) else {
            return;
        };
        let interval = (poll.interval * 2).min(self.longest);
        self.set(uri, now + shortened(interval, random), interval);
    }

    /// The time of the next read; none without a resource.
    pub(super) fn next(&self) -> Option<Instant> {
        let (due, _) = self.by_time.first()?;
        match (self.spent + self.share).checked_sub(BURST) {
            Some(within_rate) => Some(within_rate.max(*due)),
            None => Some(*due),
        }
    }

    /// Takes the resources that are due and within the rate out of the schedule, until
    /// [`changed`](Self::changed) or [`unchanged`](Self::unchanged) is called for each. Returns them, and
    /// whether others have to wait for the rate.
    pub(super) fn take(&mut self, now: Instant) -> (Vec<ResourceUri>, bool) {
        let mut taken = Vec::new();
        self.spent = self.spent.max(now);
        while let Some((due, _)) = self.by_time.first()
            && *due <= now
        {
            if self.spent + self.share > now + BURST {
                return (taken, true);
            }
            self.spent += self.share;
            taken.extend(self.by_time.pop_first().map(|(_, uri)| uri));
        }
        (taken, false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    fn uris(count: usize) -> Vec<ResourceUri> {
        let uris = (0..count).map(|number| ResourceUri::new(&format!("test:///{number}")).unwrap());
        uris.collect()
    }

    /// Reads whatever is due until `end`. Returns the times of the reads of each resource.
    fn run(
        schedule: &mut RatedPolls,
        end: Instant,
        changes: impl Fn(usize) -> bool,
    ) -> HashMap<ResourceUri, Vec<Instant>> {
        let mut reads: HashMap<ResourceUri, Vec<Instant>> = HashMap::new();
        while let Some(now) = schedule.next()
            && now <= end
        {
            let (taken, _) = schedule.take(now);
            assert!(!taken.is_empty(), "a wake-up without a read");
            for uri in taken {
                let times = reads.entry(uri.clone()).or_default();
                times.push(now);
                match changes(times.len()) {
                    true => schedule.changed(&uri, now),
                    false => schedule.unchanged(&uri, now, 0),
                }
            }
        }
        reads
    }

    #[tokio::test(start_paused = true)]
    async fn intervals_double_after_each_change() {
        let start = Instant::now();
        let mut schedule = RatedPolls::new(LONGEST, 20);
        schedule.soon(&uris(1), start);
        let reads = run(&mut schedule, start + Duration::from_secs(150), |read| read == 7);
        let times = reads.into_values().next().unwrap();
        let seconds: Vec<u64> = times.iter().map(|time| (*time - start).as_secs()).collect();
        // A second after the subscription; then 2, 4, 8, 16, 30 and 30; a second after the change, and so on.
        assert_eq!(seconds, [1, 3, 7, 15, 31, 61, 91, 92, 94, 98, 106, 122]);
    }

    #[tokio::test(start_paused = true)]
    async fn change_of_one_resource_leaves_the_others() {
        let start = Instant::now();
        let mut schedule = RatedPolls::new(LONGEST, 20);
        let uris = uris(2);
        schedule.soon(&uris, start);
        run(&mut schedule, start + Duration::from_secs(40), |_| false);
        let now = start + Duration::from_secs(40);
        schedule.changed(&uris[0], now);
        let reads = run(&mut schedule, now + Duration::from_secs(10), |_| false);
        assert_eq!(reads.keys().collect::<Vec<_>>(), [&uris[0]]);
    }

    #[tokio::test(start_paused = true)]
    async fn forgotten_resource_is_not_read() {
        let start = Instant::now();
        let mut schedule = RatedPolls::new(LONGEST, 20);
        let uris = uris(3);
        schedule.soon(&uris[..2], start);
        schedule.keep(&uris[1..], start);
        schedule.changed(&uris[0], start);
        let reads = run(&mut schedule, start + Duration::from_secs(5), |_| false);
        assert_eq!(reads.len(), 2);
        assert!(!reads.contains_key(&uris[0]));
    }

    proptest! {
        /// No second has more reads than two seconds of the rate, and none starves.
        #[test]
        fn reads_stay_within_the_rate(count in 1_usize..200, rate in 1_usize..50) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _entered = runtime.enter();
            let start = Instant::now();
            let mut schedule = RatedPolls::new(LONGEST, rate);
            schedule.soon(&uris(count), start);
            let seconds = 60 + 2 * u64::try_from(count / rate).unwrap();
            let reads = run(&mut schedule, start + Duration::from_secs(seconds), |_| true);
            prop_assert_eq!(reads.len(), count);
            let mut all: Vec<Instant> = reads.into_values().flatten().collect();
            all.sort();
            for (index, time) in all.iter().enumerate() {
                let within = all[index..].iter().take_while(|other| **other - *time < Duration::from_secs(1));
                prop_assert!(within.count() <= 2 * rate);
            }
        }
    }
}
