//! The metrics of one bus, exported through the `metrics` facade to the recorder that is installed when it
//! starts.
//!
//! Several buses of one process add up. No label carries a URI or a session id, so the number of series is
//! bounded. Counters that shards change for each subscriber have one stripe per shard, so that the shards do
//! not contend, and reach the recorder through [`Metrics::export`].

mod attached;
mod number;
mod striped;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{Counter as ExportedCounter, Gauge, Histogram, IntoF64, counter, gauge, histogram};

pub(crate) use attached::{AttachedMetrics, LossReason};
pub(crate) use number::{Counter, StripedCounter, StripedGauge};
pub(crate) use striped::enter_stripe;

use number::SharedGauge;

use crate::model::{EndReason, ListKind, PublishError};

/// Declares metrics, one row each: the constant, its name, and the help text that `/metrics` shows.
macro_rules! metric_table {
    ($($describe:ident $name:ident = $text:literal, $help:literal;)*) => {
        $(const $name: &str = $text;)*

        /// Hands the help texts to the recorder. Calling it again has no effect.
        fn describe() {
            $(metrics::$describe!($name, $help);)*
        }
    };
}

/// Declares an enum that counters are labelled with, one row per variant.
macro_rules! label_table {
    ($(#[$attribute:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// The labels in the order of the variants, so that a counter is found by its index.
            const KEYS: [&str; [$($name::$variant,)*].len()] = [$($label,)*];
        }
    };
}

use {label_table, metric_table};

metric_table! {
    describe_counter CHANGES = "tidings_changes_total", "Changes that reached the registry, by outcome.";
    describe_counter NOTICES = "tidings_notices_total", "Notices of resources and new list hashes, by kind.";
    describe_counter NOTIFIED = "tidings_told_total", "Outbox entries that became pending.";
    describe_counter CONFLATED = "tidings_conflated_total",
        "Outbox entries replaced by a newer one before they were handed out.";
    describe_counter DELIVERED = "tidings_delivered_total", "Outbox entries handed to the stream that writes them.";
    describe_counter WITHHELD = "tidings_withheld_total",
        "Outbox entries dropped because their subscriber may not be told of the resource any more.";
    describe_counter LIST_HASHES = "tidings_list_hashes_computed_total",
        "Audiences for which the hashes of the lists were counted.";
    describe_counter AUDIENCES = "tidings_audiences_uncounted_total",
        "Audiences beyond the 64 whose hashes are kept.";
    describe_counter LISTS_DUE = "tidings_list_notifications_due_total", "List notifications that became pending.";
    describe_counter LISTS_SENT = "tidings_list_notifications_sent_total",
        "List notifications handed to the stream that writes them.";
    describe_counter LISTS_SUPPRESSED = "tidings_list_notifications_suppressed_total",
        "List notifications that a rule kept from a subscriber.";
    describe_counter DENIED = "tidings_subscriptions_denied_total", "Subscriptions refused with an error.";
    describe_counter OPENED = "tidings_sessions_opened_total", "Sessions and streams opened.";
    describe_counter ENDED = "tidings_sessions_ended_total", "Sessions and streams ended, by reason.";
    describe_counter MAILBOX = "tidings_mailbox_refused_total", "Messages refused by a mailbox; a bug when not 0.";
    describe_counter LIMITS = "tidings_limit_reached_total",
        "Times that a limit was reached, by the configuration key that sets it.";
    describe_gauge SESSIONS = "tidings_sessions", "Open sessions and listen streams.";
    describe_gauge STREAMS = "tidings_streams", "Open readers of outboxes: streams, pumps, waiting tools.";
    describe_gauge SUBSCRIPTIONS = "tidings_subscriptions",
        "Subscriptions by name, over all sessions and streams.";
    describe_gauge PENDING = "tidings_outbox_entries",
        "Outbox entries that wait to be handed out, over all outboxes.";
    describe_gauge OLDEST = "tidings_outbox_oldest_seconds",
        "Age of the oldest pending resource entry when its outbox was last checked.";
    describe_gauge STALLED = "tidings_sessions_stalled",
        "Sessions and listen streams that take nothing of their pending entries although a stream is open.";
    describe_gauge IN_FLIGHT = "tidings_requests_in_flight", "Requests inside the bus.";
    describe_gauge ITEMS = "tidings_registered_items", "Registered items, by kind.";
    describe_histogram FAN_OUT = "tidings_fan_out_seconds",
        "Time from admission until every outbox is marked.";
    describe_histogram ADMISSION = "tidings_door_wait_seconds", "Time that requests waited for admission.";
    describe_histogram STORE = "tidings_store_batch_seconds", "Time the store took to make one batch durable.";
    describe_gauge STORE_UP = "tidings_store_up",
        "1 while every change is kept, 0 while the store fails or does not answer. Without a store 1.";
    describe_counter STORE_FAILURES = "tidings_store_failures_total", "Batches that the store could not keep.";
    describe_counter STORE_REFUSED = "tidings_store_refused_total",
        "Changes refused because the store could not keep them.";
    describe_counter LOG_CONFLICTS = "tidings_cluster_conflicts_total",
        "Proposals that were judged again, since a record of another node came first.";
    describe_counter LOG_QUESTIONS = "tidings_cluster_questions_total",
        "Questions for the newest record, before changes are refused or found to alter nothing.";
    describe_counter LOG_REFUSED = "tidings_cluster_refused_total",
        "Changes refused because the shared log could not take them, or did not answer.";
    describe_counter NOT_LATEST = "tidings_cluster_not_latest_total",
        "Reads of the latest state that were refused, since this node could not tell that it has it.";
    describe_histogram BATCH = "tidings_store_batch_records", "Records of one batch of the store.";
}

