//! The requests to a server's etag tools: which it has, what they answer, and waiting for a change by one of them.
//!
//! Owns the names of the tools and the reading of their answers, which may stand in structured content or in a text.
//! It remembers no etags; the task brings those it holds, and compares.

use std::future::Future;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, PaginatedRequestParams,
};
use rmcp::service::Peer;
use serde_json::{Value, json};

use super::{Link, LinkError, Refusal, or_refusal, within};
use crate::client::version::Version;

const ONE: &str = "get_resource_etag";
const MANY: &str = "get_resource_etags";
const WAIT: &str = "wait_for_resource_change";

/// How many resources are asked for with one call.
pub(in crate::client) const ITEMS_MAX: usize = 100;

/// How long a server may wait for a change before it answers: less than an answer may take, and less than a subscription
/// should wait for its turn at a server that answers one request at a time.
const WAIT_MILLIS: u64 = 20_000;

/// How many pages of tools are looked through.
const PAGES_MAX: usize = 20;

/// Which etag tools a server has: one of the first two at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::client) struct EtagTools {
    one: bool,
    many: bool,
    pub(in crate::client) wait: bool,
}

impl EtagTools {
    fn note(&mut self, name: &str) {
        match name {
            ONE => self.one = true,
            MANY => self.many = true,
            WAIT => self.wait = true,
            _ => {}
        }
    }
}

impl Link {
    /// Looks which etag tools the server has.
    pub(in crate::client) async fn find_tools(&mut self) -> Result<(), String> {
        let info = self.peer.peer_info();
        if info.is_none_or(|info| info.capabilities.tools.is_none()) {
            return Ok(());
        }
        let (mut found, mut cursor) = (EtagTools::default(), None);
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let listed = match within(self.peer.list_tools(Some(page))).await {
                Ok(listed) => listed,
                Err(LinkError::Refused(reason) | LinkError::Lost(reason)) => return Err(reason),
            };
            listed.tools.iter().for_each(|tool| found.note(&tool.name));
            cursor = listed.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        self.tools = (found.one || found.many).then_some(found);
        Ok(())
    }

    /// The etags of `uris`, in order, or why there is none.
    pub(super) async fn etags(
        &self,
        tools: &EtagTools,
        uris: &[String],
    ) -> Result<Vec<Result<Version, Refusal>>, String> {
        let mut versions = Vec::with_capacity(uris.len());
        for uris in uris.chunks(ITEMS_MAX) {
            if tools.many && (uris.len() > 1 || !tools.one) {
                match self.etags_together(uris).await {
                    Ok(together) => {
                        versions.extend(together.into_iter().map(Ok));
                        continue;
                    }
                    // One that is unknown spoils the call for all.
                    Err(LinkError::Refused(_)) => {}
                    Err(LinkError::Lost(reason)) => return Err(reason),
                }
            }
            for uri in uris {
                let version = self.etag(tools, uri).await;
                versions.push(or_refusal(uri, version)?);
            }
        }
        Ok(versions)
    }

    async fn etag(&self, tools: &EtagTools, uri: &str) -> Result<Version, LinkError> {
        if !tools.one {
            let mut versions = self.etags_together(&[uri.to_owned()]).await?;
            return versions.pop().ok_or_else(|| nonsense(MANY));
        }
        let answer = call(self.peer.clone(), ONE, json!({ "uri": uri })).await?;
        version_in(&answer).ok_or_else(|| nonsense(ONE))
    }

    async fn etags_together(&self, uris: &[String]) -> Result<Vec<Version>, LinkError> {
        let items: Vec<Value> = uris.iter().map(|uri| json!({ "uri": uri })).collect();
        let answer = call(self.peer.clone(), MANY, json!({ "items": items })).await?;
        versions_in(&answer, uris).ok_or_else(|| nonsense(MANY))
    }

