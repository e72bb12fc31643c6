//! Server-sent events: `GET /v1/events`, everything that is published, filtered by the client's query.
//!
//! Owns: the hub (one attached subscriber that keeps the newest events as encoded frames), the route, and its CORS
//! headers. A client is a cursor into the hub's history and a filter, so a slow one costs nothing and one that falls off
//! the history's end is told how much it missed. Never: a queue per client, a change of the bus.
//! Receives every notice from the bus; hands streams to the listener or to an embedder's router.

mod frame;
mod history;
mod query;
mod recorder;
mod shared;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use query::Asked;
use recorder::Recorder;
use shared::Shared;
use stream::EventStream;

use crate::attach::{AttachError, AttachOptions, Attachment};
use crate::config::EventsConfig;
use crate::http::access::Access;
use crate::http::layers::guarded;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::stream_handover::{BodyStream, StreamHandover};
use crate::{Bus, Position};

/// What the hub is called among the attached subscribers.
const NAME: &str = "v1-events";

/// How many parts the keep-alives of all streams are spread over, so that not all write at once.
const KEEP_ALIVE_TICKS: u32 = 8;

/// The history of what was published, from which every stream reads. It goes on while this or a
/// router made from it is there; then its streams end.
#[derive(Debug, Clone)]
pub struct Hub {
    shared: Arc<Shared>,
    /// Detached with the last handle.
    _attachment: Arc<Attachment>,
}

impl Hub {
    /// Attaches a hub to `bus`; its history begins here. When the bus ends, it waits at most `drain_timeout` for streams
    /// to take the rest and the event `end`.
    ///
    /// # Errors
    /// [`AttachError`]: the bus has stopped, has one already, or has no room.
    pub async fn start(
        bus: &Bus,
        config: &EventsConfig,
        drain_timeout: Duration,
    ) -> Result<Hub, AttachError> {
        let keep_alive = bus.limits().keep_alive;
        let shared = Arc::new(Shared::new(config, keep_alive));
        let recording = shared.clone();
        let make = move || Ok(Recorder::new(recording.clone(), drain_timeout));
        let attachment = bus.attach(AttachOptions::new(NAME), make).await?;
        // Known, since the class is *every*; a history that were to begin anywhere would only forget more.
        let start = attachment.position().unwrap_or(Position { epoch: 0, offset: 0 });
        shared.lock().history.begin(start);
        shared.keep_alive(bus, keep_alive / KEEP_ALIVE_TICKS);
        Ok(Hub {
            shared,
            _attachment: Arc::new(attachment),
        })
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.shared.lock().open
    }
}

/// `GET /v1/events` as a router of its own, to be served alone or merged with others.
pub fn router(hub: Hub, access: Access) -> Router {
    let routes = Router::new()
        .route("/v1/events", get(open).options(preflight))
        .layer(from_fn(share))
        .with_state(hub);
    guarded(routes, access)
}

async fn open(
    State(hub): State<Hub>,
    handover: Option<Extension<StreamHandover>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Asked { filter, resume } = query::parse(&uri, &headers)?;
    let stream = EventStream::open(hub.shared, filter, resume.as_deref()).map_err(|max| {
        ProblemKind::Unavailable.because(format!(
            "{max} event streams are open, as many as may be (events.streams_max); try again later"
        ))
    })?;
    let body = match handover {
        Some(Extension(handover)) => Body::new(handover.hand_over(Box::new(BodyStream(stream)))),
        None => Body::new(stream),
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that buffer would hold events back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The answer to a browser that asks first, as it does for scripts that read the stream with `fetch` and headers.
async fn preflight() -> impl IntoResponse {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "last-event-id, cache-control",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers)
}

/// Lets pages read the answer whose origin the guard has let in; no other comes this far.
async fn share(request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}
