//! What is counted of the transports beside MCP.
//!
//! Owns: their handles, made once per hub and per router. Never: a label with a URI or a session's id.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

const EVENTS_RESUMED: &str = "tidings_events_resumed_total";
const WS_CLOSED: &str = "tidings_ws_closed_total";

/// Every code that the service closes a WebSocket with.
const CLOSE_CODES: [(u16, &str); 7] = [
    (1001, "1001"),
    (1002, "1002"),
    (1003, "1003"),
    (1008, "1008"),
    (1009, "1009"),
    (1011, "1011"),
    (1013, "1013"),
];

/// Describes them, and shows 0 for what may never happen.
pub(super) fn register() {
    EventsMetrics::new();
    let ws = WsMetrics::new();
    for (code, _) in CLOSE_CODES {
        ws.count_closed(code, 0);
    }
    ws.connections.set(0.0);
}

/// What is counted of the streams of `GET /v1/events`.
#[derive(Debug, Clone)]
pub(crate) struct EventsMetrics {
    /// Streams that are open.
    pub(crate) streams: Gauge,
    /// Events written to streams.
    pub(crate) written: Counter,
    /// Gaps told to streams that fell off the history.
    pub(crate) gaps: Counter,
    /// Events that the hub itself was not handed.
    pub(crate) lost: Counter,
    complete: Counter,
    incomplete: Counter,
}

impl EventsMetrics {
    pub(crate) fn new() -> EventsMetrics {
        describe_gauge!("tidings_events_streams", "Open streams of /v1/events.");
        describe_counter!(
            "tidings_events_written_total",
            "Events written to streams of /v1/events."
        );
        describe_counter!(
            "tidings_events_gaps_total",
            "Gaps told to streams that were further behind than the history reaches."
        );
        describe_counter!(
            "tidings_events_lost_total",
            "Events missing from the history itself, which every stream is told."
        );
        describe_counter!(
            EVENTS_RESUMED,
            "Streams that came back, by whether everything they missed was there."
        );
        EventsMetrics {
            streams: gauge!("tidings_events_streams"),
            written: counter!("tidings_events_written_total"),
            gaps: counter!("tidings_events_gaps_total"),
            lost: counter!("tidings_events_lost_total"),
            complete: counter!(EVENTS_RESUMED, "complete" => "true"),
            incomplete: counter!(EVENTS_RESUMED, "complete" => "false"),
        }
    }

    /// A stream came back.
    pub(crate) fn resumed(&self, complete: bool) {
        let counter = if complete {
            &self.complete
        } else {
            &self.incomplete
        };
        counter.increment(1);
    }
}

/// What is counted of the connections of `GET /v1/ws`.
#[derive(Debug, Clone)]
pub(crate) struct WsMetrics {
    /// Connections that are open.
    pub(crate) connections: Gauge,
    /// Messages written.
    pub(crate) written: Counter,
    /// Requests read.
    pub(crate) requests: Counter,
}

impl WsMetrics {
    pub(crate) fn new() -> WsMetrics {
        describe_gauge!("tidings_ws_connections", "Open connections of /v1/ws.");
        describe_counter!(
            "tidings_ws_written_total",
            "Messages written to connections of /v1/ws."
        );
        describe_counter!(
            "tidings_ws_requests_total",
            "Requests read from connections of /v1/ws."
        );
        describe_counter!(WS_CLOSED, "Connections closed by the service, by code.");
        WsMetrics {
            connections: gauge!("tidings_ws_connections"),
            written: counter!("tidings_ws_written_total"),
            requests: counter!("tidings_ws_requests_total"),
        }
    }

    /// A connection was closed by the service, with this code.
    pub(crate) fn closed(&self, code: u16) {
        self.count_closed(code, 1);
    }

    fn count_closed(&self, code: u16, count: u64) {
        let row = CLOSE_CODES.iter().find(|(known, _)| *known == code);
        let label = row.map_or("", |(_, label)| label);
        counter!(WS_CLOSED, "code" => label).increment(count);
    }
}
