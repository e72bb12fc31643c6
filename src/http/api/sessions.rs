//! Sessions: the list, the state of one, the reason why one was not notified, and ending one.

use std::time::Duration;

use ::http::request::Parts;
use ::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidings_actors::status::{
    DelayReason, DeliveryStatus, EndedSubscriber, SubscriberFilter, SubscriberInfo, SubscriberPage,
    SubscriberState,
};
use tidings_actors::{ListKind, ReadError, ResourceUri, SubscriberId};

use super::api_path::ApiPath;
use super::parameters::{PAGE_LEN_MAX, flag, given, page_len, query, search_text};
use super::path::{decode, parse_uri};
use super::{Api, ApiResponse, empty, json};
use crate::http::problem::{Problem, ProblemKind};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    uri: Option<String>,
    limit: Option<String>,
    q: Option<String>,
    stalled: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    uri: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SubscriberItems<'a> {
    /// The slowest first.
    items: Vec<SubscriberItem<'a>>,
    /// The number of all that the query asks for.
    total: usize,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubscriberItem<'a> {
    id: String,
    kind: &'static str,
    label: &'a str,
    /// The name that its client gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    /// The protocol that it speaks, and its transport.
    revision: &'static str,
    transport: &'static str,
    /// The streams that read it now.
    streams: usize,
    subscriptions: usize,
    pending: PendingItem<'a>,
    /// The hash of each list that it was last notified of.
    lists_told: ListsTold,
    progress: ProgressItem,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PendingItem<'a> {
    entries: usize,
    /// The first of the pending URIs.
    uris: Vec<&'a str>,
    /// The number of pending URIs besides those.
    uris_more: usize,
    /// The age of its oldest entry in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ProgressItem {
    stalled: bool,
    /// The time in milliseconds for which it has read none of its entries though a stream is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    untaken_ms: Option<u64>,
    /// The time in milliseconds since it last read one.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_ms: Option<u64>,
    age_ms: u64,
    told: u64,
    conflated: u64,
    bytes: u64,
}

