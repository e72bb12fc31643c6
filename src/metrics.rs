//! The metrics of the service and of its protocols: their names, their help texts and the handles that count.
//!
//! No label carries a URI, a session id or a tool name, so the number of series is bounded. `docs/metrics.md`
//! lists every metric; tests compare that page with the exported text.

#[cfg(feature = "prometheus")]
mod exporter;
#[cfg(feature = "prometheus")]
mod process;
#[cfg(feature = "service")]
mod metric_line;
#[cfg(feature = "service")]
mod http;
#[cfg(feature = "service")]
mod transport;

use std::sync::Arc;
use std::time::Instant;

use metrics::{Counter, Histogram, counter, gauge, histogram};

pub(crate) use audit::AuditMetrics;
#[cfg(feature = "nats")]
pub(crate) use cluster::{ClusterMetrics, ClusterNodeMetrics, JanitorMetrics};
#[cfg(feature = "service")]
pub(crate) use delivery_turn::DeliveryTurn;
#[cfg(feature = "service")]
pub(crate) use exporter::Exporter;
#[cfg(feature = "service")]
pub(crate) use http::{HttpMetrics, OpenConnection};
#[cfg(feature = "service")]
pub(crate) use metric_line::MetricLine;
pub(crate) use moved_sessions::MovedSessionMetrics;
#[cfg(feature = "service")]
pub(crate) use transport::{EventsMetrics, NoticeBodyMetrics, TlsMetrics, WsMetrics};
#[cfg(feature = "service")]
pub(crate) use upstream::{GaugePlace, UpstreamMetrics};

use crate::OutboxEntry;

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

#[cfg(feature = "nats")]
mod cluster;
mod audit;
#[cfg_attr(
    not(feature = "service"),
    allow(dead_code, reason = "a service alone carries many streams on one connection")
)]
mod delivery_turn;
mod moved_sessions;
#[cfg(feature = "service")]
mod upstream;

metric_table! {
    describe_histogram DELIVERY = "tidings_delivery_seconds",
        "Time from the admission of a change until a frame with it was handed to the connection; one sample per frame, or per turn of an HTTP/2 connection.";
    describe_counter TOOL_CALLS = "tidings_tool_calls_total", "Calls of tools, by outcome.";
    describe_counter REQUESTS = "tidings_http_requests_total",
        "HTTP requests answered, by route and class of the status.";
    describe_gauge CONNECTIONS = "tidings_http_connections", "Open HTTP connections.";
    describe_gauge HTTP2_CONNECTIONS = "tidings_http2_connections", "Those of them that speak HTTP/2.";
    describe_gauge HTTP2_STREAMS = "tidings_http2_streams",
        "Requests of HTTP/2 that are being answered, with the open streams and WebSockets.";
    describe_counter HTTP2_REQUESTS = "tidings_http2_requests_total", "Requests that came over HTTP/2.";
    describe_counter ACCEPT_ERRORS = "tidings_http_accept_errors_total",
        "Failed attempts to accept a connection, most often for lack of file descriptors.";
    describe_counter SOURCE_ERRORS = "tidings_source_errors_total",
        "Failures of sources, counted once per episode.";
    describe_counter LIMITS = "tidings_limit_reached_total",
        "Times that a limit was reached, by the configuration key that sets it.";
    describe_counter TLS_HANDSHAKES = "tidings_tls_handshakes_total", "TLS handshakes, by outcome.";
    describe_counter TLS_RELOADS = "tidings_tls_reloads_total",
        "Times that the files of TLS were read again, by outcome.";
    describe_gauge TLS_EXPIRY = "tidings_tls_certificate_expiry_seconds",
        "End of the validity of the listener's certificate, since 1970-01-01 UTC; 0 without TLS.";
    describe_gauge TLS_LIST_EXPIRY = "tidings_tls_revocation_list_expiry_seconds",
        "First end of a revocation list of clients' certificates, since 1970-01-01 UTC; 0 without lists.";
    describe_counter AUTH = "tidings_auth_total", "Requests that came to the border, by what their credentials were.";
    describe_counter INTROSPECTIONS = "tidings_introspections_total",
        "Requests to an authorization server for the state of an opaque token, by outcome.";
    describe_gauge BUILD = "tidings_build_info", "1, with the version as label.";
    describe_gauge EVENTS_STREAMS = "tidings_events_streams", "Open streams of /v1/events.";
    describe_counter EVENTS_WRITTEN = "tidings_events_written_total", "Events written to streams of /v1/events.";
    describe_counter EVENTS_GAPS = "tidings_events_gaps_total",
        "Gaps reported to streams that were further behind than the history reaches.";
    describe_counter EVENTS_LOST = "tidings_events_lost_total",
        "Events missing from the history itself, which is reported to every stream.";
    describe_counter EVENTS_REPLACED = "tidings_events_replaced_total",
        "Older events that newer ones of their resource replaced in the log before this node heard them.";
    describe_counter EVENTS_RESUMED = "tidings_events_resumed_total",
        "Streams that came back, by whether the history still held everything they missed.";
    describe_counter NOTICE_BODIES = "tidings_notice_bodies_total",
        "Notices for clients that ask for the content, by what became of it.";
    describe_gauge WS_CONNECTIONS = "tidings_ws_connections", "Open connections of /v1/ws.";
    describe_counter WS_WRITTEN = "tidings_ws_written_total", "Messages written to connections of /v1/ws.";
    describe_counter WS_REQUESTS = "tidings_ws_requests_total", "Requests read from connections of /v1/ws.";
    describe_counter WS_CLOSED = "tidings_ws_closed_total", "Connections closed by the service, by code.";
}

