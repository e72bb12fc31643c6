//! Every metric of the bus: its name, its meaning, and the only use of the metrics macros.
//!
//! Owns: the numbers of one bus, exported through the `metrics` facade (whichever recorder the embedder installed
//! before the bus started) and partly readable through [`Stats`](crate::Stats). Several buses of one process add up.
//! Never: a label with a URI or a session id. What shards change for each subscriber is counted in stripes and handed
//! to the facade by [`Metrics::export`], so that they do not wait for each other.

mod striped;
mod number;
mod attached;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{
    Counter as ExportedCounter, Gauge, Histogram, IntoF64, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

pub(crate) use attached::{AttachedMetrics, LossReason};
pub(crate) use number::{Counter, StripedCounter, StripedGauge};

pub(crate) use striped::enter_stripe;

use number::SharedGauge;

use crate::model::{EndReason, ListKind, PublishError};

/// Metrics and what they mean, for whoever reads the exposition.
const COUNTERS: [(&str, &str); 13] = [
    (
        CHANGES,
        "Changes that reached the registry, by what became of them.",
    ),
    (
        NOTICES,
        "What changed things became: stamped notices and new list hashes, by kind.",
    ),
    (TOLD, "Outbox entries that became pending."),
    (
        CONFLATED,
        "Outbox entries replaced by a newer one before they were handed out.",
    ),
    (DELIVERED, "Outbox entries handed to the stream that writes them."),
    (LISTS_DUE, "List notifications that became pending."),
    (
        LISTS_SENT,
        "List notifications handed to the stream that writes them.",
    ),
    (
        LISTS_SUPPRESSED,
        "List notifications that a rule kept from a subscriber.",
    ),
    (DENIED, "Subscriptions refused with an error."),
    (OPENED, "Sessions and streams attached."),
    (ENDED, "Sessions and streams ended, by why."),
    (
        LIMITS,
        "Times that a bound was met, by the configuration key that sets it.",
    ),
    (MAILBOX, "Messages refused by a mailbox; a bug when not 0."),
];
const GAUGES: [(&str, &str); 8] = [
    (SESSIONS, "Sessions and listen streams attached."),
    (
        STREAMS,
        "Open readers of outboxes: streams, pumps, waiting tools.",
    ),
    (
        SUBSCRIPTIONS,
        "Subscriptions by name, over all sessions and streams.",
    ),
    (
        PENDING,
        "Outbox entries that wait to be handed out, over all outboxes.",
    ),
    (
        OLDEST,
        "Age of the oldest pending resource entry when its outbox was last looked at.",
    ),
    (
        STALLED,
        "Sessions and listen streams that take nothing of what waits for them though a stream is open.",
    ),
    (IN_FLIGHT, "Requests inside the bus."),
    (ITEMS, "What is registered, by kind."),
];
const HISTOGRAMS: [(&str, &str); 4] = [
    (FAN_OUT, "Time from the door until every outbox is marked."),
    (DOOR, "Time that requests waited at the door."),
    (STORE, "Time the store took to make one batch durable."),
    (BATCH, "Records of one batch of the store."),
];

const CHANGES: &str = "tidings_changes_total";
const NOTICES: &str = "tidings_notices_total";
const TOLD: &str = "tidings_told_total";
const CONFLATED: &str = "tidings_conflated_total";
const DELIVERED: &str = "tidings_delivered_total";
const LISTS_DUE: &str = "tidings_list_notifications_due_total";
const LISTS_SENT: &str = "tidings_list_notifications_sent_total";
const LISTS_SUPPRESSED: &str = "tidings_list_notifications_suppressed_total";
const DENIED: &str = "tidings_subscriptions_denied_total";
const OPENED: &str = "tidings_sessions_opened_total";
const ENDED: &str = "tidings_sessions_ended_total";
const MAILBOX: &str = "tidings_mailbox_refused_total";
const LIMITS: &str = "tidings_limit_reached_total";
const SESSIONS: &str = "tidings_sessions";
const STREAMS: &str = "tidings_streams";
const SUBSCRIPTIONS: &str = "tidings_subscriptions";
const PENDING: &str = "tidings_outbox_entries";
const OLDEST: &str = "tidings_outbox_oldest_seconds";
const STALLED: &str = "tidings_sessions_stalled";
const IN_FLIGHT: &str = "tidings_requests_in_flight";
const ITEMS: &str = "tidings_registered_items";
const FAN_OUT: &str = "tidings_fan_out_seconds";
const DOOR: &str = "tidings_door_wait_seconds";
const STORE: &str = "tidings_store_batch_seconds";
const BATCH: &str = "tidings_store_batch_records";

/// A bound of the bus, by the configuration key that sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    InFlight,
    Resources,
    ListItems,
    BodyBytes,
    Removed,
    Sessions,
    Subscriptions,
    Idle,
    Stall,
    Age,
}

