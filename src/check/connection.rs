//! A connection to the server under test, in one era of the protocol.
//!
//! It writes requests in the form of the negotiated revision, and reads lists and resources as digests. It
//! does not judge any answer; an answer that does not arrive ends the run ([`Aborted`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::answer::{Answer, TransportError};
use super::options::Options;
use super::transcript::Transcript;
use super::transport::Transport;
use crate::Digest;
use crate::client::Target;
use crate::wire::dialect::{Dialect, Revision};
use crate::wire::jsonrpc;

/// The name that the check gives itself towards servers.
const CLIENT_NAME: &str = "tidings-check";

/// The error code of a server that failed by itself.
const INTERNAL_ERROR: i64 = -32603;

/// The limit on pages read of one list, since a faulty server may hand out cursors without an end.
const PAGES_MAX: usize = 50;
/// The revision that a session is opened with; the server may answer with an older one.
const NEWEST_WITH_SESSIONS: Revision = Revision::R2025_11_25;

/// The kinds of lists whose changes are announced.
pub(super) const KINDS: [&str; 3] = ["tools", "prompts", "resources"];

/// A method that answers a page of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListMethod {
    pub(super) method: &'static str,
    /// The field of the items in the result.
    items: &'static str,
    /// The kind under which its changes are announced.
    kind: &'static str,
}

const RESOURCES: ListMethod = ListMethod {
    method: "resources/list",
    items: "resources",
    kind: "resources",
};

/// The four lists.
pub(super) const LISTS: [ListMethod; 4] = [
    ListMethod {
        method: "tools/list",
        items: "tools",
        kind: "tools",
    },
    ListMethod {
        method: "prompts/list",
        items: "prompts",
        kind: "prompts",
    },
    RESOURCES,
    ListMethod {
        method: "resources/templates/list",
        items: "resourceTemplates",
        kind: "resources",
    },
];

/// The reason for which a run ends before all of its checks were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Aborted(pub(super) String);

impl From<TransportError> for Aborted {
    fn from(error: TransportError) -> Aborted {
        Aborted(error.to_string())
    }
}

/// A connection whose revision is negotiated.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) transcript: Arc<Transcript>,
    /// The `capabilities` that the server answered with.
    capabilities: Value,
    /// The form of the parameters; the transport knows the session.
    dialect: Dialect,
    last_id: AtomicU64,
    answer_max: Duration,
}

/// The state of one list at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListState {
    /// The kind under which its changes are announced.
    pub(super) kind: &'static str,
    /// The digest of everything in its items.
    pub(super) whole: Digest,
    /// The digest of the parts by which an item is known and offered. A new size or date of a resource is a
    /// change of the resource rather than of the list.
    pub(super) offered: Digest,
}

impl Connection {
    /// Connects to the server and negotiates a revision: 2026-07-28 by `server/discover`, an older one by
    /// `initialize`.
    pub(super) async fn open(
        target: &Target,
        options: &Options,
        is_modern: bool,
    ) -> Result<Connection, TransportError> {
        let revision = match is_modern {
            true => Revision::R2026_07_28,
            false => NEWEST_WITH_SESSIONS,
        };
        let dialect = Dialect::new(revision, CLIENT_NAME);
        let transcript = Arc::new(Transcript::default());
        let mut connection = Connection {
            transport: Transport::open(target, options, dialect.clone(), transcript.clone())?,
            transcript,
            capabilities: Value::Null,
            dialect,
            // Listen requests have small ids, chosen by the checks.
            last_id: AtomicU64::new(1000),
            answer_max: options.start_timeout,
        };
        connection.negotiate(is_modern).await?;
        connection.answer_max = options.answer_timeout;
        Ok(connection)
    }

