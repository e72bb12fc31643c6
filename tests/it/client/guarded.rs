//! A server that demands credentials, notes every request, and can end its streams at any time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use futures_util::StreamExt;
use tidings::mcp::{Endpoint, McpOptions};
use tidings::{Bus, Limits, Resource};
use tokio::sync::watch;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
}

/// The rule of the server.
#[derive(Default)]
pub(crate) struct Gate {
    /// The values of `Authorization` that are let in.
    accepted: Mutex<BTreeSet<String>>,
    /// The challenge for all others: a status, and the header.
    challenge: Mutex<(u16, String)>,
    seen: Mutex<Vec<Seen>>,
    /// The metadata of the resource, which everyone may read.
    metadata: Mutex<serde_json::Value>,
    /// Streams end when this changes.
    ended: watch::Sender<u64>,
}

impl Gate {
    /// Lets in these values of `Authorization`, and no others.
    pub(crate) fn accept(&self, values: &[&str]) {
        *self.accepted.lock().unwrap() = values.iter().map(|value| (*value).to_owned()).collect();
    }

    /// Refuses all others with this status and header.
    pub(crate) fn challenge(&self, status: u16, header: &str) {
        *self.challenge.lock().unwrap() = (status, header.to_owned());
    }

    /// Lets in this value of `Authorization`, too.
    pub(crate) fn accept_too(&self, value: String) {
        self.accepted.lock().unwrap().insert(value);
    }

    /// Serves these metadata of the resource.
    pub(crate) fn describe(&self, metadata: serde_json::Value) {
        *self.metadata.lock().unwrap() = metadata;
    }

    /// Ends every open stream.
    pub(crate) fn end_streams(&self) {
        self.ended.send_modify(|count| *count += 1);
    }

    /// Returns the requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the refusal of a request with these headers.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let value = headers.get(header::AUTHORIZATION);
        if let Some(value) = value
            && self.accepted.lock().unwrap().contains(value.to_str().unwrap())
        {
            return None;
        }
        let (status, text) = self.challenge.lock().unwrap().clone();
        let mut response = StatusCode::from_u16(status.max(401)).unwrap().into_response();
        if !text.is_empty() {
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, text.parse().unwrap());
        }
        Some(response)
    }
}

async fn guard(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    if request
        .uri()
        .path()
        .starts_with("/.well-known/oauth-protected-resource")
    {
        let metadata = gate.metadata.lock().unwrap().clone();
        return match metadata.is_null() {
            true => StatusCode::NOT_FOUND.into_response(),
            false => axum::Json(metadata).into_response(),
        };
    }
    gate.seen.lock().unwrap().push(Seen {
        line: format!("{} {}", request.method(), request.uri()),
        headers: request.headers().clone(),
    });
    if let Some(refusal) = gate.refusal(request.headers()) {
        return refusal;
    }
    let mut ended = gate.ended.subscribe();
    let (head, body) = next.run(request).await.into_parts();
    let end = async move {
        // A gate that is dropped ends its streams, too.
        ended.changed().await.ok();
    };
    let body = body.into_data_stream().take_until(Box::pin(end));
    Response::from_parts(head, Body::from_stream(body))
}

/// A bus behind a gate, with the endpoint at `/mcp` and the parts of the HTTP API that clients need.
pub(crate) struct Guarded {
    pub(crate) bus: Bus,
    pub(crate) gate: Arc<Gate>,
    address: SocketAddr,
}

impl Guarded {
    /// Starts a server that lets in these values of `Authorization`.
    pub(crate) async fn start(accepted: &[&str]) -> Guarded {
        let mut limits = Limits::default();
        limits.shards = 1;
        let bus = Bus::builder().limits(limits).start().unwrap();
        let gate = Arc::new(Gate::default());
        gate.accept(accepted);
        gate.challenge(401, "Bearer scope=\"read\"");
        let list = get(async || axum::Json(serde_json::json!({ "items": [] })));
        let router = Router::new()
            .route_service("/mcp", Endpoint::new(bus.clone(), McpOptions::default()))
            .route("/v1/resources", list)
            .route("/v1/resources/{uri}", put(async || ([("etag", "\"v1-1\"")], "")))
            .route("/v1/store/backup", get(async || "{\"end\":1}\n"))
            .layer(from_fn_with_state(gate.clone(), guard));
        let address = serve(router).await;
        Guarded { bus, gate, address }
    }

    /// Returns the address of this path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn put(&self, uri: &str, text: &str) -> String {
        let resource = Resource::text(uri, text).unwrap();
        self.bus.upsert(resource).await.unwrap().etag.to_string()
    }
}

/// Serves `router` on any port.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Starts a server that answers every request with `status` and a redirect to `location`.
pub(crate) async fn redirecting(status: StatusCode, location: String) -> SocketAddr {
    serve(Router::new().fallback(move |request: Request| {
        let to = format!("{location}{}", request.uri());
        async move { (status, [(header::LOCATION, to)]).into_response() }
    }))
    .await
}