/// In the order of [`Limit`].
const LIMIT_KEYS: [&str; 10] = [
    "bus.in_flight_max",
    "bus.resources_max",
    "bus.list_items_max",
    "bus.body_bytes_max",
    "bus.removed_max",
    "session.max",
    "session.subscriptions_max",
    "session.idle_timeout",
    "session.stall_timeout",
    "session.age_max",
];

/// How subscribers are reached that speak alike: what they speak, and what carries it.
pub(crate) struct TransportLabels {
    pub(crate) protocol: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) sessions: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) delivered: StripedCounter,
    pub(crate) lists_sent: StripedCounter,
}

impl std::fmt::Debug for TransportLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Road({} {})", self.protocol, self.transport)
    }
}

impl TransportLabels {
    fn new(shards: usize, protocol: &'static str, transport: &'static str) -> TransportLabels {
        TransportLabels {
            protocol,
            transport,
            sessions: gauge!(SESSIONS, "revision" => protocol, "transport" => transport),
            streams: gauge!(STREAMS, "transport" => transport),
            delivered: StripedCounter::new(shards, counter!(DELIVERED, "transport" => transport)),
            lists_sent: StripedCounter::new(shards, counter!(LISTS_SENT, "transport" => transport)),
        }
    }
}

/// The time since then, up to when it is recorded: without a recorder no clock is read.
struct Since(Instant);

