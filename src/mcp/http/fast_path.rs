//! The fast path: polls of `get_resource_etag` in their plain form, answered where they arrive.
//!
//! Clients that ignore notifications poll, so this is the request that a server gets most. On rmcp's path it costs
//! about five times the CPU of a bare HTTP handler (row `etag` of the benches): the body is parsed three times, a
//! service with its channels and tasks is made for one request, and two actors on another thread are asked.
//!
//! Owns: what counts as plain, and the answer's bytes. Never: refuses: everything that is unusual, wrong or unknown,
//! and every error, is left to the slow path, so that one place alone says no. What is answered here is byte for byte
//! what the slow path would answer, with the same effects on the session and the same counts; its tests send all they
//! can think of down both. Only what rmcp writes to its own log for each request is missing. Reads the board of the bus
//! through the tool that is registered, so a tool of somebody else's under that name is called like any other.

use std::sync::{Arc, PoisonError, RwLock};

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName, StatusCode};
use rmcp::model::ClientCapabilities;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::endpoint::{Answer, Inner, MCP_METHOD, PROTOCOL_VERSION, SESSION_ID};
use super::reply;
use crate::etag_tools::{GetResourceEtag, Verdict};
use crate::mcp::handler::{Handler, McpSession, SERVER_INFO_META_KEY};
use crate::mcp::revision::Revision;

const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
const METHOD: &str = "tools/call";
/// Digits of an id that surely is an integer of 64 bits.
const ID_DIGITS_MAX: usize = 18;

/// What the fast path keeps between polls.
pub(super) struct FastPath {
    /// The `_meta` of results of 2026-07-28; none if it could not be made.
    meta: Option<Box<RawValue>>,
    /// What answers under the tool's name if it is ours, and at which number of changes of tools that was found out.
    tool: RwLock<Option<(u64, Option<GetResourceEtag>)>>,
}

impl FastPath {
    pub(super) fn new(handler: &Handler) -> FastPath {
        FastPath {
            meta: to_raw_value(&json!({ SERVER_INFO_META_KEY: handler.server_info() })).ok(),
            tool: RwLock::default(),
        }
    }
}

impl Inner {
    /// The answer to a plain poll; none for everything else, and then nothing has happened.
    pub(super) async fn answer_poll(&self, headers: &HeaderMap, body: &[u8]) -> Option<Answer> {
        if sole(headers, &CONTENT_TYPE)? != JSON || !accepts_both(sole(headers, &ACCEPT)?) {
            return None;
        }
        let poll: Poll<'_> = serde_json::from_slice(body).ok()?;
        if !poll.is_plain() {
            return None;
        }
        let session = match &poll.params.meta {
            Some(meta) if meta.is_plain() && names_poll(headers) => None,
            Some(_) => return None,
            None => Some(self.session_of(headers)?),
        };
        let tool = self.poll_tool().await?;
        let Item { uri, client_etag } = poll.params.arguments;
        let verdict = tool.at_once(uri, client_etag)?;
        let answer = self.poll_answer(poll.id, &verdict, session.is_none())?;
        if let Some(session) = session {
            session.session.active();
        }
        self.handler.metrics.call_begins().ended(true);
        Some(reply::json(StatusCode::OK, answer))
    }

    /// The session that the headers name, if they name its revision too or none.
    fn session_of(&self, headers: &HeaderMap) -> Option<Arc<McpSession>> {
        let session = self.sessions.get(sole(headers, &SESSION_ID)?).ok()?;
        let named = headers.contains_key(PROTOCOL_VERSION);
        let fits = !named || sole(headers, &PROTOCOL_VERSION)? == session.revision.as_str();
        fits.then_some(session)
    }

    /// What answers under the tool's name, if it is ours.
    async fn poll_tool(&self) -> Option<GetResourceEtag> {
        // Before it is looked at: a change meanwhile has it looked at again.
        let changes = self.handler.bus.tool_changes();
        let known = self
            .fast_path
            .tool
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some((_, tool)) = known.filter(|(at, _)| *at == changes) {
            return tool;
        }
        let tool = Box::pin(self.handler.bus.tool(GetResourceEtag::NAME))
            .await
            .ok()?;
        let tool = tool.and_then(|tool| tool.handler::<GetResourceEtag>().cloned());
        let mut known = self
            .fast_path
            .tool
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *known = Some((changes, tool.clone()));
        tool
    }

    fn poll_answer(&self, id: &RawValue, verdict: &Verdict<'_>, stateless: bool) -> Option<String> {
        let text = serde_json::to_string(verdict).ok()?;
        let meta = match (stateless, &self.fast_path.meta) {
            (false, _) => None,
            (true, meta) => Some(meta.as_deref()?),
        };
        let result = PollResult {
            result_type: stateless.then_some("complete"),
            content: [Text {
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

/// The text of a header that is there once.
fn sole<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether a client takes both kinds of answers, without preferences among them.
fn accepts_both(accept: &str) -> bool {
    let takes = |kind| accept.split(',').any(|entry| entry.trim_matches(' ') == kind);
    !accept.contains([';', '"']) && takes(JSON) && takes(EVENT_STREAM)
}

/// Whether the headers say what the body says, in the revision that wants them to.
fn names_poll(headers: &HeaderMap) -> bool {
    sole(headers, &PROTOCOL_VERSION) == Some(Revision::R2026_07_28.as_str())
        && sole(headers, &MCP_METHOD) == Some(METHOD)
        && sole(headers, &MCP_NAME) == Some(GetResourceEtag::NAME)
}

/// A poll with nothing in it that is not known here. Texts are borrowed, so one that is written with escapes is not
/// plain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Poll<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: Item<'a>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item<'a> {
    uri: &'a str,
    #[serde(borrow, default)]
    client_etag: Option<&'a str>,
}

/// What a request of 2026-07-28 says of itself. Objects are read in full, so that what the slow path cannot read is not
/// taken here either.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: &'a str,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Map<String, Value>,
    #[serde(default, rename = "io.modelcontextprotocol/clientInfo")]
    _client: Option<Map<String, Value>>,
}

impl Poll<'_> {
    fn is_plain(&self) -> bool {
        self.jsonrpc == "2.0"
            && self.method == METHOD
            && self.params.name == GetResourceEtag::NAME
            && is_plain_id(self.id.get())
    }
}

impl Meta<'_> {
    fn is_plain(&self) -> bool {
        let known = || ClientCapabilities::deserialize(&self.capabilities).is_ok();
        self.version == Revision::R2026_07_28.as_str() && (self.capabilities.is_empty() || known())
    }
}

/// Whether an id is written as rmcp would write it back.
fn is_plain_id(id: &str) -> bool {
    let text = id.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match text {
        Some(text) => text
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\'),
        None => id.len() <= ID_DIGITS_MAX && id.bytes().all(|byte| byte.is_ascii_digit()),
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
    content: [Text<'a>; 1],
    structured_content: &'a Verdict<'a>,
    is_error: bool,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Text<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

#[cfg(test)]
mod tests;
