//! Every metric of the service and of its protocols: its name, its meaning, and the only use of the metrics macros
//! outside the bus.
//!
//! Owns: the names, and handles for what is counted often. What is rare (a limit that is met, a source that fails) is
//! looked up when it happens. Never: a label with a URI, a session's id or a tool's name. `docs/metrics.md` lists
//! them all, which tests hold against what is exported.

#[cfg(feature = "prometheus")]
mod exporter;
#[cfg(feature = "prometheus")]
mod process;
#[cfg(feature = "service")]
mod transport;

use std::sync::Arc;
use std::time::Instant;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

#[cfg(feature = "service")]
pub(crate) use exporter::Exporter;
#[cfg(feature = "service")]
pub(crate) use transport::{EventsMetrics, WsMetrics};

use crate::OutboxEntry;

const DELIVERY: &str = "tidings_delivery_seconds";
const TOOL_CALLS: &str = "tidings_tool_calls_total";
const REQUESTS: &str = "tidings_http_requests_total";
const CONNECTIONS: &str = "tidings_http_connections";
const SOURCE_ERRORS: &str = "tidings_source_errors_total";
const LIMITS: &str = "tidings_limit_reached_total";
const BUILD: &str = "tidings_build_info";

/// A bound outside the bus, by the configuration key that sets it, or by name where no key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    HttpBodyBytes,
    Connections,
    HeaderTimeout,
    WriteTimeout,
    Streams,
    StreamsOfSession,
    SessionsOfPeer,
    Batch,
    SubscriptionsOfStream,
    BodyBytes,
    Wait,
    EtagItems,
    Debounce,
    FileBytes,
    Files,
    CollectionBytes,
    CollectionItems,
    ToolTimeout,
    ToolOutput,
    ToolConcurrency,
    RegisterTimeout,
    Drain,
    EventStreams,
    WsConnections,
    WsMessageBytes,
    PongTimeout,
}

/// Each limit with its label.
const LIMIT_KEYS: [(Limit, &str); 26] = [
    (Limit::HttpBodyBytes, "http.body_bytes_max"),
    (Limit::Connections, "http.connections_max"),
    (Limit::HeaderTimeout, "http.header_timeout"),
    (Limit::WriteTimeout, "http.write_timeout"),
    (Limit::Streams, "session.streams_max"),
    (Limit::StreamsOfSession, "streams of one session"),
    (Limit::SessionsOfPeer, "session.per_peer_max"),
    (Limit::Batch, "messages of one batch"),
    (Limit::SubscriptionsOfStream, "session.subscriptions_max"),
    (Limit::BodyBytes, "bus.body_bytes_max"),
    (Limit::Wait, "mcp.wait_max"),
    (Limit::EtagItems, "mcp.items_max"),
    (Limit::Debounce, "workspace.debounce_max"),
    (Limit::FileBytes, "workspace.file_bytes_max"),
    (Limit::Files, "workspace.files_max"),
    (Limit::CollectionBytes, "workspace.collection_bytes_max"),
    (Limit::CollectionItems, "workspace.collection_items_max"),
    (Limit::ToolTimeout, "tools.timeout"),
    (Limit::ToolOutput, "tools.output_bytes_max"),
    (Limit::ToolConcurrency, "tools.concurrency_max"),
    (Limit::RegisterTimeout, "register.timeout"),
    (Limit::Drain, "shutdown.drain_timeout"),
    (Limit::EventStreams, "events.streams_max"),
    (Limit::WsConnections, "ws.connections_max"),
    (Limit::WsMessageBytes, "ws.message_bytes_max"),
    (Limit::PongTimeout, "ws.pong_timeout"),
];

/// Where changes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Workspace,
    Register,
    Tools,
    Collection,
    Http,
}

/// Each source with its label.
const SOURCES: [(Source, &str); 5] = [
    (Source::Workspace, "workspace"),
    (Source::Register, "register"),
    (Source::Tools, "tools"),
    (Source::Collection, "collection"),
    (Source::Http, "http"),
];

/// A bound was met.
pub(crate) fn limit_reached(limit: Limit) {
    let row = LIMIT_KEYS.iter().find(|(known, _)| *known == limit);
    let label = row.map_or("", |(_, label)| label);
    counter!(LIMITS, "limit" => label).increment(1);
}

/// A source could not give what it should, and somebody was told so.
pub(crate) fn source_failed(source: Source) {
    let row = SOURCES.iter().find(|(known, _)| *known == source);
    let label = row.map_or("", |(_, label)| label);
    counter!(SOURCE_ERRORS, "source" => label).increment(1);
}