impl IntoF64 for Since {
    fn into_f64(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// The numbers of one bus.
pub(crate) struct Metrics {
    pub(crate) changes: Counter,
    /// Changes of lists, exported with the others.
    pub(crate) changes_of_lists: Counter,
    pub(crate) unchanged: Counter,
    refused: Counter,
    pub(crate) updated: Counter,
    pub(crate) removed: Counter,
    list_changes: [Counter; 3],
    pub(crate) notified: StripedCounter,
    pub(crate) conflated: StripedCounter,
    pub(crate) lists_due: StripedCounter,
    pub(crate) lists_known: StripedCounter,
    pub(crate) lists_unasked: StripedCounter,
    pub(crate) subscriptions_denied: Counter,
    pub(crate) sessions_opened: Counter,
    sessions_ended: [ExportedCounter; EndReason::ALL.len()],
    pub(crate) mailbox_refused: Counter,
    limits: [ExportedCounter; LIMIT_KEYS.len()],
    pub(crate) subscriptions: StripedGauge,
    pub(crate) pending: StripedGauge,
    in_flight: SharedGauge,
    stalled: SharedGauge,
    /// Per shard how many stall.
    stalls: Box<[AtomicU64]>,
    items: [SharedGauge; 4],
    oldest: Gauge,
    /// Per shard the age of its oldest pending entry, in milliseconds.
    ages: Box<[AtomicU64]>,
    fan_out: Histogram,
    pub(crate) door_wait: Histogram,
    pub(crate) store_seconds: Histogram,
    pub(crate) store_records: Histogram,
    transports: Mutex<HashMap<(&'static str, &'static str), Arc<TransportLabels>>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers everything at the recorder that is installed now.
    pub(crate) fn register(shards: usize) -> Arc<Metrics> {
        describe();
        let change = |outcome: &'static str| Counter::new(counter!(CHANGES, "outcome" => outcome));
        let notice = |kind: &'static str| Counter::new(counter!(NOTICES, "kind" => kind));
        let suppressed = |rule: &'static str| counter!(LISTS_SUPPRESSED, "rule" => rule);
        let item = |kind: &'static str| SharedGauge::new(gauge!(ITEMS, "kind" => kind));
        Arc::new(Metrics {
            changes: change("changed"),
            changes_of_lists: change("changed"),
            unchanged: change("unchanged"),
            refused: change("refused"),
            updated: notice("updated"),
            removed: notice("removed"),
            list_changes: ["resources_list", "tools_list", "prompts_list"].map(notice),
            notified: StripedCounter::new(shards, counter!(TOLD)),
            conflated: StripedCounter::new(shards, counter!(CONFLATED)),
            lists_due: StripedCounter::new(shards, counter!(LISTS_DUE)),
            lists_known: StripedCounter::new(shards, suppressed("known")),
            lists_unasked: StripedCounter::new(shards, suppressed("not_asked")),
            subscriptions_denied: Counter::new(counter!(DENIED)),
            sessions_opened: Counter::new(counter!(OPENED)),
            sessions_ended: EndReason::ALL.map(|reason| counter!(ENDED, "reason" => reason.name())),
            mailbox_refused: Counter::new(counter!(MAILBOX)),
            limits: LIMIT_KEYS.map(|key| counter!(LIMITS, "limit" => key)),
            subscriptions: StripedGauge::new(shards, gauge!(SUBSCRIPTIONS)),
            pending: StripedGauge::new(shards, gauge!(PENDING)),
            in_flight: SharedGauge::new(gauge!(IN_FLIGHT)),
            stalled: SharedGauge::new(gauge!(STALLED)),
            stalls: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            items: ["resource", "template", "tool", "prompt"].map(item),
            oldest: gauge!(OLDEST),
            ages: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            fan_out: histogram!(FAN_OUT),
            door_wait: histogram!(DOOR),
            store_seconds: histogram!(STORE),
            store_records: histogram!(BATCH),
            transports: Mutex::default(),
        })
    }

    /// The numbers of those who speak `protocol` over `transport`; few pairs exist, so they are kept.
    pub(crate) fn labels(&self, protocol: &'static str, transport: &'static str) -> Arc<TransportLabels> {
        let mut transports = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = transports.entry((protocol, transport));
        labels
            .or_insert_with(|| Arc::new(TransportLabels::new(self.ages.len(), protocol, transport)))
            .clone()
    }

    /// A change was refused; some refusals are those of a limit.
    pub(crate) fn refuse(&self, error: &PublishError) {
        self.refused.add(1);
        match error {
            PublishError::TooMany {
                what: "resources", ..
            } => self.reached(Limit::Resources),
            PublishError::TooMany { .. } => self.reached(Limit::ListItems),
            PublishError::BodyTooLarge { .. } => self.reached(Limit::BodyBytes),
            _ => {}
        }
    }

    pub(crate) fn reached(&self, limit: Limit) {
        self.limit(limit).increment(1);
    }

    pub(crate) fn limit(&self, limit: Limit) -> &ExportedCounter {
        &self.limits[limit as usize]
    }

    pub(crate) fn list_changed(&self, kind: ListKind) {
        self.list_changes[kind.index()].add(1);
    }

    /// A session or stream ended; some ends are those of a limit.
    pub(crate) fn ended(&self, reason: EndReason) {
        match reason {
            EndReason::Idle => self.reached(Limit::Idle),
            EndReason::Stalled => self.reached(Limit::Stall),
            EndReason::Expired => self.reached(Limit::Age),
            _ => {}
        }
        self.sessions_ended[reason as usize].increment(1);
    }

    /// The registry holds this many resources, templates, tools and prompts.
    pub(crate) fn holds(&self, counts: [usize; 4]) {
        for (item, count) in self.items.iter().zip(counts) {
            item.show(count as i64);
        }
    }

    /// So many subscribers of a shard stall.
    pub(crate) fn stalled_of(&self, shard: usize, count: usize) {
        if let Some(held) = self.stalls.get(shard) {
            held.store(count as u64, Ordering::Relaxed);
        }
    }

    /// The oldest pending entry of a shard is this old.
    pub(crate) fn oldest_of(&self, shard: usize, age: Duration) {
        if let Some(held) = self.ages.get(shard) {
            held.store(age.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Every outbox is marked for a change that passed the door at `since`.
    pub(crate) fn fanned_out(&self, since: Instant) {
        self.fan_out.record(Since(since));
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }

    pub(crate) fn notices(&self) -> u64 {
        self.updated.get() + self.removed.get()
    }

    pub(crate) fn lists(&self) -> u64 {
        self.list_changes.iter().map(Counter::get).sum()
    }

    /// Hands to the recorder what was counted in stripes, and that `in_flight` requests are inside the bus.
    pub(crate) fn export(&self, in_flight: usize) {
        // Held so that no two exports count the same difference.
        let transports = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        for labels in transports.values() {
            labels.delivered.export();
            labels.lists_sent.export();
        }
        let progresses = [
            &self.notified,
            &self.conflated,
            &self.lists_due,
            &self.lists_known,
            &self.lists_unasked,
        ];
        progresses.into_iter().for_each(StripedCounter::export);
        self.subscriptions.export();
        self.pending.export();
        self.in_flight.show(in_flight as i64);
        let stalls = self.stalls.iter().map(|count| count.load(Ordering::Relaxed));
        self.stalled.show(stalls.sum::<u64>() as i64);
        let ages = self.ages.iter().map(|age| age.load(Ordering::Relaxed));
        self.oldest.set(ages.max().unwrap_or(0) as f64 / 1_000.0);
    }
}

fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in HISTOGRAMS {
        describe_histogram!(name, help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    fn values(recorder: &DebuggingRecorder) -> HashMap<String, DebugValue> {
        let all = recorder.snapshotter().snapshot().into_vec();
        let named = all.into_iter().map(|(key, _, _, value)| {
            let labels = key
                .key()
                .labels()
                .map(|label| format!(" {}={}", label.key(), label.value()));
            (
                format!("{}{}", key.key().name(), labels.collect::<String>()),
                value,
            )
        });
        named.collect()
    }

    #[test]
    fn what_two_buses_count_adds_up_and_a_share_goes_with_its_bus() {
        let recorder = DebuggingRecorder::new();
        // Taking the values resets them, so each look shows what came since the last.
        let gauges = || {
            let all = values(&recorder);
            [PENDING, IN_FLIGHT].map(|name| match &all[name] {
                DebugValue::Gauge(value) => value.into_inner(),
                other => panic!("{name} is {other:?}"),
            })
        };
        let [one, two] = metrics::with_local_recorder(&recorder, || [2, 2].map(Metrics::register));
        one.pending.moved(0, 5);
        two.pending.moved(0, 3);
        two.pending.moved(3, 2);
        for bus in [&one, &two, &two] {
            bus.export(4);
        }
        assert_eq!(gauges(), [7.0, 8.0]);
        drop(one);
        assert_eq!(gauges(), [-5.0, -4.0]);
    }

    #[test]
    fn a_flow_is_handed_over_once_however_often_it_is_exported() {
        let recorder = DebuggingRecorder::new();
        let bus = metrics::with_local_recorder(&recorder, || {
            let bus = Metrics::register(1);
            bus.labels("p", "t").delivered.add(2);
            bus
        });
        bus.export(0);
        bus.export(0);
        bus.labels("p", "t").delivered.add(1);
        bus.export(0);
        let delivered = &values(&recorder)[&format!("{DELIVERED} transport=t")];
        assert_eq!(*delivered, DebugValue::Counter(3));
    }

    #[test]
    fn each_limit_has_its_key() {
        let recorder = DebuggingRecorder::new();
        let bus = metrics::with_local_recorder(&recorder, || Metrics::register(1));
        let all = [
            Limit::InFlight,
            Limit::Resources,
            Limit::ListItems,
            Limit::BodyBytes,
            Limit::Removed,
            Limit::Sessions,
            Limit::Subscriptions,
            Limit::Idle,
            Limit::Stall,
            Limit::Age,
        ];
        assert_eq!(all.map(|limit| limit as usize), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        bus.refuse(&PublishError::TooMany {
            what: "resources",
            max: 1,
        });
        bus.refuse(&PublishError::TooMany {
            what: "tools",
            max: 1,
        });
        let counted = values(&recorder);
        for key in ["bus.resources_max", "bus.list_items_max"] {
            assert_eq!(counted[&format!("{LIMITS} limit={key}")], DebugValue::Counter(1));
        }
        assert_eq!(bus.refused(), 2);
    }

    #[test]
    fn each_reason_has_its_counter() {
        for (place, reason) in EndReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }
}