/// Declares an enum that counters are labelled with, one row per variant.
macro_rules! label_table {
    ($(#[$attribute:meta])* $name:ident { $($variant:ident = $label:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($variant,)* }

        impl $name {
            const ALL: &[$name] = &[$($name::$variant,)*];

            pub(crate) const fn label(self) -> &'static str {
                match self { $($name::$variant => $label,)* }
            }
        }
    };
}

label_table! {
    /// A limit outside the bus. The label is the configuration key that sets it, or a description where no
    /// key does.
    Limit {
        HttpBodyBytes = "http.body_bytes_max",
        BodyTimeout = "http.body_timeout",
        UnreadBytes = "http.unread_bytes_max",
        UnreadTimeout = "http.unread_timeout",
        BodiesBytes = "http.bodies_bytes_max",
        NoticeBodyBytes = "http.notice_body_max",
        Connections = "http.connections_max",
        HeaderTimeout = "http.header_timeout",
        Handshakes = "TLS handshakes under way",
        WriteTimeout = "http.write_timeout",
        Http2Streams = "http.h2_streams_max",
        Http2Requests = "http.h2_requests_max",
        PingTimeout = "http.h2_ping_timeout",
        Http2Flood = "HTTP/2 flood",
        Http2Frames = "HTTP/2 frames without requests",
        Http2Unserved = "HTTP/2 requests that cannot be served",
        Streams = "session.streams_max",
        StreamsOfSession = "streams of one session",
        SessionsOfPeer = "session.per_peer_max",
        QuotaSessions = "quota.sessions_max",
        QuotaRequests = "quota.requests_per_second",
        QuotaBytes = "quota.bytes_max",
        QuotaToolPlaces = "quota.tool_places",
        Batch = "messages of one batch",
        OwnMessages = "own messages of a wrapped server",
        PollRate = "gateway.upstream.poll_rate",
        Views = "lists of sets of capabilities",
        SessionMessages = "waiting messages of a wrapped session",
        BatchLines = "http.batch_max",
        SubscriptionsOfStream = "session.subscriptions_max",
        BodyBytes = "bus.body_bytes_max",
        Wait = "mcp.wait_max",
        EtagItems = "mcp.items_max",
        HandlerTime = "mcp.handler_timeout",
        Debounce = "workspace.debounce_max",
        FileBytes = "workspace.file_bytes_max",
        Files = "workspace.files_max",
        CollectionBytes = "workspace.collection_bytes_max",
        CollectionItems = "workspace.collection_items_max",
        ToolTimeout = "tools.timeout",
        ToolCpu = "tools.cpu_max",
        ToolOutput = "tools.output_bytes_max",
        ToolConcurrency = "tools.concurrency_max",
        RegisterTimeout = "register.timeout",
        Drain = "shutdown.drain_timeout",
        EventStreams = "events.streams_max",
        WsConnections = "ws.connections_max",
        WsMessageBytes = "ws.message_bytes_max",
        PongTimeout = "ws.pong_timeout",
        AuthFailures = "auth.failures_max",
        LoginFailures = "wrong logins of one address",
        Logins = "logins at a time",
        Introspected = "tokens that are looked up",
        SessionRecord = "subscriptions in the record of a session",
        SessionRecordsDue = "records of sessions to write",
    }
}

