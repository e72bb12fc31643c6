//! The fast path: plain polls of `get_resource_etag`, answered without rmcp.
//!
//! Clients that ignore notifications poll, so this is the request that a server receives most. Through rmcp
//! it costs about five times the CPU of a bare HTTP handler (row `etag` of the benches): the body is parsed
//! three times, and a service with its channels and tasks is made for one request.
//!
//! The fast path never refuses. A request that is unusual, wrong or unknown goes to rmcp, so that all
//! refusals come from one place. An answer given here is byte for byte the answer of the slow path, with the
//! same effects on the session and the same counts; the tests send plain, odd and hostile requests both ways
//! and compare. Only the lines that rmcp writes to its own log for each request are missing.

use std::sync::{Arc, PoisonError, RwLock};

use ::http::request::Parts;
use ::http::{HeaderMap, StatusCode};
use rmcp::model::Implementation;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::headers::{MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, SESSION_ID, is_plain_post, sole};
use super::plain::{PlainMeta, is_plain_id};
use super::reply::{self, Answer};
use super::served::EndpointServer;
use super::sessions::Sessions;
use crate::Bus;
use crate::auth::{Caller, Object, Right};
use crate::mcp::etag_tools::{EtagVerdict, GetResourceEtag};
use crate::mcp::revision::{Revision, SERVER_INFO_META_KEY};
use crate::mcp::session::{McpContext, McpSession};
use crate::metrics::McpMetrics;

const METHOD: &str = "tools/call";

/// Answers plain polls, and keeps the parts that are the same in all of them.
pub(super) struct FastPath {
    bus: Bus,
    metrics: McpMetrics,
    sessions: Arc<Sessions>,
    /// The `_meta` of results of 2026-07-28; none if it could not be made.
    meta: Option<Box<RawValue>>,
    tool: RwLock<Option<KnownTool>>,
}

/// The handler of the tool's name, as it was at one number of changes of tools.
#[derive(Clone)]
struct KnownTool {
    tool_changes: u64,
    /// None when the name is not registered, or belongs to a tool of another publisher.
    handler: Option<GetResourceEtag>,
}

impl FastPath {
    pub(super) fn new(server: &McpContext, info: &Implementation, sessions: Arc<Sessions>) -> FastPath {
        FastPath {
            bus: server.bus.clone(),
            metrics: server.metrics.clone(),
            sessions,
            meta: to_raw_value(&json!({ SERVER_INFO_META_KEY: info })).ok(),
            tool: RwLock::default(),
        }
    }

    /// Answers a plain poll. Returns none for every other request, and then has had no effect.
    pub(super) async fn answer<S: EndpointServer>(
        &self,
        served: &S,
        parts: &Parts,
        body: &[u8],
    ) -> Option<Answer> {
        let headers = &parts.headers;
        let caller = Caller::of(&parts.extensions);
        // A read of the latest state waits for a server.
        if !is_plain_post(headers) || names_other_method(headers) || self.bus.reads_latest() {
            return None;
        }
        // Any other body ends the attempt at its first unknown field.
        let poll: Poll<'_> = serde_json::from_slice(body).ok()?;
        if !poll.is_plain() {
            return None;
        }
        let session = match &poll.params.meta {
            Some(meta) if meta.is_plain() && meta.etags.is_none() && names_poll(headers) => None,
            Some(_) => return None,
            None => Some(self.session(headers, caller)?),
        };
        let handler = self.tool_handler().await?;
        let PollArguments { uri, client_etag } = poll.params.arguments;
        // What the caller may not see is refused where all refusals come from.
        if let Some(caller) = caller
            && !(caller.sees(Right::Call, Object::Tool(GetResourceEtag::NAME))
                && caller.sees(Right::Read, Object::Resource(uri)))
        {
            return None;
        }
        let of_session = session.as_ref().map(|session| session.session.id());
        if !served.before_poll(uri, of_session, body).await {
            return None;
        }
        let verdict = handler.at_once(uri, client_etag)?;
        let answer = self.encode(poll.id, &verdict, session.is_none())?;
        // From here on nothing can fail: the session and the counters are touched only for an answer.
        if let Some(session) = session {
            session.session.active();
        }
        self.metrics.call_begins().ended(true);
        Some(reply::json(StatusCode::OK, answer))
    }