#[derive(Serialize, JsonSchema)]
struct ListsTold {
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndedItem<'a> {
    id: String,
    kind: &'static str,
    label: &'a str,
    ended: EndItem,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EndItem {
    reason: &'static str,
    /// The time in milliseconds since then.
    ago_ms: u64,
    /// Entries that it had not been notified of.
    pending: usize,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Explained<T> {
    #[serde(flatten)]
    subscriber: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<ExplanationItem>,
}

#[derive(Serialize, JsonSchema)]
struct ExplanationItem {
    uri: String,
    /// A word for programs.
    verdict: &'static str,
    /// A sentence for people.
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
}

impl Api {
    /// `GET /v1/sessions?uri=&q=&stalled=&limit=`: the subscribers, or those of `uri`, whose names have `q`
    /// in them, or that are stalled, with their pending notifications. The slowest come first, as many as
    /// `limit` allows.
    pub(super) async fn list_sessions(&self, head: &Parts) -> Result<ApiResponse, Problem> {
        let query: ListQuery = query(head, "uri, q, stalled and limit")?;
        let mut filter = SubscriberFilter::of_uri(resource_uri(query.uri)?);
        filter.text = search_text(query.q)?;
        filter.stalled = flag("stalled", query.stalled)?;
        let found = self.bus.find_subscribers(filter, page_len(query.limit)?).await?;
        Ok(subscriber_items(&found))
    }

    /// `GET …/subscribers`: the subscribers of a resource, the slowest first and at most 1,000 of them. A
    /// resource that was removed may still have some; 404 when there is neither.
    pub(super) async fn subscribers(&self, segment: &str, head: &Parts) -> Result<ApiResponse, Problem> {
        let uri = parse_uri(segment, head)?;
        let found = self.bus.list_subscribers(Some(&uri), PAGE_LEN_MAX).await?;
        // A removed resource may still have subscribers, so its existence matters only when there are
        // none.
        if found.total == 0 {
            let known = self.bus.etags(vec![uri.clone()]).await?;
            if known.into_iter().flatten().next().is_none() {
                return Err(ReadError::NotFound(uri).into());
            }
        }
        Ok(subscriber_items(&found))
    }

    /// `/v1/sessions/{id}`.
    pub(super) async fn session(&self, id: &str, head: &Parts) -> Result<ApiResponse, Problem> {
        match head.method {
            Method::GET | Method::HEAD => self.show_session(subscriber_id(id)?, head).await,
            Method::DELETE => self.end_session(subscriber_id(id)?).await,
            _ => Err(Problem::wrong_method(&head.method, ApiPath::Session("").allow())),
        }
    }

    /// `GET /v1/sessions/{id}?uri=`: a subscriber, also one that ended a short time ago. With `uri`, the
    /// answer explains whether it was notified of the newest version of that resource, and if not, why.
    async fn show_session(&self, id: SubscriberId, head: &Parts) -> Result<ApiResponse, Problem> {
        let ExplainQuery { uri } = query(head, "uri")?;
        let uri = resource_uri(uri)?;
        let Some(mut state) = self.bus.subscriber_state(id).await? else {
            return Err(unknown(id));
        };
        let mut explanation = None;
        if let Some(uri) = &uri {
            let mut status = match state {
                SubscriberState::Live(_) => self.bus.explain(id, uri).await?,
                SubscriberState::Ended(_) => None,
            };
            match (&state, &status) {
                // It ended between the two questions.
                (_, Some(DeliveryStatus::Ended(ended))) => state = SubscriberState::Ended(ended.clone()),
                (SubscriberState::Ended(ended), _) => status = Some(DeliveryStatus::Ended(ended.clone())),
                _ => {}
            }
            if let Some(status) = &status {
                explanation = Some(explanation_item(uri, status));
            }
        }
        Ok(match &state {
            SubscriberState::Live(info) => json(&Explained {
                subscriber: subscriber_item(info),
                explanation,
            }),
            SubscriberState::Ended(ended) => json(&Explained {
                subscriber: ended_item(ended),
                explanation,
            }),
        })
    }

    /// `DELETE /v1/sessions/{id}`: ends a subscriber (204).
    async fn end_session(&self, id: SubscriberId) -> Result<ApiResponse, Problem> {
        if self.bus.evict(id).await? {
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        // Eviction reports false both for an unknown subscriber and for one that has ended.
        match self.bus.subscriber_state(id).await? {
            Some(SubscriberState::Ended(ended)) => {
                let text = format!("{id} has ended already: {}", ended.reason.name());
                Err(ProblemKind::NotFound.because(text))
            }
            _ => Err(unknown(id)),
        }
    }
}

fn ended_item(ended: &EndedSubscriber) -> EndedItem<'_> {
    EndedItem {
        id: ended.id.to_string(),
        kind: ended.kind.name(),
        label: &ended.label,
        ended: EndItem {
            reason: ended.reason.name(),
            ago_ms: millis(ended.ended),
            pending: ended.pending,
        },
    }
}

fn unknown(id: SubscriberId) -> Problem {
    ProblemKind::NotFound.because(format!(
        "there is no session {id}, nor did one end lately; see /v1/sessions"
    ))
}

fn subscriber_id(segment: &str) -> Result<SubscriberId, Problem> {
    let text = match decode(segment.as_bytes()) {
        Ok(text) => text,
        Err(fault) => return Err(ProblemKind::BadRequest.because(format!("the path {fault}"))),
    };
    match text.parse::<SubscriberId>() {
        Ok(id) => Ok(id),
        Err(error) => Err(ProblemKind::BadRequest.because(error.to_string())),
    }
}

fn resource_uri(parameter: Option<String>) -> Result<Option<ResourceUri>, Problem> {
    let Some(text) = given(parameter) else {
        return Ok(None);
    };
    match ResourceUri::new(&text) {
        Ok(uri) => Ok(Some(uri)),
        Err(error) => Err(ProblemKind::BadRequest.because(error.to_string())),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn subscriber_items(found: &SubscriberPage) -> ApiResponse {
    json(&SubscriberItems {
        items: found.subscribers.iter().map(subscriber_item).collect(),
        total: found.total,
    })
}

fn subscriber_item(info: &SubscriberInfo) -> SubscriberItem<'_> {
    let pending = &info.pending;
    let progress = &info.progress;
    SubscriberItem {
        id: info.id.to_string(),
        kind: info.kind.name(),
        label: &info.label,
        client: info.client.as_deref(),
        revision: info.protocol,
        transport: info.transport,
        streams: pending.streams,
        subscriptions: pending.subscriptions,
        pending: PendingItem {
            entries: pending.entries,
            uris: pending.uris.iter().map(ResourceUri::as_str).collect(),
            uris_more: pending.uris_more,
            oldest_ms: pending.oldest.map(millis),
        },
        lists_told: ListsTold {
            resources: list_told(info, ListKind::Resources),
            tools: list_told(info, ListKind::Tools),
            prompts: list_told(info, ListKind::Prompts),
        },
        progress: ProgressItem {
            stalled: progress.stalled,
            untaken_ms: progress.untaken.map(millis),
            last_ms: progress.last.map(millis),
            age_ms: millis(progress.age),
            told: progress.notified,
            conflated: progress.conflated,
            bytes: progress.bytes,
        },
    }
}

/// Returns the hash of a list that a subscriber was last notified of.
fn list_told(info: &SubscriberInfo, kind: ListKind) -> Option<String> {
    let at = ListKind::ALL.iter().position(|other| *other == kind)?;
    info.pending.lists_notified[at].map(|hash| hash.to_string())
}

/// Explains a delivery: a word for programs and a sentence for people.
fn explanation_item(uri: &ResourceUri, explanation: &DeliveryStatus) -> ExplanationItem {
    let (verdict, text) = match explanation {
        DeliveryStatus::NotSubscribed(None) => ("not-subscribed", "not subscribed to it".to_owned()),
        DeliveryStatus::NotSubscribed(Some(refusal)) => (
            "denied",
            format!("not subscribed to it; subscribing is refused: {refusal}"),
        ),
        DeliveryStatus::Unchanged { version } => (
            "unchanged",
            format!("subscribed at version {version}; it has not changed since"),
        ),
        DeliveryStatus::Notified { etag, position, .. } => (
            "told",
            format!("told version {} ({etag}) at position {position}", etag.version),
        ),
        DeliveryStatus::Pending {
            etag,
            changed,
            reason,
            ..
        } => ("pending", pending_text(etag.version, *changed, *reason)),
        DeliveryStatus::Ended(ended) => ("ended", ended_text(ended)),
        _ => ("unknown", "nothing is known of it".to_owned()),
    };
    let (etag, position) = match explanation {
        DeliveryStatus::Notified { etag, position, .. } | DeliveryStatus::Pending { etag, position, .. } => {
            (Some(etag.to_string()), Some(position.to_string()))
        }
        _ => (None, None),
    };
    ExplanationItem {
        uri: uri.as_str().to_owned(),
        verdict,
        text,
        etag,
        position,
    }
}

fn pending_text(version: u64, changed: Duration, reason: DelayReason) -> String {
    let reason = match reason {
        DelayReason::NeverRead => "it never opened a stream",
        DelayReason::NoStream => "it has no stream open",
        DelayReason::Stalled => "it is stalled: its stream takes nothing",
        _ => "it is on its way",
    };
    // Whole milliseconds: nanoseconds would only make the sentence longer.
    let changed = Duration::from_millis(millis(changed));
    format!("version {version} is pending, changed {changed:?} ago; {reason}")
}

fn ended_text(ended: &EndedSubscriber) -> String {
    format!(
        "the session ended {:?} ago ({}) with {} entries pending",
        Duration::from_millis(millis(ended.ended)),
        ended.reason.name(),
        ended.pending
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_actors::{EndReason, Etag, Position, SubscribeError, SubscriberKind};

    #[test]
    fn every_explanation_is_documented() {
        let page = include_str!("../../../docs/http-api.md");
        let uri = ResourceUri::new("demo://status").unwrap();
        let etag = Etag {
            version: 2,
            updated_at: 7,
            life: 0,
        };
        let position = Position { epoch: 10, offset: 3 };
        let changed = Duration::from_millis(1500);
        let pending = |reason| DeliveryStatus::Pending {
            etag,
            position,
            changed,
            reason,
        };
        let ended = EndedSubscriber {
            id: SubscriberId(1),
            kind: SubscriberKind::Session,
            label: "x".into(),
            reason: EndReason::Stalled,
            ended: changed,
            pending: 3,
        };
        for explanation in [
            DeliveryStatus::NotSubscribed(None),
            DeliveryStatus::NotSubscribed(Some(SubscribeError::NotFound(uri.clone()))),
            DeliveryStatus::Unchanged { version: 1 },
            DeliveryStatus::Notified {
                etag,
                position,
                changed,
            },
            pending(DelayReason::NeverRead),
            pending(DelayReason::NoStream),
            pending(DelayReason::Stalled),
            pending(DelayReason::OnItsWay),
            DeliveryStatus::Ended(ended),
        ] {
            let ExplanationItem { verdict, text, .. } = explanation_item(&uri, &explanation);
            assert!(
                page.contains(&format!("| `{verdict}` | {text} |")),
                "{verdict}: {text}"
            );
        }
        for reason in EndReason::ALL {
            assert!(page.contains(&format!("`{}`", reason.name())), "{reason:?}");
        }
    }
}
