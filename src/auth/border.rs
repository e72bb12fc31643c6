//! The border of a service: authentication, authorization, challenges and the audit.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};

use tidings_actors::rights::Audience;

use super::authenticate::{Authenticate, Credentials, Unauthenticated};
use super::authorize::{Authorize, Verdict};
use super::caller::{Caller, PeerAddress};
use super::event_ids::{EventIds, PositionSeal};
use super::principal::Principal;
use super::right::{Object, Right};
use crate::metrics::{AuthMetrics, AuthResult};

/// One judgement, as the audit is told of it.
#[derive(Debug, Clone, Copy)]
pub struct AuditEntry<'a> {
    /// The principal; none for a request that has no identity.
    pub principal: Option<&'a Principal>,
    /// The right that was judged; none if the identity was refused.
    pub right: Option<Right>,
    /// The object of the right.
    pub object: Object<'a>,
    /// The verdict; the name of a rule stands in it.
    pub verdict: &'a Verdict,
    /// The address of the peer.
    pub peer: Option<IpAddr>,
    /// The number of the request.
    pub request: u64,
}

/// Writes the audit. Called on the threads of requests, so it must not block.
pub trait RecordAudit: Send + Sync + 'static {
    /// Records one judgement.
    fn record(&self, entry: &AuditEntry<'_>);
}

/// The parts of the `WWW-Authenticate` header that are the same for every refusal (RFC 6750, RFC 9728).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// The address of the metadata of the protected resource; none without an authorization server.
    pub resource_metadata: Option<String>,
    /// The scopes that a first token should have.
    pub scopes: Vec<String>,
}

impl Challenge {
    /// Writes the header. `scope` replaces the scopes of a first token.
    pub(crate) fn header(&self, error: Option<&str>, scope: Option<&str>) -> HeaderValue {
        let first = self.scopes.join(" ");
        let scope = scope.unwrap_or(&first);
        let mut parameters = Vec::new();
        if let Some(error) = error {
            parameters.push(format!("error=\"{error}\""));
        }
        if !scope.is_empty() {
            parameters.push(format!("scope=\"{scope}\""));
        }
        if let Some(address) = &self.resource_metadata {
            parameters.push(format!("resource_metadata=\"{address}\""));
        }
        let text = match parameters.is_empty() {
            true => "Bearer".to_owned(),
            false => format!("Bearer {}", parameters.join(", ")),
        };
        // The configuration refuses scopes and addresses that no header can hold.
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Bearer"))
    }
}

/// The refusal of a request at the border.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BorderRefusal {
    /// 400, 401, 403, 429 or 503.
    pub status: StatusCode,
    /// The reason and the remedy.
    pub detail: String,
    /// The header `WWW-Authenticate`; none with 429 and 503.
    pub challenge: Option<HeaderValue>,
    /// Seconds after which to try again.
    pub retry_after: Option<u32>,
}

/// The border of a service: lets requests in and judges their rights.
pub struct Border {
    authenticate: Arc<dyn Authenticate>,
    authorize: Arc<dyn Authorize>,
    challenge: Challenge,
    audit: Option<Arc<dyn RecordAudit>>,
    requests: AtomicU64,
    metrics: AuthMetrics,
    /// Made with the first id, unless a key was given before.
    seal: OnceLock<PositionSeal>,
}

impl fmt::Debug for Border {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Border")
            .field("challenge", &self.challenge)
            .finish_non_exhaustive()
    }
}

impl Border {
    /// Makes a border of two ports.
    pub fn new(authenticate: Arc<dyn Authenticate>, authorize: Arc<dyn Authorize>) -> Border {
        Border {
            authenticate,
            authorize,
            challenge: Challenge::default(),
            audit: None,
            requests: AtomicU64::new(0),
            metrics: AuthMetrics::new(),
            seal: OnceLock::new(),
        }
    }

    /// Names an authorization server in the challenges of refusals.
    #[must_use]
    pub fn with_challenge(mut self, challenge: Challenge) -> Border {
        self.challenge = challenge;
        self
    }

    /// Encrypts by this secret key the ids of events for callers that may not be told of every change. With
    /// the same key, ids stay good after a restart; unless one is given, it is random.
    #[must_use]
    pub fn with_position_key(self, key: &[u8; 32]) -> Border {
        self.use_position_key(key);
        self
    }

    /// Does [`with_position_key`](Self::with_position_key), unless there is a key.
    pub(super) fn use_position_key(&self, key: &[u8; 32]) {
        self.seal.get_or_init(|| PositionSeal::new(key));
    }

    /// Tells `audit` of every refusal and of every publish, call and administrative act.
    #[must_use]
    pub fn with_audit(mut self, audit: Arc<dyn RecordAudit>) -> Border {
        self.audit = Some(audit);
        self
    }