    async fn negotiate(&mut self, is_modern: bool) -> Result<(), TransportError> {
        if is_modern {
            let result = self.opening_result("server/discover", json!({})).await?;
            let newest = Revision::R2026_07_28.as_str();
            let versions = result["supportedVersions"].as_array();
            if !versions.into_iter().flatten().any(|version| version == newest) {
                return Err(refused("server/discover", &format!("versions without {newest}")));
            }
            self.capabilities = result["capabilities"].clone();
            return Ok(());
        }
        let params = self.dialect.initialize_params();
        let result = self.opening_result("initialize", params).await?;
        let version = result["protocolVersion"].as_str().unwrap_or_default();
        let revision = match Revision::parse(version) {
            Some(revision) if !revision.is_stateless() => revision,
            _ => {
                return Err(refused(
                    "initialize",
                    &format!("the unknown revision {version:?}"),
                ));
            }
        };
        self.transport.set_revision(revision);
        self.dialect.revision = revision;
        self.capabilities = result["capabilities"].clone();
        Ok(())
    }

    async fn opening_result(&self, method: &str, params: Value) -> Result<Value, TransportError> {
        let answer = self.try_call(method, params).await?;
        match answer.result() {
            Some(result) => Ok(result.clone()),
            None if is_failure(&answer) => Err(TransportError::Broken(answered(method, &answer.to_string()))),
            None => Err(refused(method, &answer.to_string())),
        }
    }

    /// Returns the negotiated revision.
    pub(super) fn revision(&self) -> Revision {
        self.dialect.revision
    }

    /// Returns true if the revision has no sessions.
    pub(super) fn is_modern(&self) -> bool {
        self.revision().is_stateless()
    }

    /// Returns true if the server advertises tools, prompts or resources.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.capabilities[kind].is_object()
    }

    /// Returns true if the server has this list.
    pub(super) fn has_list(&self, list: &ListMethod) -> bool {
        self.has(list.kind)
    }

    /// Returns true if the server advertises a capability of `kind`, such as `listChanged`.
    pub(super) fn advertises(&self, kind: &str, capability: &str) -> bool {
        self.capabilities[kind][capability] == true
    }

    /// Returns the time by which an answer to a request made now must have arrived.
    pub(super) fn answer_deadline(&self) -> Instant {
        Instant::now() + self.answer_max
    }

    async fn try_call(&self, method: &str, params: Value) -> Result<Answer, TransportError> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let message = jsonrpc::request(id, method, self.dialect.params(params));
        self.transport.request(&message, self.answer_max).await
    }

    /// Sends a request and returns its answer, which may be an error.
    pub(super) async fn call(&self, method: &str, params: Value) -> Result<Answer, Aborted> {
        match self.try_call(method, params).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(Aborted(format!("{method}: {error}"))),
        }
    }

    /// Waits until the server has seen everything sent before: the answer to a later request shows it.
    pub(super) async fn catch_up(&self) -> Result<(), Aborted> {
        // 2026-07-28 has no ping.
        let method = match self.is_modern() {
            true => "server/discover",
            false => "ping",
        };
        self.call(method, json!({})).await?;
        Ok(())
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), Aborted> {
        let mut message = jsonrpc::notification(method);
        message["params"] = self.dialect.params(params);
        Ok(self.transport.notify(&message).await?)
    }

    /// Sends a listen request with this id and filter. Everything it is answered with goes to the transcript.
    pub(super) async fn listen(&self, id: &Value, filter: &Value) -> Result<(), Aborted> {
        let params = self.dialect.params(json!({ "notifications": filter }));
        let message = jsonrpc::request(id.clone(), "subscriptions/listen", params);
        Ok(self.transport.listen(&message).await?)
    }

    /// Reads all pages of a list; none when the server answers with an error.
    async fn items(&self, list: &ListMethod) -> Result<Option<Vec<Value>>, Aborted> {
        let mut items = Vec::new();
        let mut params = json!({});
        for _ in 0..PAGES_MAX {
            let answer = self.call(list.method, params).await?;
            // An error is no abort: a server may lack a list of a kind that it has, such as templates.
            let Some(result) = answer.result() else {
                return Ok(None);
            };
            items.extend(result[list.items].as_array().cloned().unwrap_or_default());
            match result["nextCursor"].as_str() {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => break,
            }
        }
        Ok(Some(items))
    }

    /// Returns the URI of the first resource that the server lists.
    pub(super) async fn first_resource(&self) -> Result<Option<String>, Aborted> {
        let items = self.items(&RESOURCES).await?.unwrap_or_default();
        let first = items.iter().find_map(|item| item["uri"].as_str());
        Ok(first.map(str::to_owned))
    }

    /// Returns the state of every list that the server has, which does not depend on the order of the items.
    pub(super) async fn list_states(&self) -> Result<Vec<ListState>, Aborted> {
        let mut states = Vec::new();
        for list in &LISTS {
            if self.has_list(list)
                && let Some(items) = self.items(list).await?
            {
                states.push(ListState {
                    kind: list.kind,
                    whole: digest(&items),
                    offered: digest_of_offer(&items),
                });
            }
        }
        Ok(states)
    }

    /// Returns the digest of the contents of a resource; none when the server answers with an error.
    pub(super) async fn content_digest(&self, uri: &str) -> Result<Option<Digest>, Aborted> {
        let answer = self.call("resources/read", json!({ "uri": uri })).await?;
        let Some(result) = answer.result() else {
            return Ok(None);
        };
        match result["contents"].as_array() {
            Some(contents) => Ok(Some(digest_of_contents(contents))),
            None => Ok(None),
        }
    }
}

