//! The states of tokens that only their issuer knows: asked for, remembered for a short time, and asked for
//! again while something holds them.
//!
//! A token that the issuer does not confirm in time is good no more, whatever the reason. A token itself is
//! kept in memory as long as its state is, since it is needed to ask again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt, Shared as SharedFuture};
use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::warn;

use super::authenticate::Unauthenticated;
use super::introspection_endpoint::IntrospectionEndpoint;
use super::jwt::{TOKEN_LEN_MAX, TokenRules};
use super::principal::{Principal, PrincipalBuilder, Revocable};
use super::token_line::{PREFIX, TokenHash};
use crate::metrics::{self, IntrospectionOutcome, Limit};

/// The time for one question, with the look for the endpoint.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for a question about a token that is in use, so that a late answer leaves time for another one.
const ASK_AGAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time for which the refusal of a token is remembered.
const REFUSED_AGE: Duration = Duration::from_secs(10);
/// Most tokens that are good, and most refused ones, whose state is remembered.
const REMEMBERED_MAX: usize = 10_000;
/// Most unknown tokens that are asked for at a time. Further ones cannot be checked.
const ASKED_MAX: usize = 256;
/// Most tokens in use that are asked for at a time.
const ASKED_AGAIN_MAX: usize = 32;

/// The look-up of the tokens of one issuer. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Introspection(Arc<Shared>);

struct Shared {
    endpoint: IntrospectionEndpoint,
    rules: TokenRules,
    /// The longest time for which an answer holds.
    age: Duration,
    state: Mutex<TokenStates>,
    /// Grows when a token that was good is good no more.
    revocations: Arc<AtomicU64>,
    /// The runtime of the questions, since the caller of one may be gone before its answer.
    runtime: Handle,
}

type Asked = SharedFuture<BoxFuture<'static, Result<Principal, Unauthenticated>>>;

#[derive(Default)]
struct TokenStates {
    active: HashMap<TokenHash, Active>,
    /// The times until which tokens are refused without a question.
    refused: HashMap<TokenHash, Instant>,
    asked: HashMap<TokenHash, Asked>,
    /// The reason of the last failure, so that each is reported once.
    failure: Option<String>,
}

/// A token that was good when the issuer was asked last.
struct Active {
    token: Arc<str>,
    principal: Principal,
    confirmed: Arc<Confirmed>,
    /// The time at which to ask again, if it is in use.
    ask_at: Instant,
}

/// The time until which the last answer holds; none once the token was taken back. Part of the principals
/// that were made of the token.
#[derive(Debug)]
struct Confirmed(Mutex<Option<Instant>>);

impl Confirmed {
    fn set(&self, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn until(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Revocable for Confirmed {
    fn is_revoked(&self) -> bool {
        match self.until() {
            Some(until) => until <= Instant::now(),
            None => true,
        }
    }
}

impl Introspection {
    /// Begins with no tokens. Must be called on a runtime, which makes the requests.
    pub(super) fn new(
        endpoint: IntrospectionEndpoint,
        rules: TokenRules,
        age: Duration,
        revocations: Arc<AtomicU64>,
    ) -> Introspection {
        Introspection(Arc::new(Shared {
            endpoint,
            rules,
            age,
            state: Mutex::default(),
            revocations,
            runtime: Handle::current(),
        }))
    }

    /// Returns the principal of a token that was asked for a short time ago; costs no request.
    pub(super) fn remembered(&self, hash: &TokenHash, now: SystemTime) -> Option<Principal> {
        let state = self.0.state();
        let principal = &state.active.get(hash)?.principal;
        let is_good = !principal.is_revoked() && !principal.has_ended(now);
        is_good.then(|| principal.clone())
    }

    /// Asks for a token, unless its state is known. Calls for one token at the same time share one question.
    ///
    /// # Errors
    /// [`Unauthenticated::Invalid`] for every cause alike; [`Unauthenticated::Unavailable`] if the issuer
    /// gives no answer that can be used, or too many are being asked for.
    pub(super) async fn check(&self, token: &str, hash: &TokenHash) -> Result<Principal, Unauthenticated> {
        // The issuer never made a token of this form, and must not learn one.
        if token.len() > TOKEN_LEN_MAX || token.starts_with(PREFIX) {
            return Err(Unauthenticated::Invalid);
        }
        if let Some(principal) = self.remembered(hash, SystemTime::now()) {
            return Ok(principal);
        }
        let asked = {
            let mut state = self.0.state();
            if let Some(until) = state.refused.get(hash)
                && Instant::now() < *until
            {
                return Err(Unauthenticated::Invalid);
            }
            if state.asked.len() >= ASKED_MAX && !state.asked.contains_key(hash) {
                metrics::limit_reached(Limit::Introspected);
                return Err(Unauthenticated::Unavailable);
            }
            self.begin(&mut state, token.into(), *hash, ASK_TIMEOUT)
        };
        asked.await
    }

    /// Asks again for the tokens that something holds, until the last clone is dropped. What was opened with
    /// a token that is not confirmed in time ends then.
    pub(super) fn keep_asking(&self) {
        let kept = Arc::downgrade(&self.0);
        // Often enough that an answer and the look at it are within the age.
        let every = (self.0.age / 8).clamp(Duration::from_millis(100), Duration::from_secs(1));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(shared) = kept.upgrade() else {
                    return;
                };
                let introspection = Introspection(shared);
                let due = introspection.due();
                if !due.is_empty() {
                    // Not waited for: tokens that are not confirmed must end in time.
                    tokio::spawn(introspection.ask_again(due));
                }
            }
        });
    }

