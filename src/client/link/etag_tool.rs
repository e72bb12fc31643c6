//! The etag tools of a server: finding them, calling them, and reading their answers.

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, PaginatedRequestParams,
};
use rmcp::service::Peer;
use serde_json::{Value, json};

use super::{Link, LinkError, Lost, RefusedResource, or_refusal, within};
use crate::client::version::{Version, etag_in};

const ONE: &str = "get_resource_etag";
const MANY: &str = "get_resource_etags";
const WAIT: &str = "wait_for_resource_change";

/// The number of resources in one call.
pub(in crate::client) const ITEMS_MAX: usize = 100;

/// The time that a call of [`WAIT`] may wait at the server: less than
/// [`ANSWER_TIMEOUT`](super::ANSWER_TIMEOUT), and short enough that a subscription does not wait for long at
/// a server that answers one request at a time.
const WAIT_MILLIS: u64 = 20_000;

/// The number of pages of `tools/list` that are read. A server that never ends its list is not followed
/// further.
const PAGES_MAX: usize = 20;

/// The etag tools of a server: one of `one` and `many` at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::client) struct EtagTools {
    one: bool,
    many: bool,
    /// The server can hold a request until a resource changes.
    pub(in crate::client) wait: bool,
}

impl EtagTools {
    fn add(&mut self, name: &str) {
        match name {
            ONE => self.one = true,
            MANY => self.many = true,
            WAIT => self.wait = true,
            _ => {}
        }
    }
}

impl Link {
    /// Looks for etag tools in the server's list of tools.
    ///
    /// # Errors
    /// The reason that the list could not be read; the server is then used without its tools.
    pub(in crate::client) async fn find_tools(&mut self) -> Result<(), String> {
        match self.peer.peer_info() {
            Some(info) if info.capabilities.tools.is_some() => {}
            _ => return Ok(()),
        }
        let mut found = EtagTools::default();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let listed = match within(self.peer.list_tools(Some(page))).await {
                Ok(listed) => listed,
                Err(LinkError::Refused(reason) | LinkError::Lost(Lost(reason))) => return Err(reason),
            };
            for tool in &listed.tools {
                found.add(&tool.name);
            }
            cursor = listed.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        self.tools = (found.one || found.many).then_some(found);
        Ok(())
    }