    /// Returns the session that the headers name, if they name its revision too or none.
    fn session(&self, headers: &HeaderMap, caller: Option<&Caller>) -> Option<Arc<McpSession>> {
        let session = self.sessions.get(sole(headers, &SESSION_ID)?, caller).ok()?;
        let fits = !headers.contains_key(PROTOCOL_VERSION)
            || sole(headers, &PROTOCOL_VERSION)? == session.revision.as_str();
        fits.then_some(session)
    }

    /// Returns the handler that answers under the tool's name, if it is the bus's own.
    async fn tool_handler(&self) -> Option<GetResourceEtag> {
        // Read before the look-up, so that a change during the look-up causes another one.
        let tool_changes = self.bus.tool_changes();
        let known = self.tool.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known
            && known.tool_changes == tool_changes
        {
            return known.handler;
        }
        let tool = Box::pin(self.bus.tool(GetResourceEtag::NAME)).await.ok()?;
        // A publisher may have replaced the tool with one of its own, whose answer is unknown here.
        let handler = match tool {
            Some(tool) => tool.handler::<GetResourceEtag>().cloned(),
            None => None,
        };
        *self.tool.write().unwrap_or_else(PoisonError::into_inner) = Some(KnownTool {
            tool_changes,
            handler: handler.clone(),
        });
        handler
    }

    fn encode(&self, id: &RawValue, verdict: &EtagVerdict<'_>, stateless: bool) -> Option<String> {
        let text = serde_json::to_string(verdict).ok()?;
        let meta = match (stateless, &self.meta) {
            (false, _) => None,
            (true, meta) => Some(meta.as_deref()?),
        };
        let result = PollResult {
            result_type: stateless.then_some("complete"),
            content: [TextBlock {
                kind: "text",
                text: &text,
            }],
            structured_content: verdict,
            is_error: false,
            meta,
        };
        let answer = PollAnswer {
            jsonrpc: "2.0",
            id,
            result,
        };
        serde_json::to_string(&answer).ok()
    }
}

/// Returns true when a header names another method, which saves the attempt to read the body as a call.
fn names_other_method(headers: &HeaderMap) -> bool {
    match headers.get(MCP_METHOD) {
        Some(method) => method != METHOD,
        None => false,
    }
}

/// Returns true when the headers say the same as the body, in the revision that requires it.
fn names_poll(headers: &HeaderMap) -> bool {
    sole(headers, &PROTOCOL_VERSION) == Some(Revision::STATELESS.as_str())
        && sole(headers, &MCP_METHOD) == Some(METHOD)
        && sole(headers, &MCP_NAME) == Some(GetResourceEtag::NAME)
}

/// A poll with no field that is unknown here. Texts are borrowed, so one that is written with escapes is not
/// plain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Poll<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    #[serde(borrow)]
    params: PollParams<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PollParams<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: PollArguments<'a>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<PlainMeta<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PollArguments<'a> {
    uri: &'a str,
    #[serde(borrow, default)]
    client_etag: Option<&'a str>,
}

impl Poll<'_> {
    fn is_plain(&self) -> bool {
        self.jsonrpc == "2.0"
            && self.method == METHOD
            && self.params.name == GetResourceEtag::NAME
            && is_plain_id(self.id.get())
    }
}

/// The answer, its fields in the order in which rmcp writes them.
#[derive(Serialize)]
struct PollAnswer<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: PollResult<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PollResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    content: [TextBlock<'a>; 1],
    structured_content: &'a EtagVerdict<'a>,
    is_error: bool,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

#[cfg(test)]
mod tests;