    async fn ask_again(self, due: Vec<(TokenHash, Arc<str>)>) {
        let asked = stream::iter(due).for_each_concurrent(ASKED_AGAIN_MAX, |(hash, token)| {
            let asked = self.begin(&mut self.0.state(), token, hash, ASK_AGAIN_TIMEOUT);
            async move {
                // What it says is in the table then.
                drop(asked.await);
            }
        });
        asked.await;
    }

    /// Removes the tokens that were not confirmed in time. Returns those to ask for again.
    fn due(&self) -> Vec<(TokenHash, Arc<str>)> {
        let now = Instant::now();
        let mut due = Vec::new();
        let mut has_ended = false;
        let mut state = self.0.state();
        state.active.retain(|hash, active| {
            let is_in_use = active.is_in_use();
            if active.confirmed.is_revoked() {
                has_ended |= is_in_use;
                return false;
            }
            if is_in_use && active.ask_at <= now {
                // Asked for once more before its time is over, if there is no answer.
                active.ask_at = now + self.0.age / 8;
                due.push((*hash, active.token.clone()));
            }
            true
        });
        state.refused.retain(|_, until| now < *until);
        drop(state);
        if has_ended {
            self.0.note_revocation();
        }
        due
    }

    /// Begins a question, or joins the one under way for this token.
    fn begin(&self, state: &mut TokenStates, token: Arc<str>, hash: TokenHash, time: Duration) -> Asked {
        if let Some(asked) = state.asked.get(&hash) {
            return asked.clone();
        }
        let question = Question {
            shared: self.0.clone(),
            token,
            hash,
        };
        // A task of its own: a caller that leaves must not end the question that others wait for.
        let task = self.0.runtime.spawn(question.answer(time));
        let asked = async move { task.await.unwrap_or(Err(Unauthenticated::Unavailable)) };
        let asked = asked.boxed().shared();
        state.asked.insert(hash, asked.clone());
        asked
    }
}

/// A question that is under way, until it is dropped.
struct Question {
    shared: Arc<Shared>,
    token: Arc<str>,
    hash: TokenHash,
}

impl Question {
    async fn answer(self, time: Duration) -> Result<Principal, Unauthenticated> {
        // An answer tells the state at some time after this.
        let asked_at = Instant::now();
        let answer = match tokio::time::timeout(time, self.shared.endpoint.ask(&self.token)).await {
            Ok(answer) => answer,
            Err(_) => Err("there was no answer in time".to_owned()),
        };
        let answer = answer.map_err(|reason| {
            metrics::introspected(IntrospectionOutcome::Unavailable);
            self.shared.report(reason);
            Unauthenticated::Unavailable
        })?;
        self.shared.state().failure = None;
        match self.judge(&answer) {
            Some(principal) => self.shared.confirm(&self, principal, asked_at),
            None => {
                self.shared.refuse(self.hash);
                Err(Unauthenticated::Invalid)
            }
        }
    }

