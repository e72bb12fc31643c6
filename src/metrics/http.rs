//! The metrics of an HTTP listener: its connections, and the requests by path and status.

use std::sync::Arc;

use metrics::{Counter, Gauge, counter, gauge};

use super::{ACCEPT_ERRORS, CONNECTIONS, HTTP2_CONNECTIONS, HTTP2_REQUESTS, HTTP2_STREAMS, Path, REQUESTS};

const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The metrics of an HTTP listener.
#[derive(Clone)]
pub(crate) struct HttpMetrics {
    /// By path class and status class; one handle each, since every request counts.
    requests: Arc<[[Counter; STATUSES.len()]; Path::ALL.len()]>,
    connections: Gauge,
    accept_errors: Counter,
    http2: Http2Metrics,
}

impl HttpMetrics {
    pub(crate) fn new() -> HttpMetrics {
        let requests = std::array::from_fn(|route| {
            let route = Path::ALL[route].label();
            STATUSES.map(|status| counter!(REQUESTS, "route" => route, "status" => status))
        });
        HttpMetrics {
            requests: Arc::new(requests),
            connections: gauge!(CONNECTIONS),
            accept_errors: counter!(ACCEPT_ERRORS),
            http2: Http2Metrics::new(),
        }
    }

    /// Returns the metrics of HTTP/2.
    pub(crate) fn http2(&self) -> &Http2Metrics {
        &self.http2
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn connected(&self) -> OpenConnection {
        OpenConnection::new(self.connections.clone())
    }

    /// Counts an attempt to accept a connection that failed.
    pub(crate) fn accept_failed(&self) {
        self.accept_errors.increment(1);
    }

    /// Counts a request that was answered with `status`.
    pub(crate) fn answered(&self, path: Path, status: ::http::StatusCode) {
        // Clamped, since a status beyond 599 must not panic here.
        let class = usize::from(status.as_u16() / 100).clamp(1, STATUSES.len()) - 1;
        self.requests[path as usize][class].increment(1);
    }
}

/// The metrics of HTTP/2 on a listener.
#[derive(Debug, Clone)]
pub(crate) struct Http2Metrics {
    connections: Gauge,
    requests: Counter,
    /// Open streams of the protocol.
    pub(crate) streams: Gauge,
}

impl Http2Metrics {
    fn new() -> Http2Metrics {
        Http2Metrics {
            connections: gauge!(HTTP2_CONNECTIONS),
            requests: counter!(HTTP2_REQUESTS),
            streams: gauge!(HTTP2_STREAMS),
        }
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn connected(&self) -> OpenConnection {
        OpenConnection::new(self.connections.clone())
    }

    /// Counts a request.
    pub(crate) fn requested(&self) {
        self.requests.increment(1);
    }
}

/// A connection that counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Gauge);

impl OpenConnection {
    fn new(open: Gauge) -> OpenConnection {
        open.increment(1.0);
        OpenConnection(open)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Path {
    /// Returns the class of a request's path.
    pub(crate) fn of(path: &str) -> Path {
        match path {
            "/mcp" => Path::Mcp,
            "/healthz" | "/readyz" => Path::Health,
            "/metrics" => Path::Metrics,
            "/" | "/ui" => Path::Page,
            _ if path.starts_with("/ui/") => Path::Page,
            _ if path == "/v1" || path.starts_with("/v1/") => Path::Api,
            _ => Path::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::counted;
    use metrics_util::debugging::DebuggingRecorder;

    #[test]
    fn requests_count_by_route_and_status_class() {
        let recorder = DebuggingRecorder::new();
        let http = ::metrics::with_local_recorder(&recorder, HttpMetrics::new);
        for (path, status) in [
            ("/mcp", 200),
            ("/mcp", 202),
            ("/v1", 404),
            ("/v1/resources", 304),
            ("/v1x", 404),
            ("/readyz", 503),
            ("/metrics", 200),
        ] {
            http.answered(Path::of(path), ::http::StatusCode::from_u16(status).unwrap());
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