    /// Returns the etag of each of `uris`, in order.
    pub(super) async fn etags(
        &self,
        tools: &EtagTools,
        uris: &[String],
    ) -> Result<Vec<Result<Version, RefusedResource>>, Lost> {
        let mut versions = Vec::with_capacity(uris.len());
        for uris in uris.chunks(ITEMS_MAX) {
            if tools.many && (uris.len() > 1 || !tools.one) {
                match self.etags_in_one_call(uris).await {
                    Ok(together) => {
                        versions.extend(together);
                        continue;
                    }
                    // With some servers one unknown URI fails the call for all, so each is asked for by
                    // itself below.
                    Err(LinkError::Refused(_)) => {}
                    Err(LinkError::Lost(lost)) => return Err(lost),
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
            let mut versions = self.etags_in_one_call(&[uri.to_owned()]).await?;
            return match versions.pop() {
                Some(Ok(version)) => Ok(version),
                Some(Err(refused)) => Err(LinkError::Refused(refused.reason)),
                None => Err(no_etags(MANY)),
            };
        }
        let answer = call(self.peer.clone(), ONE, json!({ "uri": uri })).await?;
        version_in(&answer).ok_or_else(|| no_etags(ONE))
    }

    async fn etags_in_one_call(&self, uris: &[String]) -> Result<Vec<ItemVersion>, LinkError> {
        let items: Vec<Value> = uris.iter().map(|uri| json!({ "uri": uri })).collect();
        let answer = call(self.peer.clone(), MANY, json!({ "items": items })).await?;
        versions_in(&answer, uris).ok_or_else(|| no_etags(MANY))
    }

    /// Waits at the server until one of `held`, resources with their etags, changes or [`WAIT_MILLIS`] have
    /// passed. Returns their versions then. Dropping the future cancels the request.
    pub(in crate::client) fn wait_for_change(
        &self,
        held: &[(String, Option<String>)],
    ) -> impl Future<Output = Result<Vec<ItemVersion>, LinkError>> + Send + 'static {
        let mut items = Vec::with_capacity(held.len());
        let mut uris = Vec::with_capacity(held.len());
        for (uri, etag) in held {
            items.push(json!({ "uri": uri, "client_etag": etag }));
            uris.push(uri.clone());
        }
        let arguments = json!({ "items": items, "timeout_ms": WAIT_MILLIS });
        let peer = self.peer.clone();
        async move {
            let answer = call(peer, WAIT, arguments).await?;
            versions_in(&answer, &uris).ok_or_else(|| no_etags(WAIT))
        }
    }
}

/// Calls `tool` and returns the object that it answers.
async fn call(peer: Peer<RoleClient>, tool: &'static str, arguments: Value) -> Result<Value, LinkError> {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = arguments.as_object().cloned();
    match within(peer.call_tool_once(request)).await? {
        CallToolResponse::Complete(result) => object_in(result, tool),
        _ => Err(LinkError::Refused(format!(
            "{tool} wants input before it answers"
        ))),
    }
}

/// Returns the object in `result`: its structured content, or else its text read as JSON.
fn object_in(result: CallToolResult, tool: &str) -> Result<Value, LinkError> {
    let text = result.content.iter().find_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    if result.is_error == Some(true) {
        return Err(LinkError::Refused(match text {
            Some(text) => text.to_owned(),
            None => format!("{tool} failed without a message"),
        }));
    }
    let answer: Value = match (result.structured_content, text) {
        (Some(structured @ Value::Object(_)), _) => structured,
        (_, Some(text)) => serde_json::from_str(text).map_err(|_| no_etags(tool))?,
        (_, None) => return Err(no_etags(tool)),
    };
    // Some libraries wrap the value that a function returned.
    Ok(match answer.get("result") {
        Some(inner) if inner.is_object() => inner.clone(),
        _ => answer,
    })
}

fn no_etags(tool: &str) -> LinkError {
    LinkError::Refused(format!("{tool} does not answer with etags"))
}

/// The version of one resource of a call, or the reason why it has none.
pub(in crate::client) type ItemVersion = Result<Version, RefusedResource>;

fn version_in(item: &Value) -> Option<Version> {
    Some(Version {
        etag: Some(etag_in(item.get("etag_encoded")?)?),
        digest: None,
    })
}

/// Returns the versions of `uris`, in order; `None` if one is missing. The answer may list them in any order.
fn versions_in(answer: &Value, uris: &[String]) -> Option<Vec<ItemVersion>> {
    let items = answer.get("items")?.as_array()?;
    let mut versions = Vec::with_capacity(uris.len());
    for uri in uris {
        let item = items.iter().find(|item| item["uri"] == uri.as_str())?;
        versions.push(match &item["error"] {
            Value::String(reason) => Err(RefusedResource::new(uri, &**reason)),
            _ => Ok(version_in(item)?),
        });
    }
    Some(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_found_by_uri() {
        let answer = json!({ "items": [
            { "uri": "demo://b", "etag_encoded": "v2-1" },
            { "uri": "demo://a", "etag_encoded": "v1-1" },
            { "uri": "demo://x", "error": "not found: demo://x", "version": 0 },
        ] });
        let [a, b, c, x] = ["demo://a", "demo://b", "demo://c", "demo://x"].map(str::to_owned);
        let mut versions = versions_in(&answer, &[a.clone(), b, x]).unwrap();
        let missing = versions.pop().unwrap().unwrap_err();
        assert_eq!(missing, RefusedResource::new("demo://x", "not found: demo://x"));
        let mut etags = Vec::new();
        for version in versions {
            etags.push(version.unwrap().etag.unwrap());
        }
        assert_eq!(etags, ["v1-1", "v2-1"]);
        assert_eq!(versions_in(&answer, &[a, c]), None);
    }

    #[test]
    fn answer_may_be_structured_wrapped_or_text() {
        let plain = json!({ "etag_encoded": "v1-1" });
        for result in [
            CallToolResult::structured(plain.clone()),
            CallToolResult::structured(json!({ "result": plain })),
            CallToolResult::success(vec![ContentBlock::text(plain.to_string())]),
        ] {
            assert_eq!(object_in(result, ONE).unwrap(), plain);
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
            let Err(LinkError::Refused(reason)) = object_in(result, ONE) else {
                panic!("{expected}");
            };
            assert_eq!(reason, expected);
        }
    }
}
