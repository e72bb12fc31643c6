//! The metrics of the transports beside MCP, `/v1/events` and `/v1/ws`, and of TLS below all of them.

use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};

use super::{
    EVENTS_GAPS, EVENTS_LOST, EVENTS_REPLACED, EVENTS_RESUMED, EVENTS_STREAMS, EVENTS_WRITTEN,
    HandshakeFailure, NOTICE_BODIES, NoticeBody, TLS_EXPIRY, TLS_HANDSHAKES, TLS_LIST_EXPIRY, TLS_RELOADS,
    WS_CLOSED, WS_CONNECTIONS, WS_REQUESTS, WS_WRITTEN, describe,
};

/// The close codes that the service sends on a WebSocket.
const CLOSE_CODES: [u16; 7] = [1001, 1002, 1003, 1008, 1009, 1011, 1013];

/// Exports every metric of this file at 0.
pub(super) fn register() {
    EventsMetrics::new();
    NoticeBodyMetrics::new();
    let ws = WsMetrics::new();
    for code in CLOSE_CODES {
        count_closed(code, 0);
    }
    ws.connections.set(0.0);
    TlsMetrics::new();
}

/// The metrics of TLS.
#[derive(Debug, Clone)]
pub(crate) struct TlsMetrics {
    accepted: Counter,
    replaced: Counter,
    kept: Counter,
    expiry: Gauge,
    list_expiry: Gauge,
}

impl TlsMetrics {
    pub(crate) fn new() -> TlsMetrics {
        // An embedder may use TLS without calling `metrics::register`.
        describe();
        for failure in HandshakeFailure::ALL {
            count_failed(*failure, 0);
        }
        TlsMetrics {
            accepted: counter!(TLS_HANDSHAKES, "outcome" => "accepted"),
            replaced: counter!(TLS_RELOADS, "outcome" => "replaced"),
            kept: counter!(TLS_RELOADS, "outcome" => "kept"),
            expiry: gauge!(TLS_EXPIRY),
            list_expiry: gauge!(TLS_LIST_EXPIRY),
        }
    }

    /// Counts a handshake that succeeded.
    pub(crate) fn accepted(&self) {
        self.accepted.increment(1);
    }

    /// Counts a handshake that failed.
    pub(crate) fn failed(&self, failure: HandshakeFailure) {
        count_failed(failure, 1);
    }

    /// Counts that certificates were replaced.
    pub(crate) fn replaced(&self) {
        self.replaced.increment(1);
    }

    /// Counts that files could not be used, so that the present certificates stayed.
    pub(crate) fn kept(&self) {
        self.kept.increment(1);
    }

    /// Notes the end of the validity of the present certificate, as time since 1970.
    pub(crate) fn expires(&self, at: Duration) {
        self.expiry.set(at.as_secs_f64());
    }

    /// Notes the first end of a revocation list, as time since 1970.
    pub(crate) fn first_list_ends(&self, at: Duration) {
        self.list_expiry.set(at.as_secs_f64());
    }
}

fn count_failed(failure: HandshakeFailure, times: u64) {
    // Looked up at each call: failures are rare, so a handle for each would only take memory.
    counter!(TLS_HANDSHAKES, "outcome" => failure.label()).increment(times);
}

/// The metrics of the streams of `GET /v1/events`.
#[derive(Debug, Clone)]
pub(crate) struct EventsMetrics {
    /// Open streams.
    pub(crate) streams: Gauge,
    /// Events written to streams.
    pub(crate) written: Counter,
    /// Gaps reported to streams that were further behind than the history reaches.
    pub(crate) gaps: Counter,
    /// Events that never reached the history.
    pub(crate) lost: Counter,
    /// Older events that newer ones replaced in the log of the cluster before this node heard them.
    pub(crate) replaced: Counter,
    complete: Counter,
    incomplete: Counter,
}

impl EventsMetrics {
    pub(crate) fn new() -> EventsMetrics {
        // An embedder may mount this transport without calling `metrics::register`.
        describe();
        EventsMetrics {
            streams: gauge!(EVENTS_STREAMS),
            written: counter!(EVENTS_WRITTEN),
            gaps: counter!(EVENTS_GAPS),
            lost: counter!(EVENTS_LOST),
            replaced: counter!(EVENTS_REPLACED),
            complete: counter!(EVENTS_RESUMED, "complete" => "true"),
            incomplete: counter!(EVENTS_RESUMED, "complete" => "false"),
        }
    }

    /// Counts a stream that came back; `complete` if the history still held everything it missed.
    pub(crate) fn resumed(&self, complete: bool) {
        let counter = if complete {
            &self.complete
        } else {
            &self.incomplete
        };
        counter.increment(1);
    }
}

/// The metrics of the content that notices carry.
#[derive(Debug, Clone)]
pub(crate) struct NoticeBodyMetrics([Counter; NoticeBody::ALL.len()]);

impl NoticeBodyMetrics {
    pub(crate) fn new() -> NoticeBodyMetrics {
        // As for the events: this transport may be mounted alone.
        describe();
        NoticeBodyMetrics(std::array::from_fn(
            |at| counter!(NOTICE_BODIES, "outcome" => NoticeBody::ALL[at].label()),
        ))
    }

    /// Counts a notice whose content had this outcome.
    pub(crate) fn count(&self, outcome: NoticeBody) {
        self.0[outcome as usize].increment(1);
    }
}

/// The metrics of the connections of `GET /v1/ws`.
#[derive(Debug, Clone)]
pub(crate) struct WsMetrics {
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Messages written.
    pub(crate) written: Counter,
    /// Requests read.
    pub(crate) requests: Counter,
}

impl WsMetrics {
    pub(crate) fn new() -> WsMetrics {
        // As for the events: this transport may be mounted alone.
        describe();
        WsMetrics {
            connections: gauge!(WS_CONNECTIONS),
            written: counter!(WS_WRITTEN),
            requests: counter!(WS_REQUESTS),
        }
    }

    /// Counts a connection that the service closed with `code`.
    pub(crate) fn closed(&self, code: u16) {
        count_closed(code, 1);
    }
}

fn count_closed(code: u16, count: u64) {
    counter!(WS_CLOSED, "code" => code.to_string()).increment(count);
}
