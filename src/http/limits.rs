//! The limits that the endpoints of one server share: what each caller may hold and ask for, and the request
//! bodies that are being received.
//!
//! Callers are counted by name ([`Counted`]). Endpoints name the caller once and call one method for each
//! thing that is limited; a limit that is not set costs nothing.

mod bodies;
mod counted;
mod elsewhere;
#[cfg(feature = "nats")]
mod held;
mod published;
mod shares;

use std::sync::Arc;
use std::time::Duration;

use ::http::{Extensions, Request};
use tidings_actors::{ResourceUri, SubscribeError, SubscriptionAllowance};

use bodies::Bodies;
pub(crate) use bodies::BodyFault;
#[cfg(feature = "service")]
pub(super) use bodies::told_length;
#[cfg(feature = "service")]
pub(crate) use bodies::{BytesPlace, ReceivedBody};
pub(crate) use counted::Counted;
use elsewhere::Elsewhere;
pub use elsewhere::HeldCounts;
use published::Published;
pub(crate) use published::Reservation;
pub(crate) use shares::Place;
use shares::{Allowances, Shares};

use super::access::Access;
use super::problem::{Problem, ProblemKind};
use crate::config::{HttpConfig, QuotaConfig, SessionConfig};
use crate::metrics::{self, Limit};
use crate::rate_limiter::RateLimiter;

/// The limits that the endpoints of one server share. Clones share their counts, so endpoints that are made
/// with clones of one value count the same callers together.
#[derive(Debug, Clone)]
pub struct SharedLimits {
    shared: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    quota: QuotaConfig,
    per_peer_max: Option<usize>,
    sessions: Shares,
    tool_places: Shares,
    subscriptions: Allowances,
    requests: Option<RateLimiter<Counted>>,
    published: Published,
    elsewhere: Elsewhere,
    bodies: Bodies,
    body_timeout: Duration,
    notice_body_max: usize,
}

/// Marks a request that was counted among those of its caller. Endpoints that are mounted in one another each
/// let a request in, and it counts once.
#[derive(Debug, Clone, Copy)]
struct RequestCounted;

/// A limit that a request has reached, which is counted already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// Names the limit, its configuration key and the remedy.
    pub(crate) text: String,
    /// The seconds after which the client may try again.
    pub(crate) retry_after: u32,
}

impl From<Exceeded> for Problem {
    fn from(exceeded: Exceeded) -> Problem {
        ProblemKind::TooManyRequests
            .because(exceeded.text)
            .retry_after(exceeded.retry_after)
    }
}

impl Default for SharedLimits {
    /// Makes the limits that a configuration without keys has.
    fn default() -> SharedLimits {
        SharedLimits::new(
            &HttpConfig::default(),
            &SessionConfig::default(),
            &QuotaConfig::default(),
        )
    }
}

impl SharedLimits {
    /// Makes the limits: of `http` it heeds `body_timeout`, `bodies_bytes_max` and `notice_body_max`, of
    /// `session` `per_peer_max`, of `quota` everything.
    pub fn new(http: &HttpConfig, session: &SessionConfig, quota: &QuotaConfig) -> SharedLimits {
        SharedLimits {
            shared: Arc::new(Counts {
                quota: quota.clone(),
                per_peer_max: session.per_peer_max,
                sessions: Shares::default(),
                tool_places: Shares::default(),
                subscriptions: Allowances::default(),
                requests: quota
                    .requests_per_second
                    .map(|count| RateLimiter::new(count, Duration::from_secs(1))),
                published: Published::default(),
                elsewhere: Elsewhere::default(),
                bodies: Bodies::new(http.bodies_bytes_max),
                body_timeout: http.body_timeout,
                notice_body_max: http.notice_body_max,
            }),
        }
    }

    /// Takes a place among the sessions and long-lived streams of a caller; none when they are not counted.
    ///
    /// # Errors
    /// The caller has as many as it may.
    pub(crate) fn session(&self, caller: &Counted) -> Result<Option<Place>, Exceeded> {
        let elsewhere = self.shared.elsewhere.of(caller).sessions;
        let limits = [
            (Limit::SessionsOfPeer, self.shared.per_peer_max, 0),
            (Limit::QuotaSessions, self.shared.quota.sessions_max, elsewhere),
        ];
        // Only the smaller limit can be reached, and the refusal must name the key that helps.
        let limits = limits
            .into_iter()
            .filter_map(|(limit, max, used)| Some((max?.saturating_sub(used), max?, limit)));
        let Some((left, max, limit)) = limits.min_by_key(|(left, ..)| *left) else {
            return Ok(None);
        };
        if let Some(place) = self.shared.sessions.take(caller, left) {
            return Ok(Some(place));
        }
        let what = "sessions and streams of one client are open";
        let remedy = "end one, or wait until idle ones have ended";
        Err(exceeded(limit, &format!("{max} {what}"), remedy, 5))
    }