    /// A number that grows whenever a right or a credential may have ended. Rights that were judged at the
    /// same number need not be judged again.
    pub fn generation(&self) -> u64 {
        // Both only grow, so their sum changes with either.
        self.authenticate
            .generation()
            .wrapping_add(self.authorize.generation())
    }

    /// Lets a request in.
    ///
    /// # Errors
    /// The refusal, with its challenge.
    pub async fn admit(
        self: &Arc<Self>,
        headers: HeaderMap,
        extensions: Extensions,
    ) -> Result<Caller, BorderRefusal> {
        // Before the credential is judged, which a request that was let in is never older than.
        let admitted = SystemTime::now();
        let request = self.next_request();
        let address: Option<PeerAddress> = extensions.get().copied();
        let bearer = match bearer(&headers) {
            Ok(bearer) => bearer,
            Err(detail) => {
                self.metrics.count(AuthResult::Malformed);
                self.audit_unidentified(address, request);
                return Err(self.refusal(StatusCode::BAD_REQUEST, Some("invalid_request"), detail));
            }
        };
        let credentials = Credentials {
            bearer,
            headers: &headers,
            extensions: &extensions,
            address: address.map(|address| address.0),
        };
        match self.authenticate.authenticate(credentials).await {
            Ok(principal) => {
                let result = match principal.is_anonymous() {
                    true => AuthResult::Anonymous,
                    false => AuthResult::Identified,
                };
                self.metrics.count(result);
                Ok(Caller::passed(
                    self.clone(),
                    principal,
                    address,
                    request,
                    admitted,
                ))
            }
            Err(error) => {
                self.metrics.count(result_of(error));
                self.audit_unidentified(address, request);
                Err(self.unauthenticated(error))
            }
        }
    }

    /// Makes the caller of a connection whose client the program knows without credentials in each request,
    /// such as one that [`serve_stdio_as`](crate::mcp::serve_stdio_as) serves: it has the rights of
    /// `principal`, and none once the credential of that has ended.
    pub fn caller(self: &Arc<Self>, principal: Principal) -> Caller {
        let request = self.next_request();
        Caller::passed(self.clone(), principal, None, request, SystemTime::now())
    }

    /// Returns the number of a new request.
    pub(super) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Lets in a principal that presented its credential before, such as at a login; none once the credential
    /// has ended.
    #[cfg(feature = "service")]
    pub(crate) fn readmit(
        self: &Arc<Self>,
        principal: &Principal,
        address: Option<PeerAddress>,
    ) -> Option<Caller> {
        let admitted = SystemTime::now();
        if !self.is_current_at(principal, admitted) {
            return None;
        }
        self.metrics.count(AuthResult::Identified);
        let request = self.next_request();
        let principal = principal.clone();
        Some(Caller::passed(
            self.clone(),
            principal,
            address,
            request,
            admitted,
        ))
    }

    /// Judges a right. A principal whose credential has ended has none.
    pub(crate) fn judge(&self, principal: &Principal, right: Right, object: Object<'_>) -> Verdict {
        self.judge_at(principal, right, object, SystemTime::now())
    }

    /// Judges a right of a principal whose credential must be good until `time`.
    pub(super) fn judge_at(
        &self,
        principal: &Principal,
        right: Right,
        object: Object<'_>,
        time: SystemTime,
    ) -> Verdict {
        if !self.is_current_at(principal, time) {
            return Verdict::Denied;
        }
        self.authorize.judge(principal, right, object)
    }

    /// Returns true if a principal may be told of every change.
    pub(super) fn may_be_told_all(&self, principal: &Principal) -> bool {
        self.is_current(principal) && self.authorize.may_be_told_all(principal)
    }