label_table! {
    /// A limit of the bus. The label is the configuration key that sets it.
    Limit {
        InFlight = "bus.in_flight_max",
        Resources = "bus.resources_max",
        ListItems = "bus.list_items_max",
        BodyBytes = "bus.body_bytes_max",
        Batch = "http.batch_max",
        Bytes = "bus.bytes_max",
        Removed = "bus.removed_max",
        ChangeLog = "store.change_log_max",
        SlicedChanges = "changes told in slices",
        Sessions = "session.max",
        Subscriptions = "session.subscriptions_max",
        PendingSubscriptions = "session.pending_subscriptions",
        Allowance = "quota.subscriptions_max",
        Idle = "session.idle_timeout",
        Stall = "session.stall_timeout",
        Age = "session.age_max",
    }
}

/// The metrics of the subscribers that share a protocol and a transport.
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
        write!(f, "TransportLabels({} {})", self.protocol, self.transport)
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

/// The time elapsed since an instant.
struct Since(Instant);

impl IntoF64 for Since {
    // Converted only by a recorder that keeps the sample, so without one the clock is not read.
    fn into_f64(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// The metrics of one bus.
pub(crate) struct Metrics {
    pub(crate) changes: Counter,
    /// Changes of lists, exported together with `changes`.
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
    pub(crate) withheld: Counter,
    pub(crate) list_hashes_computed: Counter,
    pub(crate) audiences_uncounted: Counter,
    pub(crate) subscriptions_denied: Counter,
    pub(crate) sessions_opened: Counter,
    sessions_ended: [ExportedCounter; EndReason::ALL.len()],
    pub(crate) mailbox_refused: Counter,
    limits: [ExportedCounter; Limit::KEYS.len()],
    pub(crate) subscriptions: StripedGauge,
    pub(crate) pending: StripedGauge,
    in_flight: SharedGauge,
    stalled: SharedGauge,
    /// The number of stalled subscribers of each shard.
    stalled_by_shard: Box<[AtomicU64]>,
    items: [SharedGauge; 4],
    oldest: Gauge,
    /// The age of the oldest pending entry of each shard, in milliseconds.
    oldest_by_shard: Box<[AtomicU64]>,
    fan_out: Histogram,
    pub(crate) admission_wait: Histogram,
    store_up: SharedGauge,
    pub(crate) store_failures: Counter,
    store_refused: Counter,
    pub(crate) log_conflicts: Counter,
    pub(crate) log_questions: Counter,
    pub(crate) not_latest: Counter,
    log_refused: Counter,
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
    /// Registers the metrics with the recorder that is installed now.
    pub(crate) fn register(shards: usize) -> Arc<Metrics> {
        describe();
        // All counters start at 0, because one that appears with its first event hides that event from
        // `rate()`.
        let metrics = Metrics {
            changes: Counter::new(counter!(CHANGES, "outcome" => "changed")),
            changes_of_lists: Counter::new(counter!(CHANGES, "outcome" => "changed")),
            unchanged: Counter::new(counter!(CHANGES, "outcome" => "unchanged")),
            refused: Counter::new(counter!(CHANGES, "outcome" => "refused")),
            updated: Counter::new(counter!(NOTICES, "kind" => "updated")),
            removed: Counter::new(counter!(NOTICES, "kind" => "removed")),
            list_changes: ["resources_list", "tools_list", "prompts_list"]
                .map(|kind| Counter::new(counter!(NOTICES, "kind" => kind))),
            notified: StripedCounter::new(shards, counter!(NOTIFIED)),
            conflated: StripedCounter::new(shards, counter!(CONFLATED)),
            lists_due: StripedCounter::new(shards, counter!(LISTS_DUE)),
            lists_known: StripedCounter::new(shards, counter!(LISTS_SUPPRESSED, "rule" => "known")),
            lists_unasked: StripedCounter::new(shards, counter!(LISTS_SUPPRESSED, "rule" => "not_asked")),
            withheld: Counter::new(counter!(WITHHELD)),
            list_hashes_computed: Counter::new(counter!(LIST_HASHES)),
            audiences_uncounted: Counter::new(counter!(AUDIENCES)),
            subscriptions_denied: Counter::new(counter!(DENIED)),
            sessions_opened: Counter::new(counter!(OPENED)),
            sessions_ended: EndReason::ALL.map(|reason| counter!(ENDED, "reason" => reason.name())),
            mailbox_refused: Counter::new(counter!(MAILBOX)),
            limits: Limit::KEYS.map(|key| counter!(LIMITS, "limit" => key)),
            subscriptions: StripedGauge::new(shards, gauge!(SUBSCRIPTIONS)),
            pending: StripedGauge::new(shards, gauge!(PENDING)),
            in_flight: SharedGauge::new(gauge!(IN_FLIGHT)),
            stalled: SharedGauge::new(gauge!(STALLED)),
            stalled_by_shard: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            items: ["resource", "template", "tool", "prompt"]
                .map(|kind| SharedGauge::new(gauge!(ITEMS, "kind" => kind))),
            oldest: gauge!(OLDEST),
            oldest_by_shard: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            fan_out: histogram!(FAN_OUT),
            admission_wait: histogram!(ADMISSION),
            store_up: SharedGauge::new(gauge!(STORE_UP)),
            store_failures: Counter::new(counter!(STORE_FAILURES)),
            store_refused: Counter::new(counter!(STORE_REFUSED)),
            log_conflicts: Counter::new(counter!(LOG_CONFLICTS)),
            log_questions: Counter::new(counter!(LOG_QUESTIONS)),
            not_latest: Counter::new(counter!(NOT_LATEST)),
            log_refused: Counter::new(counter!(LOG_REFUSED)),
            store_seconds: histogram!(STORE),
            store_records: histogram!(BATCH),
            transports: Mutex::default(),
        };
        // Until a store says otherwise.
        metrics.set_store_up(true);
        Arc::new(metrics)
    }

    /// Returns the metrics of the subscribers with this protocol and transport.
    pub(crate) fn labels(&self, protocol: &'static str, transport: &'static str) -> Arc<TransportLabels> {
        let mut transports = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        // Never removed: the pairs are literals of the program, so there are few.
        let labels = transports.entry((protocol, transport)).or_insert_with(|| {
            let shards = self.oldest_by_shard.len();
            Arc::new(TransportLabels::new(shards, protocol, transport))
        });
        labels.clone()
    }

    /// Counts a change that was made, or one that altered nothing.
    pub(crate) fn count_change(&self, changed: bool) {
        match changed {
            true => self.changes.add(1),
            false => self.unchanged.add(1),
        }
    }

    /// Counts a refused change, and the limit that refused it, if any.
    pub(crate) fn count_refusal(&self, error: &PublishError) {
        self.refused.add(1);
        match error {
            PublishError::TooMany {
                what: "resources", ..
            } => self.count_limit(Limit::Resources),
            PublishError::TooMany { .. } => self.count_limit(Limit::ListItems),
            PublishError::BodyTooLarge { .. } => self.count_limit(Limit::BodyBytes),
            PublishError::BatchTooLarge { .. } => self.count_limit(Limit::Batch),
            PublishError::BytesFull { .. } => self.count_limit(Limit::Bytes),
            PublishError::StoreUnavailable { .. } => self.store_refused.add(1),
            PublishError::LogUnavailable { .. } => self.log_refused.add(1),
            _ => {}
        }
    }

    /// Counts that `limit` was reached.
    pub(crate) fn count_limit(&self, limit: Limit) {
        self.limit_counter(limit).increment(1);
    }

    pub(crate) fn limit_counter(&self, limit: Limit) -> &ExportedCounter {
        &self.limits[limit as usize]
    }

    /// Counts a new hash of a list.
    pub(crate) fn count_list_change(&self, kind: ListKind) {
        self.list_changes[kind.index()].add(1);
    }

    /// Counts the end of a session or stream, and the limit that ended it, if any.
    pub(crate) fn count_end(&self, reason: EndReason) {
        match reason {
            EndReason::Idle => self.count_limit(Limit::Idle),
            EndReason::Stalled => self.count_limit(Limit::Stall),
            EndReason::Expired => self.count_limit(Limit::Age),
            _ => {}
        }
        self.sessions_ended[reason as usize].increment(1);
    }

    /// Sets the numbers of registered resources, templates, tools and prompts.
    pub(crate) fn set_registered(&self, counts: [usize; 4]) {
        for (item, count) in std::iter::zip(&self.items, counts) {
            item.set(count as i64);
        }
    }

    /// Sets whether the store keeps every change.
    pub(crate) fn set_store_up(&self, up: bool) {
        self.store_up.set(i64::from(up));
    }

    /// Sets the number of stalled subscribers of a shard.
    pub(crate) fn set_stalled(&self, shard: usize, count: usize) {
        // Kept by shard, because each shard knows only its own subscribers; `export` adds them up.
        if let Some(stalled) = self.stalled_by_shard.get(shard) {
            stalled.store(count as u64, Ordering::Relaxed);
        }
    }

    /// Sets the age of the oldest pending entry of a shard.
    pub(crate) fn set_oldest(&self, shard: usize, age: Duration) {
        if let Some(oldest) = self.oldest_by_shard.get(shard) {
            oldest.store(age.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Records that every outbox is marked for a change that was admitted at `since`.
    pub(crate) fn record_fan_out(&self, since: Instant) {
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

    /// Hands the striped counters and the other numbers that are kept here to the recorder.
    pub(crate) fn export(&self, in_flight: usize) {
        // Held to the end, so that no two exports hand over the same difference.
        let transports = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        for labels in transports.values() {
            labels.delivered.export();
            labels.lists_sent.export();
        }
        for counter in [
            &self.notified,
            &self.conflated,
            &self.lists_due,
            &self.lists_known,
            &self.lists_unasked,
        ] {
            counter.export();
        }
        self.subscriptions.export();
        self.pending.export();
        self.in_flight.set(in_flight as i64);
        let stalled = self.stalled_by_shard.iter();
        let stalled: u64 = stalled.map(|count| count.load(Ordering::Relaxed)).sum();
        self.stalled.set(stalled as i64);
        let ages = self.oldest_by_shard.iter();
        let oldest = ages.map(|age| age.load(Ordering::Relaxed)).max();
        self.oldest.set(oldest.unwrap_or(0) as f64 / 1_000.0);
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

    fn gauges(recorder: &DebuggingRecorder) -> [f64; 2] {
        let all = values(recorder);
        [PENDING, IN_FLIGHT].map(|name| match &all[name] {
            DebugValue::Gauge(value) => value.into_inner(),
            other => panic!("{name} is {other:?}"),
        })
    }

    #[test]
    fn gauges_of_two_buses_add_up() {
        let recorder = DebuggingRecorder::new();
        let [one, two] = metrics::with_local_recorder(&recorder, || [2, 2].map(Metrics::register));
        one.pending.change(0, 5);
        two.pending.change(0, 3);
        two.pending.change(3, 2);
        for bus in [&one, &two, &two] {
            bus.export(4);
        }
        assert_eq!(gauges(&recorder), [7.0, 8.0]);
        // A snapshot resets the values, so the next one shows the difference.
        drop(one);
        assert_eq!(gauges(&recorder), [-5.0, -4.0]);
    }

    #[test]
    fn repeated_export_counts_once() {
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
    fn refusals_count_their_limits() {
        let recorder = DebuggingRecorder::new();
        let bus = metrics::with_local_recorder(&recorder, || Metrics::register(1));
        bus.count_refusal(&PublishError::TooMany {
            what: "resources",
            max: 1,
        });
        bus.count_refusal(&PublishError::TooMany {
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
    fn end_reasons_index_their_counters() {
        for (place, reason) in EndReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }
}