    /// Returns the subscriptions that the sessions of a caller share; none when they are not counted.
    pub(crate) fn subscriptions(&self, caller: &Counted) -> Option<Arc<SubscriptionAllowance>> {
        let max = self.shared.quota.subscriptions_max?;
        let allowance = self.shared.subscriptions.of(caller, max);
        allowance.set_elsewhere(self.shared.elsewhere.of(caller).subscriptions);
        Some(allowance)
    }

    /// The largest content of a notice, in bytes.
    #[cfg(feature = "service")]
    pub(crate) fn notice_body_max(&self) -> usize {
        self.shared.notice_body_max
    }

    /// Lets a request in by `access`, and counts it.
    ///
    /// # Errors
    /// The refusal of `access`; 429.
    pub(crate) async fn admit<B>(&self, access: &Access, request: &mut Request<B>) -> Result<(), Problem> {
        access.admit(request).await?;
        Ok(self.request(request.extensions_mut())?)
    }

    /// Counts a request with these extensions, unless it was counted already.
    ///
    /// # Errors
    /// Its caller has sent as many as it may.
    pub(crate) fn request(&self, extensions: &mut Extensions) -> Result<(), Exceeded> {
        // Extensions never come from the wire, so a client cannot forge this.
        if self.shared.requests.is_none() || extensions.get::<RequestCounted>().is_some() {
            return Ok(());
        }
        extensions.insert(RequestCounted);
        self.requests(&Counted::of(extensions), 1)
    }

    /// Counts requests of a caller, such as those of a batch beside the first.
    ///
    /// # Errors
    /// The caller has sent as many as it may.
    pub(crate) fn requests(&self, caller: &Counted, count: usize) -> Result<(), Exceeded> {
        let Some(requests) = &self.shared.requests else {
            return Ok(());
        };
        let Err(wait) = requests.take(caller, count) else {
            return Ok(());
        };
        // Rounded up, since a client that comes back too early is refused again.
        let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
        let max = self.shared.quota.requests_per_second.unwrap_or_default();
        let what = format!("one client has sent {max} requests within a second");
        Err(exceeded(
            Limit::QuotaRequests,
            &what,
            "send them more slowly",
            seconds,
        ))
    }

    /// Takes a place among the tool calls of a caller; none when they are not counted.
    ///
    /// # Errors
    /// The caller has as many calls running as it may.
    pub(crate) fn tool_place(&self, caller: &Counted) -> Result<Option<Place>, Exceeded> {
        let Some(max) = self.shared.quota.tool_places else {
            return Ok(None);
        };
        let left = max.saturating_sub(self.shared.elsewhere.of(caller).tool_calls);
        if let Some(place) = self.shared.tool_places.take(caller, left) {
            return Ok(Some(place));
        }
        let what = format!("{max} tool calls of one client are running");
        Err(exceeded(Limit::QuotaToolPlaces, &what, "wait for one of them", 1))
    }

    /// Counts the URI and the `len` bytes of a change that is made next; none when they are not counted.
    ///
    /// # Errors
    /// The bus would hold more bytes of this caller than it may. Waiting does not help, so this is 507.
    pub(crate) fn publish(
        &self,
        caller: &Counted,
        uri: &ResourceUri,
        len: usize,
    ) -> Result<Option<Reservation>, Problem> {
        let Some(max) = self.shared.quota.bytes_max else {
            return Ok(None);
        };
        let left = max.saturating_sub(self.shared.elsewhere.of(caller).bytes);
        if let Some(reserved) = self.shared.published.reserve(caller, uri, len, left) {
            return Ok(Some(reserved));
        }
        // Not made by `exceeded`, whose answer would tell the client to wait.
        metrics::limit_reached(Limit::QuotaBytes);
        Err(ProblemKind::Full.because(format!(
            "{uri} has {len} bytes, with which this client would have published more than {max} bytes that are \
             held (quota.bytes_max); remove resources or shorten them"
        )))
    }

    /// Notes that a resource was removed, which gives its bytes back.
    pub(crate) fn removed(&self, uri: &ResourceUri) {
        // Without the quota no URI is kept, so there is none to look for.
        if self.shared.quota.bytes_max.is_some() {
            self.shared.published.removed(uri);
        }
    }
}

/// Words the refusal of a subscription for the client. A limit is named by its key, and by what it counts:
/// the client may have only a few of the subscriptions itself.
pub(crate) fn refused_subscription(error: &SubscribeError) -> String {
    match error {
        SubscribeError::TooMany(max) => format!(
            "too many subscriptions: one session may have {max} (session.subscriptions_max); unsubscribe from \
             something first"
        ),
        SubscribeError::AllowanceUsed(max) => format!(
            "too many subscriptions: one client may have {max} over all its sessions and streams \
             (quota.subscriptions_max); unsubscribe from something or end a session first"
        ),
        error => error.to_string(),
    }
}

/// Counts that a caller reached a limit, and words it.
fn exceeded(limit: Limit, what: &str, remedy: &str, retry_after: u32) -> Exceeded {
    metrics::limit_reached(limit);
    Exceeded {
        text: format!("{what}, as many as {} allows; {remedy}", limit.label()),
        retry_after,
    }
}