    /// Returns the form of ids for a client that may be told of every change, or not.
    pub(super) fn event_ids(&self, may_be_told_all: bool) -> EventIds<'_> {
        EventIds::of(self.seal.get_or_init(PositionSeal::random), may_be_told_all)
    }

    /// Returns false for a principal whose credential has expired or was revoked.
    pub(crate) fn is_current(&self, principal: &Principal) -> bool {
        self.is_current_at(principal, SystemTime::now())
    }

    fn is_current_at(&self, principal: &Principal, time: SystemTime) -> bool {
        let has_ended = principal.has_ended(time) || principal.is_revoked();
        !has_ended && self.authenticate.is_current(principal)
    }

    /// Returns the part of the lists that a principal sees.
    pub(crate) fn audience(&self, principal: &Principal) -> Arc<dyn Audience> {
        self.authorize.audience(principal)
    }

    /// Returns the refusal of a request that needs a token with one more scope.
    pub(crate) fn insufficient_scope(&self, scope: &str) -> BorderRefusal {
        BorderRefusal {
            status: StatusCode::FORBIDDEN,
            detail: format!("this needs a token with the scope {scope:?}; get one that has it"),
            challenge: Some(self.challenge.header(Some("insufficient_scope"), Some(scope))),
            retry_after: None,
        }
    }

    fn unauthenticated(&self, error: Unauthenticated) -> BorderRefusal {
        let detail = error.to_string();
        match error {
            // RFC 6750, section 3.1: a request without credentials gets no error code.
            Unauthenticated::Missing => self.refusal(StatusCode::UNAUTHORIZED, None, detail),
            Unauthenticated::Invalid => self.refusal(StatusCode::UNAUTHORIZED, Some("invalid_token"), detail),
            Unauthenticated::Unavailable => BorderRefusal {
                status: StatusCode::SERVICE_UNAVAILABLE,
                detail,
                challenge: None,
                retry_after: Some(1),
            },
            Unauthenticated::TooMany { retry_after } => BorderRefusal {
                status: StatusCode::TOO_MANY_REQUESTS,
                detail,
                challenge: None,
                retry_after: Some(retry_after),
            },
        }
    }

    fn refusal(&self, status: StatusCode, error: Option<&str>, detail: String) -> BorderRefusal {
        BorderRefusal {
            status,
            detail,
            challenge: Some(self.challenge.header(error, None)),
            retry_after: None,
        }
    }

    /// Tells the audit of a judgement, unless it allows a caller to see something, which most requests do.
    pub(super) fn audit(&self, caller: &Caller, right: Right, object: Object<'_>, verdict: &Verdict) {
        let Some(audit) = &self.audit else {
            return;
        };
        let is_act = matches!(right, Right::Publish | Right::Call | Right::Admin);
        if is_act || !matches!(verdict, Verdict::Allowed(_)) {
            audit.record(&AuditEntry {
                principal: Some(caller.principal()),
                right: Some(right),
                object,
                verdict,
                peer: caller.address(),
                request: caller.request(),
            });
        }
    }

    fn audit_unidentified(&self, address: Option<PeerAddress>, request: u64) {
        if let Some(audit) = &self.audit {
            audit.record(&AuditEntry {
                principal: None,
                right: None,
                object: Object::Service,
                verdict: &Verdict::Denied,
                peer: address.map(|address| address.0),
                request,
            });
        }
    }
}

fn result_of(error: Unauthenticated) -> AuthResult {
    match error {
        Unauthenticated::Missing => AuthResult::Missing,
        Unauthenticated::Invalid => AuthResult::Invalid,
        Unauthenticated::Unavailable => AuthResult::Unavailable,
        Unauthenticated::TooMany { .. } => AuthResult::TooMany,
    }
}

/// Returns the token of the `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, String> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err("the request has several Authorization headers; send one".into());
    }
    let wrong = || "the Authorization header cannot be read; send Bearer and a token".to_owned();
    let text = value.to_str().map_err(|_| wrong())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(wrong)?;
    let token = token.trim_matches(' ');
    let is_token = !token.is_empty() && token.bytes().all(is_of_token);
    if !scheme.eq_ignore_ascii_case("bearer") || !is_token {
        return Err(wrong());
    }
    Ok(Some(token))
}

fn is_of_token(byte: u8) -> bool {
    // RFC 6750, section 2.1.
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(values: &[&'static str]) -> Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
        }
        bearer(&headers).map(|token| token.map(str::to_owned))
    }

    #[test]
    fn bearer_is_one_well_formed_token() {
        assert_eq!(token(&[]), Ok(None));
        assert_eq!(token(&["Bearer abc.d-e_f~+/="]), Ok(Some("abc.d-e_f~+/=".into())));
        assert_eq!(token(&["bEARER abc"]), Ok(Some("abc".into())));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Basic abc",
            "abc",
            "Bearer a b",
            "Bearer a\tb",
            "Bearer a,b",
        ] {
            assert!(token(&[wrong]).is_err(), "{wrong}");
        }
        assert!(token(&["Bearer a", "Bearer a"]).is_err());
    }

    #[test]
    fn challenge_has_what_is_known() {
        let bare = Challenge::default();
        assert_eq!(bare.header(None, None), "Bearer");
        let full = Challenge {
            resource_metadata: Some("https://bus.example/.well-known/oauth-protected-resource/mcp".into()),
            scopes: vec!["read".into(), "tools".into()],
        };
        assert_eq!(
            full.header(None, None),
            "Bearer scope=\"read tools\", \
             resource_metadata=\"https://bus.example/.well-known/oauth-protected-resource/mcp\""
        );
        assert_eq!(
            full.header(Some("insufficient_scope"), Some("admin")),
            "Bearer error=\"insufficient_scope\", scope=\"admin\", \
             resource_metadata=\"https://bus.example/.well-known/oauth-protected-resource/mcp\""
        );
    }
}