    /// Waits at the server until one of `held`, resources and the etags they have, is at another version, or for a
    /// while; answers the versions they have then. Dropping it cancels the request.
    pub(in crate::client) fn wait_for_change(
        &self,
        held: &[(String, Option<String>)],
    ) -> impl Future<Output = Result<Vec<Version>, LinkError>> + Send + 'static {
        let item = |(uri, etag): &(String, Option<String>)| json!({ "uri": uri, "client_etag": etag });
        let items: Vec<Value> = held.iter().map(item).collect();
        let arguments = json!({ "items": items, "timeout_ms": WAIT_MILLIS });
        let uris: Vec<String> = held.iter().map(|(uri, _)| uri.clone()).collect();
        let peer = self.peer.clone();
        async move {
            let answer = call(peer, WAIT, arguments).await?;
            versions_in(&answer, &uris).ok_or_else(|| nonsense(WAIT))
        }
    }
}

/// Calls `tool` and reads its answer.
async fn call(peer: Peer<RoleClient>, tool: &'static str, arguments: Value) -> Result<Value, LinkError> {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = arguments.as_object().cloned();
    match within(peer.call_tool_once(request)).await? {
        CallToolResponse::Complete(result) => answer_in(result, tool),
        _ => Err(LinkError::Refused(format!(
            "{tool} wants input before it answers"
        ))),
    }
}

/// The object that a tool answered: its structured content, else its text.
fn answer_in(result: CallToolResult, tool: &str) -> Result<Value, LinkError> {
    let text = result.content.iter().find_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.clone()),
        _ => None,
    });
    if result.is_error == Some(true) {
        let unnamed = || format!("{tool} failed without a word");
        return Err(LinkError::Refused(text.unwrap_or_else(unnamed)));
    }
    let parsed = || serde_json::from_str(&text?).ok();
    let answer: Value = result
        .structured_content
        .filter(Value::is_object)
        .or_else(parsed)
        .ok_or_else(|| nonsense(tool))?;
    // Some libraries wrap what a function returned.
    Ok(match answer.get("result") {
        Some(inner) if inner.is_object() => inner.clone(),
        _ => answer,
    })
}

fn nonsense(tool: &str) -> LinkError {
    LinkError::Refused(format!("{tool} does not answer with etags"))
}

fn version_in(verdict: &Value) -> Option<Version> {
    Some(Version {
        etag: Some(verdict.get("etag_encoded")?.as_str()?.to_owned()),
        digest: None,
    })
}

/// The versions of all of `uris`, in order, whatever order the answer has.
fn versions_in(answer: &Value, uris: &[String]) -> Option<Vec<Version>> {
    let items = answer.get("items")?.as_array()?;
    let of = |uri: &String| {
        items
            .iter()
            .find(|item| item["uri"] == uri.as_str())
            .and_then(version_in)
    };
    uris.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uris(uris: &[&str]) -> Vec<String> {
        uris.iter().map(|uri| (*uri).to_owned()).collect()
    }

    #[test]
    fn etags_are_found_by_the_name_of_the_resource() {
        let answer = json!({ "items": [
            { "uri": "demo://b", "etag_encoded": "v2-1" },
            { "uri": "demo://a", "etag_encoded": "v1-1" },
        ] });
        let etags = |names: &[&str]| {
            let versions = versions_in(&answer, &uris(names))?;
            versions
                .into_iter()
                .map(|version| version.etag)
                .collect::<Option<Vec<_>>>()
        };
        assert_eq!(etags(&["demo://a", "demo://b"]).unwrap(), ["v1-1", "v2-1"]);
        assert_eq!(etags(&["demo://a", "demo://c"]), None);
    }

    #[test]
    fn an_answer_may_be_structured_wrapped_or_a_text() {
        let plain = json!({ "etag_encoded": "v1-1" });
        for result in [
            CallToolResult::structured(plain.clone()),
            CallToolResult::structured(json!({ "result": plain })),
            CallToolResult::success(vec![ContentBlock::text(plain.to_string())]),
        ] {
            assert_eq!(answer_in(result, ONE).unwrap(), plain);
        }
        for (result, expected) in [
            (
                CallToolResult::error(vec![ContentBlock::text("unknown")]),
                "unknown",
            ),
            (
                CallToolResult::success(vec![ContentBlock::text("not JSON")]),
                "get_resource_etag does not answer with etags",
            ),
        ] {
            let Err(LinkError::Refused(reason)) = answer_in(result, ONE) else {
                panic!("{expected}");
            };
            assert_eq!(reason, expected);
        }
    }
}