/// Returns true for an answer by which a server says that it failed, rather than that it refuses.
fn is_failure(answer: &Answer) -> bool {
    match (answer.error_code(), answer.status) {
        (Some(code), _) => code == INTERNAL_ERROR,
        (None, Some(status)) => !(300..500).contains(&status),
        (None, None) => true,
    }
}

fn refused(method: &str, answer: &str) -> TransportError {
    TransportError::NotSpoken(answered(method, answer))
}

fn answered(method: &str, answer: &str) -> String {
    format!("{method} was answered with {answer}")
}

/// Returns the digest of items without the parts that may change while the same items are offered.
fn digest_of_offer(items: &[Value]) -> Digest {
    let mut items = items.to_vec();
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        for name in ["size", "annotations", "icons", "_meta"] {
            item.remove(name);
        }
    }
    digest(&items)
}

fn digest(items: &[Value]) -> Digest {
    let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
    // Servers may list the same items in another order each time.
    texts.sort();
    let parts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    Digest::of(&parts)
}

fn digest_of_contents(contents: &[Value]) -> Digest {
    let mut bare = Vec::new();
    for content in contents {
        // Without `_meta`: an etag in it may change while the content stays.
        bare.push(json!([
            content["uri"],
            content["mimeType"],
            content["text"],
            content["blob"]
        ]));
    }
    digest(&bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_digest_ignores_order() {
        let a = json!({ "name": "a" });
        let b = json!({ "name": "b" });
        assert_eq!(digest(&[a.clone(), b.clone()]), digest(&[b.clone(), a.clone()]));
        assert_ne!(digest(&[a]), digest(&[b]));
    }

    #[test]
    fn offer_is_without_size_and_annotations() {
        let item = |name: &str, size: u8| json!({ "uri": "x", "name": name, "size": size, "_meta": size });
        let first = digest_of_offer(&[item("a", 1)]);
        assert_eq!(first, digest_of_offer(&[item("a", 2)]));
        assert_ne!(first, digest_of_offer(&[item("b", 1)]));
    }

    #[test]
    fn refusal_differs_from_failure() {
        let error = |code: i64| json!({ "error": { "code": code } });
        for (status, message, expected) in [
            (None, error(-32601), false),
            (None, error(-32603), true),
            (None, json!({}), true),
            (Some(400), Value::Null, false),
            (Some(404), error(-32601), false),
            (Some(405), Value::Null, false),
            (Some(200), Value::Null, true),
            (Some(500), Value::Null, true),
            (Some(500), error(-32600), false),
        ] {
            let answer = Answer { status, message };
            assert_eq!(is_failure(&answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn content_digest_ignores_metadata() {
        let content = |text: &str, meta: u8| json!({ "uri": "x", "text": text, "_meta": meta });
        let first = digest_of_contents(&[content("1", 1)]);
        assert_eq!(first, digest_of_contents(&[content("1", 2)]));
        assert_ne!(first, digest_of_contents(&[content("2", 1)]));
    }
}