label_table! {
    /// A source of changes.
    Source {
        Workspace = "workspace",
        Register = "register",
        Tools = "tools",
        Collection = "collection",
        Http = "http",
    }
}

label_table! {
    /// The content of a notice for a client that asks for it: sent, or the reason for which it was left out.
    NoticeBody {
        Sent = "sent",
        TooLarge = "too_large",
        Superseded = "superseded",
        NotHeld = "not_held",
        NotReadable = "not_readable",
        Busy = "busy",
    }
}

label_table! {
    /// The way in which a TLS handshake failed.
    HandshakeFailure {
        NotTls = "not_tls",
        Late = "late",
        Displaced = "displaced",
        Certificate = "certificate",
        Refused = "refused",
        Gone = "gone",
    }
}

label_table! {
    /// The result of the look at a request's credentials.
    AuthResult {
        Identified = "identified",
        Anonymous = "anonymous",
        Missing = "missing",
        Invalid = "invalid",
        Malformed = "malformed",
        TooMany = "too_many",
        Unavailable = "unavailable",
    }
}

label_table! {
    /// The outcome of a request for the state of a token.
    IntrospectionOutcome {
        Active = "active",
        Inactive = "inactive",
        Unfit = "unfit",
        Unavailable = "unavailable",
    }
}

label_table! {
    /// The class of a request's path.
    Path {
        Mcp = "mcp",
        Api = "api",
        Health = "health",
        Metrics = "metrics",
        Page = "page",
        Other = "other",
    }
}

/// Counts that `limit` was reached.
pub(crate) fn limit_reached(limit: Limit) {
    // Looked up at each call: limits are reached rarely, so a handle per limit would only take memory.
    counter!(LIMITS, "limit" => limit.label()).increment(1);
}

/// Counts a failure of `source`; the caller reports it and counts each lasting failure once.
pub(crate) fn source_failed(source: Source) {
    counter!(SOURCE_ERRORS, "source" => source.label()).increment(1);
}

/// Counts a request for the state of a token. Rare, as answers are remembered.
pub(crate) fn introspected(outcome: IntrospectionOutcome) {
    counter!(INTROSPECTIONS, "outcome" => outcome.label()).increment(1);
}

/// Describes every metric of the service and exports counters of rare events at 0.
pub(crate) fn register() {
    describe();
    // A counter that first appears with its first event hides that event from `rate()`.
    for limit in Limit::ALL {
        counter!(LIMITS, "limit" => limit.label()).increment(0);
    }
    for source in Source::ALL {
        counter!(SOURCE_ERRORS, "source" => source.label()).increment(0);
    }
    for outcome in IntrospectionOutcome::ALL {
        counter!(INTROSPECTIONS, "outcome" => outcome.label()).increment(0);
    }
    drop(AuthMetrics::new());
    drop(AuditMetrics::new());
    #[cfg(feature = "nats")]
    drop(MovedSessionMetrics::new());
    #[cfg(feature = "service")]
    transport::register();
    #[cfg(feature = "nats")]
    cluster::register();
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// The metrics of the MCP clients of one transport. Clones share their handles.
#[derive(Debug, Clone)]
pub(crate) struct McpMetrics {
    handles: Arc<McpHandles>,
}

#[derive(Debug)]
struct McpHandles {
    delivery: Histogram,
    tool_ok: Counter,
    tool_error: Counter,
    tool_unknown: Counter,
    tool_cancelled: Counter,
}

impl McpMetrics {
    /// Creates the handles under the label `transport`.
    pub(crate) fn new(transport: &'static str) -> McpMetrics {
        McpMetrics {
            handles: Arc::new(McpHandles {
                delivery: histogram!(DELIVERY, "transport" => transport),
                tool_ok: counter!(TOOL_CALLS, "outcome" => "ok"),
                tool_error: counter!(TOOL_CALLS, "outcome" => "error"),
                tool_unknown: counter!(TOOL_CALLS, "outcome" => "unknown"),
                tool_cancelled: counter!(TOOL_CALLS, "outcome" => "cancelled"),
            }),
        }
    }

    /// Records the delivery of `entries`, which were written as one frame. The oldest one gives the sample.
    pub(crate) fn wrote(&self, entries: &[OutboxEntry]) {
        if let Some(at) = entries.iter().filter_map(changed_at).min() {
            delivery_turn::delivered(&self.handles, at);
        }
    }

    /// Counts a call of a tool that does not exist.
    pub(crate) fn called_unknown_tool(&self) {
        self.handles.tool_unknown.increment(1);
    }

    /// Begins a tool call, which counts as cancelled unless [`ToolCall::ended`] is called.
    pub(crate) fn call_begins(&self) -> ToolCall<'_> {
        ToolCall {
            handles: &self.handles,
            ended: false,
        }
    }
}

