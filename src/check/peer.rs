//! A server as the rounds see it: calls in its era's form, lists with their digests, contents of resources.
//!
//! Owns the ids of requests and what every modern request carries. It never decides what is right; it turns silence
//! and broken connections into [`Stop`], which ends a round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::MODERN;
use super::log::Log;
use super::wire::{Answer, Trouble, Wire};
use crate::Digest;

/// Pages of a list beyond these are not looked at.
const PAGES_MAX: usize = 50;

/// The lists, the method that answers each, where its items are, and whose `list_changed` speaks of it.
pub(super) const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "tools"),
    ("prompts/list", "prompts", "prompts"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
];

/// Why a round cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stop(pub(super) String);

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Stop {
        Stop(trouble.to_string())
    }
}

pub(super) struct Peer {
    pub(super) wire: Wire,
    pub(super) log: Arc<Log>,
    pub(super) capabilities: Value,
    pub(super) revision: String,
    pub(super) limit: Duration,
    next: AtomicU64,
}

impl Peer {
    pub(super) fn new(wire: Wire, log: Arc<Log>, limit: Duration) -> Peer {
        Peer {
            wire,
            log,
            capabilities: Value::Null,
            revision: String::new(),
            limit,
            next: AtomicU64::new(1000),
        }
    }

    pub(super) fn is_modern(&self) -> bool {
        self.revision.as_str() >= MODERN
    }

    /// Whether the server says that it has tools, prompts or resources.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.capabilities[kind].is_object()
    }

    pub(super) fn promises(&self, kind: &str, what: &str) -> bool {
        self.capabilities[kind][what] == true
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// `params` as the era wants them.
    pub(super) fn dress(&self, mut params: Value) -> Value {
        if self.is_modern() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": client_info(),
            });
        }
        params
    }

    pub(super) async fn try_call(&self, method: &str, params: Value) -> Result<Answer, Trouble> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.wire.request(json!(id), method, self.dress(params)).await
    }

    pub(super) async fn call(&self, method: &str, params: Value) -> Result<Answer, Stop> {
        self.try_call(method, params)
            .await
            .map_err(|trouble| Stop(format!("{method}: {trouble}")))
    }

    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), Stop> {
        Ok(self.wire.notify(method, self.dress(params)).await?)
    }

    /// All items of a list; none when the server has no such list.
    pub(super) async fn items(&self, method: &str, field: &str) -> Result<Option<Vec<Value>>, Stop> {
        let mut items = Vec::new();
        let mut params = json!({});
        for _ in 0..PAGES_MAX {
            let answer = self.call(method, params).await?;
            let Some(result) = answer.result() else {
                return Ok(None);
            };
            items.extend(result[field].as_array().cloned().unwrap_or_default());
            match result["nextCursor"].as_str() {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => break,
            }
        }
        Ok(Some(items))
    }

    /// The digest of every list that the server has, whatever the order of its items.
    pub(super) async fn digests(&self) -> Result<Vec<(&'static str, Digest)>, Stop> {
        let mut digests = Vec::new();
        for (method, field, kind) in LISTS {
            if self.has(kind)
                && let Some(items) = self.items(method, field).await?
            {
                digests.push((kind, digest(&items)));
            }
        }
        Ok(digests)
    }

    /// The digest of what a read answers; none when it answers an error.
    pub(super) async fn read(&self, uri: &str) -> Result<Option<Digest>, Stop> {
        let answer = self.call("resources/read", json!({ "uri": uri })).await?;
        let contents = answer.result().map(|result| &result["contents"]);
        Ok(contents
            .and_then(Value::as_array)
            .map(|contents| digest_of_contents(contents)))
    }
}

/// How we introduce ourselves.
pub(super) fn client_info() -> Value {
    json!({ "name": "tidings-check", "version": env!("CARGO_PKG_VERSION") })
}

fn digest(items: &[Value]) -> Digest {
    let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
    texts.sort();
    let parts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    Digest::of(&parts)
}

/// The digest of the content alone: a version in the metadata may move without it.
fn digest_of_contents(contents: &[Value]) -> Digest {
    let bare = |content: &Value| {
        json!([
            content["uri"],
            content["mimeType"],
            content["text"],
            content["blob"]
        ])
    };
    digest(&contents.iter().map(bare).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_see_items_and_contents_but_not_order_and_metadata() {
        let (a, b) = (json!({ "name": "a" }), json!({ "name": "b" }));
        assert_eq!(digest(&[a.clone(), b.clone()]), digest(&[b.clone(), a.clone()]));
        assert_ne!(digest(&[a]), digest(&[b]));
        let content =
            |text: &str, meta: u8| digest_of_contents(&[json!({ "uri": "x", "text": text, "_meta": meta })]);
        assert_eq!(content("1", 1), content("1", 2));
        assert_ne!(content("1", 1), content("2", 1));
    }
}
