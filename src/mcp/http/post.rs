//! POST: a message is answered by the fast path, by a stream, or by rmcp, after its session was found.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use ::http::request::Parts;
use ::http::{HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Full};
use serde_json::value::RawValue;

use super::batch::{self, AnswerMessages};
use super::endpoint::EndpointState;
use super::headers::{self, MCP_METHOD, PROTOCOL_VERSION, SESSION_ID};
use super::reply::{self, Answer, Refusal, answer_or_refusal};
use super::served::EndpointServer;
use super::single_event;
use crate::auth::{Caller, Object, Right};
use crate::http::Counted;
use crate::http::problem::Problem;
use crate::mcp::params;
use crate::mcp::peek::{Peek, UsedRight};
use crate::mcp::revision::Revision;
use crate::mcp::running_calls::CallCancellation;
use crate::mcp::session::{McpSession, SessionSlot};
use crate::mcp::subscribe_result::CurrentEtag;

impl<S: EndpointServer> EndpointState<S> {
    /// Answers a POST, whose head is judged before a byte of its body is read.
    pub(super) async fn receive_post<B>(&self, parts: Parts, body: B) -> Result<Answer, Refusal>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        self.judge_head(&parts).await?;
        let max = self.server.options.body_bytes_max;
        let received = self.limits.receive(&parts.headers, body, max).await;
        let received = received.map_err(|fault| reply::unreceived(fault, max))?;
        // The body counts as in flight until it is answered.
        self.post(parts, received.bytes.clone()).await
    }

    /// Judges what the head alone shows.
    ///
    /// # Errors
    /// The refusal of a body that is no JSON, or of a session that has ended or never was. It has no id, as
    /// that is in the body.
    pub(super) async fn judge_head(&self, parts: &Parts) -> Result<(), Refusal> {
        if !headers::is_json(&parts.headers) {
            // rmcp refuses this by the head alone, and so words every refusal of a media type.
            let refusal = self.forward(parts.clone(), Bytes::new()).await;
            return Err(reply::with_message(refusal, None, &[]).await.into());
        }
        if headers::names_session(&parts.headers) {
            self.session(parts, None).await?;
        }
        Ok(())
    }

    async fn post(&self, parts: Parts, body: Bytes) -> Result<Answer, Refusal> {
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Box::pin(self.batch(parts, &body)).await;
        }
        if let Some(answer) = self.fast_path.answer(&self.served, &parts, &body).await {
            return Ok(answer);
        }
        // Boxed: rmcp's part is kilobytes of state, which every request would carry along however it is
        // answered.
        Box::pin(self.message(parts, body)).await
    }

    /// Answers a POST of several messages: an array of the answers to its requests, or 202 when it has none.
    pub(super) async fn batch(&self, parts: Parts, body: &Bytes) -> Result<Answer, Refusal> {
        let session = self.session(&parts, None).await?;
        if !session.revision.rules().allows_batches {
            let text = format!(
                "revision {} has no batches; send one message per request",
                session.revision.as_str()
            );
            return Err(reply::bad_request(None, &text).into());
        }
        let messages = batch::split(body, self.server.options.batch_max)?;
        // One of them was counted when the request came.
        let others = messages.len().saturating_sub(1);
        let counted = self.limits.requests(&Counted::of(&parts.extensions), others);
        counted.map_err(|exceeded| reply::too_many_requests(None, exceeded))?;
        let mut answers = Vec::new();
        for message in messages {
            let answer = match Peek::of(&message) {
                // 2025-03-26, basic/lifecycle: nothing may be sent beside it, as the revision is not settled.
                Ok(peek) if peek.is_initialize() => {
                    reply::bad_request(peek.id(), "initialize cannot be in a batch")
                }
                // A refused message is answered in its place; the others are answered all the same.
                _ => answer_or_refusal(self.message(parts.clone(), message.clone()).await),
            };
            answers.extend(self.batched_response(&parts, answer).await);
        }
        Ok(batch::join(&answers))
    }

    /// Returns the response in the answer to a message of a batch. Messages of a tool that come before are
    /// dropped, and requests among them refused.
    async fn batched_response(&self, parts: &Parts, answer: Answer) -> Option<String> {
        // Dropped as they arrive: an array of answers has no place for them, and gathering them would hold
        // memory for as long as the tool runs.
        let mut messages = AnswerMessages::of(answer);
        while let Some(message) = messages.next().await {
            if batch::is_response(&message) {
                return Some(message);
            }
            // A tool that asks its client would wait for an answer until it is stopped, and the other
            // messages of the batch with it.
            if S::KEEPS_SESSIONS
                && let Ok(peek) = Peek::of(message.as_bytes())
                && let Some((id, method)) = peek.request()
            {
                self.forward(parts.clone(), batch::unseen_request(id, method))
                    .await;
            }
        }
        None
    }

    /// Answers a POST of one message.
    pub(super) async fn message(&self, parts: Parts, body: Bytes) -> Result<Answer, Refusal> {
        let peek = Peek::of(&body).map_err(|error| reply::parse_error(&error))?;
        check_scope(&parts, &peek)?;
        let answer = self.route(parts, &peek, &body).await?;
        Ok(reply::with_message(answer, peek.id(), &body).await)
    }

    async fn route(&self, mut parts: Parts, peek: &Peek<'_>, body: &Bytes) -> Result<Answer, Refusal> {
        if peek.is_initialize() {
            // Its header alone does not count: clients send it with the requests that they begin with. One
            // whose own metadata names the revision without sessions asks for a method that this revision
            // lacks.
            check_params(peek, peek.is_stateless(None))?;
            return self.initialize(parts, peek, body.clone()).await;
        }
        let version = headers::text(&parts.headers, &PROTOCOL_VERSION);
        if peek.is_stateless(version) {
            // An unknown version is refused first, by rmcp.
            if !matches!(version.map(Revision::parse), Some(None)) {
                check_params(peek, true)?;
            }
            if let Some(id) = peek.listen_id() {
                return self.listen(parts, id, peek.params(), body).await;
            }
            if let Some(method) = peek.notification()
                && !parts.headers.contains_key(MCP_METHOD)
                && let Ok(method) = HeaderValue::from_str(method)
            {
                // The specification asks this header of requests only. rmcp asks it of notifications too, and
                // the official TypeScript client does not send it with its cancellations.
                parts.headers.insert(MCP_METHOD, method);
            }
            return Ok(self.forward(parts, body.clone()).await);
        }
        let session = self.session(&parts, peek.id()).await?;
        // Noted before the message is handled: an idle session must not end while its request is on the way.
        session.session.active();
        self.session_message(session, parts, peek, body.clone()).await
    }

    /// Answers a message of a session.
    async fn session_message(
        &self,
        session: Arc<McpSession>,
        mut parts: Parts,
        peek: &Peek<'_>,
        body: Bytes,
    ) -> Result<Answer, Refusal> {
        Ok(match peek.notification() {
            Some("notifications/initialized") if S::KEEPS_SESSIONS => {
                // The handler decides when its client is ready to be told of the lists.
                parts.extensions.insert(session);
                self.forward(parts, body).await
            }
            Some("notifications/initialized") => {
                if session.session.ready().await.is_err() {
                    // The notification has no answer that could say so; the client's next request gets a 404.
                    tracing::debug!("a session ended before its client was ready");
                }
                self.note_ready(&session).await;
                reply::accepted()
            }
            Some(_) => {
                if let Some(id) = peek.cancelled_id() {
                    session.calls.cancel(&id);
                }
                self.forward(parts, body).await
            }
            // An answer to a request of the handler, which is as old as the session.
            None if peek.is_response() && S::KEEPS_SESSIONS => self.forward(parts, body).await,
            // The server sends no requests in a session, so a response answers none of them.
            None if peek.is_response() => reply::accepted(),
            None => {
                check_params(peek, false)?;
                // The oldest revisions have no such header, and rmcp would take its absence for 2025-03-26.
                let version = HeaderValue::from_static(session.revision.as_str());
                parts.headers.entry(PROTOCOL_VERSION).or_insert(version);
                let recorded = peek.changes_subscriptions().then(|| session.clone());
                parts.extensions.insert(session);
                let answer = match peek.subscribe_id() {
                    Some(id) => self.subscribe(parts, id, body).await,
                    None if peek.is_tool_call() => self.tool_call(parts, body).await,
                    None => self.request(parts, body).await,
                };
                match recorded {
                    Some(session) => self.with_record(&session, peek, answer).await,
                    None => answer,
                }
            }
        })
    }

    /// Answers `resources/subscribe`, with the current etag if the client said which one it holds.
    async fn subscribe(&self, mut parts: Parts, id: &RawValue, body: Bytes) -> Answer {
        let current = CurrentEtag::default();
        parts.extensions.insert(current.clone());
        let answer = self.request(parts, body).await;
        match current.result() {
            Some(result) => reply::result(id, &result),
            None => answer,
        }
    }

    /// Answers a tool call of a session; with a stream that ends at once if the client cancels it, as no
    /// response is due then.
    async fn tool_call(&self, mut parts: Parts, body: Bytes) -> Answer {
        let cancellation = CallCancellation::default();
        parts.extensions.insert(cancellation.clone());
        tokio::select! {
            biased;
            () = cancellation.cancelled() => reply::no_response(),
            answer = self.request(parts, body) => answer,
        }
    }

    /// Lets rmcp answer a request of a session. With sessions of its own rmcp answers with a stream, which
    /// is only of use if messages come before the response.
    async fn request(&self, parts: Parts, body: Bytes) -> Answer {
        let answer = self.forward(parts, body).await;
        match S::KEEPS_SESSIONS {
            true => single_event::as_json(answer).await,
            false => answer,
        }
    }

    /// Lets rmcp validate and answer a request.
    pub(super) async fn forward(&self, parts: Parts, body: Bytes) -> Answer {
        self.rmcp
            .handle(Request::from_parts(parts, Full::new(body)))
            .await
    }

    async fn initialize(&self, mut parts: Parts, peek: &Peek<'_>, body: Bytes) -> Result<Answer, Refusal> {
        let place = self.place_for_session(&parts, peek.id())?;
        // The handler is made anew for each request, so it leaves the session in a slot beside the request.
        let slot: SessionSlot = Arc::new(OnceLock::new());
        parts.extensions.insert(slot.clone());
        parts.headers.remove(SESSION_ID);
        let mut answer = self.request(parts.clone(), body).await;
        // The id is that of the server's part of the session if there is one.
        let kept = answer.headers_mut().remove(SESSION_ID);
        let Some(session) = slot.get() else {
            return Ok(reply::unavailable_if_full(answer).await);
        };
        let key = self.add_session(&parts, peek, session, (place, kept)).await?;
        if let Ok(key) = HeaderValue::from_str(&key) {
            answer.headers_mut().insert(SESSION_ID, key);
        }
        Ok(answer)
    }
}