    fn judge(&self, answer: &Value) -> Option<PrincipalBuilder> {
        if answer.get("active") != Some(&Value::Bool(true)) {
            metrics::introspected(IntrospectionOutcome::Inactive);
            return None;
        }
        let checked = self
            .shared
            .rules
            .check_answer(answer, &self.hash, SystemTime::now());
        metrics::introspected(match checked {
            Some(_) => IntrospectionOutcome::Active,
            None => IntrospectionOutcome::Unfit,
        });
        checked
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.shared.state().asked.remove(&self.hash);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, TokenStates> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_revocation(&self) {
        self.revocations.fetch_add(1, Ordering::Release);
    }

    fn report(&self, reason: String) {
        let mut state = self.state();
        if state.failure.as_ref() != Some(&reason) {
            let issuer = self.endpoint.issuer();
            warn!(%issuer, %reason, "an issuer cannot be asked for the state of a token, which is refused");
            state.failure = Some(reason);
        }
    }

    /// Remembers a good answer.
    fn confirm(
        &self,
        question: &Question,
        principal: PrincipalBuilder,
        asked_at: Instant,
    ) -> Result<Principal, Unauthenticated> {
        let until = asked_at + self.age;
        let ask_at = asked_at + self.age * 2 / 3;
        let confirmed = Arc::new(Confirmed(Mutex::new(Some(until))));
        let principal = principal.revocable(confirmed.clone()).build();
        let mut state = self.state();
        state.refused.remove(&question.hash);
        if let Some(known) = state.active.get_mut(&question.hash) {
            if known.goes_on_as(&principal) {
                known.confirmed.set(Some(until));
                known.ask_at = ask_at;
                return Ok(known.principal.clone());
            }
            // What was opened with other roles or scopes ends, as with a static token.
            known.confirmed.set(None);
            self.note_revocation();
        } else if !state.has_room() {
            drop(state);
            metrics::limit_reached(Limit::Introspected);
            return Err(Unauthenticated::Unavailable);
        }
        let active = Active {
            token: question.token.clone(),
            principal: principal.clone(),
            confirmed,
            ask_at,
        };
        state.active.insert(question.hash, active);
        Ok(principal)
    }

    /// Remembers a refusal, and ends what was opened with the token.
    fn refuse(&self, hash: TokenHash) {
        let mut state = self.state();
        let removed = state.active.remove(&hash);
        if state.refused.len() < REMEMBERED_MAX {
            let until = Instant::now() + REFUSED_AGE.min(self.age);
            state.refused.insert(hash, until);
        }
        drop(state);
        if let Some(active) = removed {
            active.confirmed.set(None);
            self.note_revocation();
        }
    }
}

impl TokenStates {
    /// Makes room for one more token, of those that nothing holds. Returns false if there is none.
    fn has_room(&mut self) -> bool {
        if self.active.len() < REMEMBERED_MAX {
            return true;
        }
        let unused = self.active.iter().find(|(_, active)| !active.is_in_use());
        match unused.map(|(hash, _)| *hash) {
            Some(hash) => self.active.remove(&hash).is_some(),
            None => false,
        }
    }
}

impl Active {
    /// Returns true if a request, a session or a stream holds the token.
    fn is_in_use(&self) -> bool {
        self.principal.is_shared()
    }

    /// Returns true if the principal of a new answer has the same rights for at least the same time. What is
    /// open goes on until the end that it knows.
    fn goes_on_as(&self, new: &Principal) -> bool {
        let ends_earlier = match (new.expires(), self.principal.expires()) {
            (Some(new), Some(known)) => new < known,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let known = &self.principal;
        let is_same =
            known.id() == new.id() && known.roles() == new.roles() && known.scopes() == new.scopes();
        is_same && !ends_earlier && !known.has_ended(SystemTime::now())
    }
}

#[cfg(test)]
mod tests;