/// Describes every metric of the service, and shows 0 for what may never happen.
pub(crate) fn register() {
    describe_histogram!(
        DELIVERY,
        "Time from the door until a frame with the change was handed to the connection; one sample per frame."
    );
    describe_counter!(TOOL_CALLS, "Calls of tools, by what became of them.");
    describe_counter!(
        REQUESTS,
        "HTTP requests answered, by route and class of the status."
    );
    describe_gauge!(CONNECTIONS, "Open HTTP connections.");
    describe_counter!(SOURCE_ERRORS, "Failures of sources, counted once per episode.");
    describe_gauge!(BUILD, "1, with the version as label.");
    for (_, label) in LIMIT_KEYS {
        counter!(LIMITS, "limit" => label).increment(0);
    }
    for (_, label) in SOURCES {
        counter!(SOURCE_ERRORS, "source" => label).increment(0);
    }
    #[cfg(feature = "service")]
    transport::register();
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// What is counted where clients of one transport are served.
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
    pub(crate) fn new(transport: &'static str) -> McpMetrics {
        let tool = |outcome: &'static str| counter!(TOOL_CALLS, "outcome" => outcome);
        let handles = McpHandles {
            delivery: histogram!(DELIVERY, "transport" => transport),
            tool_ok: tool("ok"),
            tool_error: tool("error"),
            tool_unknown: tool("unknown"),
            tool_cancelled: tool("cancelled"),
        };
        McpMetrics {
            handles: Arc::new(handles),
        }
    }

    /// These entries were written as one: the one that waited longest counts.
    pub(crate) fn wrote(&self, entries: &[OutboxEntry]) {
        let at = |entry: &OutboxEntry| match entry {
            OutboxEntry::Updated(notice) => Some(notice.at),
            OutboxEntry::ListChanged(_) => None,
        };
        if let Some(at) = entries.iter().filter_map(at).min() {
            self.handles.delivery.record(Instant::now() - at);
        }
    }

    pub(crate) fn called_unknown_tool(&self) {
        self.handles.tool_unknown.increment(1);
    }

    /// A call of a tool begins; it counts as cancelled unless its end is told.
    pub(crate) fn call_begins(&self) -> ToolCall<'_> {
        ToolCall {
            handles: &self.handles,
            ended: false,
        }
    }
}

/// A call of a tool that runs.
#[derive(Debug)]
pub(crate) struct ToolCall<'m> {
    handles: &'m McpHandles,
    ended: bool,
}

impl ToolCall<'_> {
    pub(crate) fn ended(mut self, well: bool) {
        self.ended = true;
        let outcome = if well {
            &self.handles.tool_ok
        } else {
            &self.handles.tool_error
        };
        outcome.increment(1);
    }
}

impl Drop for ToolCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.handles.tool_cancelled.increment(1);
        }
    }
}

const ROUTES: [&str; 5] = ["mcp", "api", "health", "metrics", "other"];
const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What a listener counts.
#[derive(Clone)]
pub(crate) struct HttpMetrics {
    requests: Arc<[[Counter; STATUSES.len()]; ROUTES.len()]>,
    connections: Gauge,
}

impl HttpMetrics {
    pub(crate) fn new() -> HttpMetrics {
        let request = |route: &'static str| {
            STATUSES.map(|status| counter!(REQUESTS, "route" => route, "status" => status))
        };
        HttpMetrics {
            requests: Arc::new(ROUTES.map(request)),
            connections: gauge!(CONNECTIONS),
        }
    }

    /// Counts a connection as open until what this answers is dropped.
    pub(crate) fn connected(&self) -> OpenConnection {
        self.connections.increment(1.0);
        OpenConnection(self.connections.clone())
    }

    /// A request for this path was answered with this status.
    pub(crate) fn answered(&self, path: Path, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, STATUSES.len()) - 1;
        self.requests[path as usize][class].increment(1);
    }
}

/// A connection that counts as open.
#[derive(Debug)]
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The class of a path, in the order of the labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    Mcp,
    Api,
    Health,
    Metrics,
    Other,
}

impl Path {
    pub(crate) fn of(path: &str) -> Path {
        match path {
            "/mcp" => Path::Mcp,
            "/healthz" | "/readyz" => Path::Health,
            "/metrics" => Path::Metrics,
            _ if path == "/v1" || path.starts_with("/v1/") => Path::Api,
            _ => Path::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    fn counted(recorder: &DebuggingRecorder) -> Vec<String> {
        let all = recorder.snapshotter().snapshot().into_vec();
        let shown = all.into_iter().filter_map(|(key, _, _, value)| {
            let DebugValue::Counter(n @ 1..) = value else {
                return None;
            };
            let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
            Some(format!("{} {} {n}", key.key().name(), labels.join(" ")))
        });
        let mut shown: Vec<_> = shown.collect();
        shown.sort();
        shown
    }

    #[test]
    fn each_limit_and_source_has_its_label() {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            register();
            for (limit, _) in LIMIT_KEYS {
                limit_reached(limit);
            }
            for (source, _) in SOURCES {
                source_failed(source);
            }
        });
        let shown = counted(&recorder);
        assert_eq!(shown.len(), LIMIT_KEYS.len() + SOURCES.len(), "{shown:#?}");
        for (_, label) in LIMIT_KEYS {
            assert!(shown.contains(&format!("{LIMITS} {label} 1")), "{label}");
        }
    }

    #[test]
    fn a_call_counts_once_and_as_cancelled_when_nobody_tells_its_end() {
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

    #[test]
    fn requests_are_counted_by_route_and_class() {
        let recorder = DebuggingRecorder::new();
        let http = metrics::with_local_recorder(&recorder, HttpMetrics::new);
        for (path, status) in [
            ("/mcp", 200),
            ("/mcp", 202),
            ("/v1", 404),
            ("/v1/resources", 304),
            ("/v1x", 404),
            ("/readyz", 503),
            ("/metrics", 200),
        ] {
            http.answered(Path::of(path), http::StatusCode::from_u16(status).unwrap());
        }
        let expected = [
            "api 3xx 1",
            "api 4xx 1",
            "health 5xx 1",
            "mcp 2xx 2",
            "metrics 2xx 1",
            "other 4xx 1",
        ];
        assert_eq!(
            counted(&recorder),
            expected.map(|row| format!("{REQUESTS} {row}"))
        );
    }
}