/// Refuses a request for which a token with one more scope would do. Every other lack of a right is judged
/// where the request is answered, as if its object did not exist.
fn check_scope(parts: &Parts, peek: &Peek<'_>) -> Result<(), Refusal> {
    let Some(caller) = Caller::of(&parts.extensions) else {
        return Ok(());
    };
    let Some(border) = caller.border() else {
        return Ok(());
    };
    let Some((right, name)) = peek.used_right() else {
        return Ok(());
    };
    let object = match right {
        UsedRight::Read => (Right::Read, Object::Resource(&name)),
        UsedRight::Subscribe => (Right::Subscribe, Object::Resource(&name)),
        UsedRight::Call => (Right::Call, Object::Tool(&name)),
        UsedRight::Prompt => (Right::Read, Object::Prompt(&name)),
        UsedRight::Method => (Right::Call, Object::Method(&name)),
    };
    let (right, object) = object;
    let Some(scope) = caller.lacks_scope(right, object) else {
        return Ok(());
    };
    let problem = Problem::from(border.insufficient_scope(&scope));
    let refusal = problem.respond(parts.uri.path());
    Err(refusal.map(|body| Full::new(body).boxed()).into())
}

/// Checks the parameters of a message, if it is a request.
///
/// # Errors
/// The refusal, -32602: within HTTP 200 in a session, as every error of a request that was understood there,
/// and with HTTP 400 in the revision whose requests stand alone.
fn check_params(peek: &Peek<'_>, stateless: bool) -> Result<(), Refusal> {
    let Some((id, method)) = peek.request() else {
        return Ok(());
    };
    params::check(method, peek.params(), stateless).map_err(|refusal| {
        let status = match stateless {
            true => StatusCode::BAD_REQUEST,
            false => StatusCode::OK,
        };
        reply::error(Some(id), status, &refusal).into()
    })
}
