//! The metrics of a gateway: of the server behind it, and of the connections to it.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

metric_table! {
    describe_gauge UP = "tidings_upstream_up", "1 while the gateway has a connection to the server behind it, else 0.";
    describe_counter RESTARTS = "tidings_upstream_restarts_total",
        "Connections to the server behind the gateway that ended and were made anew.";
    describe_counter CALLS = "tidings_upstream_calls_total",
        "Requests that the gateway sent on, by result: answered, refused by the server, or failed without an answer.";
    describe_histogram CALL_TIME = "tidings_upstream_call_seconds",
        "Time from a request that the gateway sent on until its answer.";
    describe_gauge IN_FLIGHT = "tidings_upstream_inflight", "Requests under way to the server behind the gateway.";
    describe_gauge SUBSCRIPTIONS = "tidings_upstream_subscriptions",
        "Resources of which the server behind the gateway is asked to announce changes.";
    describe_counter LOOKS = "tidings_upstream_looks_total",
        "Reads and lists that the gateway made by itself, by their reason: a notice, the interval or a new connection.";
    describe_gauge SPEAKERS = "tidings_upstream_speakers",
        "Connections to the server behind the gateway that are a single client's.";
    describe_gauge VIEWS = "tidings_upstream_views",
        "Connections to the server behind the gateway for the lists of clients with the same capabilities.";
    describe_gauge PARKED = "tidings_upstream_parked_calls", "Calls that wait for input of their client.";
    describe_counter REFUSED = "tidings_upstream_refused_requests_total",
        "Requests of the server behind the gateway that no client could be asked.";
    describe_counter DROPPED = "tidings_upstream_notices_dropped_total",
        "Progress and log messages of the server behind the gateway that belonged to no request, or came too fast.";
    describe_counter MESSAGES_DROPPED = "tidings_upstream_messages_dropped_total",
        "Messages of the server behind the gateway that were of no use, by reason: malformed, too long, or an answer to no request.";
    describe_counter ERROR_LINES_DROPPED = "tidings_upstream_error_lines_dropped_total",
        "Lines of the error output of the server behind the gateway that came too fast to be copied.";
}

/// The metrics of a gateway.
pub(crate) struct UpstreamMetrics {
    pub(crate) up: Gauge,
    pub(crate) restarts: Counter,
    pub(crate) answered: Counter,
    pub(crate) refused: Counter,
    pub(crate) failed: Counter,
    pub(crate) call_time: Histogram,
    pub(crate) in_flight: Gauge,
    pub(crate) subscriptions: Gauge,
    pub(crate) looks_noticed: Counter,
    pub(crate) looks_timed: Counter,
    pub(crate) looks_connected: Counter,
    pub(crate) speakers: Gauge,
    pub(crate) views: Gauge,
    pub(crate) parked: Gauge,
    pub(crate) refused_requests: Counter,
    pub(crate) notices_dropped: Counter,
    pub(crate) malformed: Counter,
    pub(crate) too_long: Counter,
    pub(crate) unknown_ids: Counter,
    pub(crate) error_lines_dropped: Counter,
}

impl UpstreamMetrics {
    /// Registers the metrics of the server with this name, which the operator gave it.
    pub(crate) fn new(upstream: &str) -> UpstreamMetrics {
        describe();
        let upstream: Arc<str> = upstream.into();
        UpstreamMetrics {
            up: gauge!(UP, "upstream" => upstream.clone()),
            restarts: counter!(RESTARTS, "upstream" => upstream.clone()),
            answered: counter!(CALLS, "upstream" => upstream.clone(), "result" => "answered"),
            refused: counter!(CALLS, "upstream" => upstream.clone(), "result" => "refused"),
            failed: counter!(CALLS, "upstream" => upstream.clone(), "result" => "failed"),
            call_time: histogram!(CALL_TIME, "upstream" => upstream.clone()),
            in_flight: gauge!(IN_FLIGHT, "upstream" => upstream.clone()),
            subscriptions: gauge!(SUBSCRIPTIONS, "upstream" => upstream.clone()),
            looks_noticed: counter!(LOOKS, "upstream" => upstream.clone(), "reason" => "notice"),
            looks_timed: counter!(LOOKS, "upstream" => upstream.clone(), "reason" => "interval"),
            looks_connected: counter!(LOOKS, "upstream" => upstream.clone(), "reason" => "connection"),
            speakers: gauge!(SPEAKERS, "upstream" => upstream.clone()),
            views: gauge!(VIEWS, "upstream" => upstream.clone()),
            parked: gauge!(PARKED, "upstream" => upstream.clone()),
            refused_requests: counter!(REFUSED, "upstream" => upstream.clone()),
            notices_dropped: counter!(DROPPED, "upstream" => upstream.clone()),
            malformed: counter!(MESSAGES_DROPPED, "upstream" => upstream.clone(), "reason" => "malformed"),
            too_long: counter!(MESSAGES_DROPPED, "upstream" => upstream.clone(), "reason" => "too_long"),
            unknown_ids: counter!(MESSAGES_DROPPED, "upstream" => upstream.clone(), "reason" => "unknown_id"),
            error_lines_dropped: counter!(ERROR_LINES_DROPPED, "upstream" => upstream),
        }
    }
}

/// Counts something in a gauge for as long as it is there.
pub(crate) struct GaugePlace(Gauge);

impl GaugePlace {
    /// Counts one more.
    pub(crate) fn new(gauge: &Gauge) -> GaugePlace {
        gauge.increment(1);
        GaugePlace(gauge.clone())
    }
}

impl Drop for GaugePlace {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
