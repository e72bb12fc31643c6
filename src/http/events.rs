//! Server-sent events: `GET /v1/events`, all changes of the bus, filtered by the client's query.
//!
//! The hub is one attached subscriber that keeps the newest events as encoded frames. A client is a cursor
//! into that history and a filter: it has no queue, so a slow client costs nothing, and one that falls off
//! the end of the history is told how many events it missed.

mod frame;
mod history;
mod query;
mod recorder;
mod shared;
mod sight;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use history::ContinueAt;
use query::EventsQuery;
use recorder::Recorder;
use shared::HubState;
use sight::Sight;
use stream::{ContentReader, EventClient, EventStream};

use crate::attach::{AttachError, AttachOptions, Attachment};
use crate::config::EventsConfig;
use crate::http::access::Access;
use crate::http::layers::guarded;
use crate::http::limits::{Counted, SharedLimits};
use crate::http::notice_body::NoticeBodies;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::rights::caller;
use crate::http::stream_handover::{BodyStream, StreamHandover};
use crate::shared_log::LogHealth;
use crate::{Bus, Position, WeakBus};

/// The path of the streams.
pub(super) const PATH: &str = "/v1/events";

/// The hub's name among the attached subscribers.
const NAME: &str = "v1-events";

/// The parts into which the keep-alives of all streams are divided, so that not all write at once.
const KEEP_ALIVE_TICKS: u32 = 8;

/// The time for which a node waits for a position that another node of its cluster has given, before it asks
/// the log whether there is more. Nodes are some milliseconds apart.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// The interval in which the node looks whether it has reached the position.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The history of events, from which every stream reads. It is recorded as long as a clone of this or a
/// router made from it exists; then its streams end.
#[derive(Debug, Clone)]
pub struct Hub {
    state: Arc<HubState>,
    bus: WeakBus,
    /// Detached with the last handle.
    _attachment: Arc<Attachment>,
}

impl Hub {
    /// Attaches a hub to `bus`. Its history begins with the newest change of each resource and list that the
    /// bus knows, and has every change from here on. When the bus ends, it waits at most `drain_timeout`
    /// for streams to take the remaining events and the event `end`.
    ///
    /// # Errors
    /// [`AttachError`]: the bus has stopped, has a hub already, or has no room.
    pub async fn start(
        bus: &Bus,
        config: &EventsConfig,
        drain_timeout: Duration,
    ) -> Result<Hub, AttachError> {
        let keep_alive = bus.limits().keep_alive;
        let state = Arc::new(HubState::new(config, keep_alive, bus.lineage().clone()));
        let recorded = state.clone();
        let mut options = AttachOptions::new(NAME);
        options.newest_max = config.history_max;
        let attachment = bus
            .attach(options, move || {
                Ok(Recorder::new(recorded.clone(), drain_timeout))
            })
            .await?;
        // The position is known, as the hub's delivery class is *every*.
        let start = attachment.position().unwrap_or(Position { epoch: 0, offset: 0 });
        // Before any client connects, so that a position from before the start is judged by what is kept.
        recorder::seed(&mut state.lock().history, start, &attachment.take_newest());
        state.start_keep_alive(bus, keep_alive / KEEP_ALIVE_TICKS);
        Ok(Hub {
            state,
            bus: bus.downgrade(),
            _attachment: Arc::new(attachment),
        })
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.state.lock().open
    }
}

/// Returns `GET /v1/events` as a router of its own, to be served alone or merged with others.
pub fn router(hub: Hub, access: Access, limits: SharedLimits) -> Router {
    let bodies = Arc::new(NoticeBodies::new(hub.bus.clone(), limits.clone()));
    let counted = limits.clone();
    let context = EventsContext { hub, limits, bodies };
    let routes = Router::new()
        .route(PATH, get(open).options(preflight))
        .layer(from_fn(allow_origin))
        .with_state(context);
    guarded(routes, access, counted)
}

/// The parts that all requests share.
#[derive(Clone)]
struct EventsContext {
    hub: Hub,
    limits: SharedLimits,
    bodies: Arc<NoticeBodies>,
}

/// Returns the id after which the stream of a client continues that names `id`. Waits for a short while until
/// this node has reached the position of a client that comes from another one.
async fn resume_after(hub: &Hub, client: &EventClient, id: &str) -> ContinueAt {
    // An id that cannot be the client's own is one of another history.
    let Some(position) = client.event_ids().read(id) else {
        return ContinueAt::OtherHistory;
    };
    let begin = Instant::now();
    while hub.state.lock().history.is_behind(position) {
        let Ok(bus) = hub.bus.upgrade() else {
            break;
        };
        let is_cut_off = match bus.log_state() {
            Some(log) => log.health != LogHealth::Connected || !log.is_caught_up,
            None => false,
        };
        if is_cut_off {
            return ContinueAt::Ahead(position);
        }
        if begin.elapsed() >= BEHIND_MAX {
            // After a log was restored from a copy the position may never be reached, and the client must
            // learn that it has missed something.
            return match bus.log_has(position).await {
                Some(false) => ContinueAt::OtherHistory,
                Some(true) | None => ContinueAt::Ahead(position),
            };
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    ContinueAt::At(position)
}

async fn open(
    State(EventsContext { hub, limits, bodies }): State<EventsContext>,
    extensions: Extensions,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = EventsQuery::parse(&uri, &headers)?;
    let place = limits.session(&Counted::of(&extensions))?;
    let caller = caller(&extensions)?;
    let sight = Sight::open(&hub.bus, caller).await?;
    let content = query.bodies.then(|| ContentReader {
        bodies,
        caller: caller.clone(),
    });
    let client = EventClient {
        filter: query.filter,
        sight,
        content,
        _place: place,
    };
    let resume = match &query.resume {
        Some(id) => Some(resume_after(&hub, &client, id).await),
        None => None,
    };
    let stream = match EventStream::open(hub.state, client, resume) {
        Ok(stream) => stream,
        Err(max) => {
            return Err(ProblemKind::Unavailable.because(format!(
                "{max} event streams are open, as many as may be (events.streams_max); try again later"
            )));
        }
    };
    // Without a hand-over the router is mounted in another server, which writes the stream itself.
    let mut response = match extensions.get::<StreamHandover>() {
        Some(handover) => handover.hand_over(Box::new(BodyStream(stream))).map(Body::new),
        None => Response::new(Body::new(stream)),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // A proxy that buffers would hold events back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Answers the preflight request that a browser sends for scripts which read the stream with `fetch` and
/// headers of their own.
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

/// Lets pages read the answer. Only requests from allowed origins come this far.
async fn allow_origin(request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    // Also without an origin: a cache must not answer a page with the response to a script.
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}