fn changed_at(entry: &OutboxEntry) -> Option<Instant> {
    match entry {
        OutboxEntry::Updated(notice) => Some(notice.at),
        OutboxEntry::ListChanged(_) => None,
    }
}

/// A tool call in progress.
#[derive(Debug)]
pub(crate) struct ToolCall<'m> {
    handles: &'m McpHandles,
    ended: bool,
}

impl ToolCall<'_> {
    /// Counts the call as answered, with a result or with an error.
    pub(crate) fn ended(mut self, success: bool) {
        self.ended = true;
        let outcome = if success {
            &self.handles.tool_ok
        } else {
            &self.handles.tool_error
        };
        outcome.increment(1);
    }
}

impl Drop for ToolCall<'_> {
    fn drop(&mut self) {
        // The future of the call was dropped: the client cancelled it or left.
        if !self.ended {
            self.handles.tool_cancelled.increment(1);
        }
    }
}

/// The metrics of a border.
pub(crate) struct AuthMetrics([Counter; AuthResult::ALL.len()]);

impl AuthMetrics {
    pub(crate) fn new() -> AuthMetrics {
        AuthMetrics(std::array::from_fn(|at| {
            let counter = counter!(AUTH, "result" => AuthResult::ALL[at].label());
            counter.increment(0);
            counter
        }))
    }

    /// Counts a request.
    pub(crate) fn count(&self, result: AuthResult) {
        self.0[result as usize].increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    /// Returns the counters above 0 as `NAME LABELS VALUE`, sorted.
    pub(super) fn counted(recorder: &DebuggingRecorder) -> Vec<String> {
        let mut shown = Vec::new();
        for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
            if let DebugValue::Counter(n @ 1..) = value {
                let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
                shown.push(format!("{} {} {n}", key.key().name(), labels.join(" ")));
            }
        }
        shown.sort();
        shown
    }

    #[test]
    fn limits_and_sources_count_under_their_label() {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            register();
            for limit in Limit::ALL {
                limit_reached(*limit);
            }
            for source in Source::ALL {
                source_failed(*source);
            }
        });
        let shown = counted(&recorder);
        assert_eq!(shown.len(), Limit::ALL.len() + Source::ALL.len(), "{shown:#?}");
        for limit in Limit::ALL {
            let label = limit.label();
            assert!(shown.contains(&format!("{LIMITS} {label} 1")), "{label}");
        }
    }

    #[test]
    fn dropped_tool_call_counts_as_cancelled() {
        let recorder = DebuggingRecorder::new();
        let metrics = metrics::with_local_recorder(&recorder, || McpMetrics::new("test"));
        metrics.call_begins().ended(true);
        metrics.call_begins().ended(false);
        metrics.called_unknown_tool();
        drop(metrics.call_begins());
        let outcomes =
            ["cancelled", "error", "ok", "unknown"].map(|outcome| format!("{TOOL_CALLS} {outcome} 1"));
        assert_eq!(counted(&recorder), outcomes);
    }
}
