//! Sessions: who is there, what each was told, why one was not, and ending one.
//!
//! Owns: the JSON of subscribers and the words of explanations. Never: keeps anything of them. Asks the bus.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tidings_actors::status::{
    DelayReason, DeliveryStatus, EndedSubscriber, SubscriberInfo, SubscriberPage, SubscriberState,
};
use tidings_actors::{ListKind, ReadError, ResourceUri, SubscriberId};

use super::Api;
use super::path::Target;
use super::resources::{PAGE_LEN, PAGE_LEN_MAX, page_len};
use crate::http::problem::{Problem, ProblemKind};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SurveyQuery {
    uri: Option<String>,
    limit: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    uri: Option<String>,
}

#[derive(Serialize)]
struct SurveyedItems<'a> {
    /// The slowest first.
    items: Vec<SubscriberItem<'a>>,
    /// How many there are in all.
    total: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubscriberItem<'a> {
    id: String,
    kind: &'static str,
    label: &'a str,
    /// What it speaks, and what carries what it is told.
    revision: &'static str,
    transport: &'static str,
    /// How many streams read it now.
    streams: usize,
    subscriptions: usize,
    pending: PendingItem<'a>,
    /// Per list the hash it was last told of.
    lists_told: ListsTold,
    progress: ProgressItem,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PendingItem<'a> {
    entries: usize,
    /// The first of the URIs that wait.
    uris: Vec<&'a str>,
    /// How many URIs wait besides those.
    uris_more: usize,
    /// How long its oldest entry has been waiting, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ms: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressItem {
    stalled: bool,
    /// How long it has taken nothing of what waits for it though a stream is open, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    untaken_ms: Option<u64>,
    /// How long ago it last took something, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_ms: Option<u64>,
    age_ms: u64,
    told: u64,
    conflated: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct ListsTold {
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndedItem<'a> {
    id: String,
    kind: &'static str,
    label: &'a str,
    ended: EndItem,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndItem {
    reason: &'static str,
    /// How long ago, in milliseconds.
    ago_ms: u64,
    /// Entries it had not been told.
    pending: usize,
}

#[derive(Serialize)]
struct Explained<T> {
    #[serde(flatten)]
    subscriber: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<ExplanationItem>,
}

#[derive(Serialize)]
struct ExplanationItem {
    uri: String,
    /// One word for programs.
    verdict: &'static str,
    /// A sentence for people.
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
}

/// `GET /v1/sessions?uri=&limit=`: who is there, or subscribed to `uri`, and what they have not been told yet; the
/// slowest first, as many as `limit` allows.
pub(super) async fn sessions(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let Query(SurveyQuery { uri, limit }) = Query::try_from_uri(&uri).map_err(|error| {
        ProblemKind::BadRequest.because(format!("{}; the query takes uri and limit", error.body_text()))
    })?;
    let uri = uri
        .filter(|uri| !uri.is_empty())
        .map(|uri| resource_uri(&uri))
        .transpose()?;
    let found = api
        .bus
        .list_subscribers(uri.as_ref(), limit_of(limit.as_deref())?)
        .await?;
    Ok(surveyed(&found))
}

/// `GET …/subscribers`: who is subscribed to the resource, the slowest first and at most 1,000 of them; those of a
/// removed one are told, 404 when there is neither.
pub(super) async fn subscribers(
    State(api): State<Arc<Api>>,
    Target(target): Target,
) -> Result<Response, Problem> {
    let found = api.bus.list_subscribers(Some(&target), PAGE_LEN_MAX).await?;
    if found.total == 0 {
        let known = api.bus.etags(vec![target.clone()]).await?;
        if known.into_iter().flatten().next().is_none() {
            return Err(ReadError::NotFound(target).into());
        }
    }
    Ok(surveyed(&found))
}

/// `GET /v1/sessions/{id}?uri=`: one of them, also when it ended not long ago; with `uri`, whether it was told of that
/// resource's newest version, and if not, why.
pub(super) async fn session(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Query(ExplainQuery { uri }) = Query::try_from_uri(&uri).map_err(|error| {
        ProblemKind::BadRequest.because(format!("{}; the query takes uri", error.body_text()))
    })?;
    let id = subscriber_id(&id)?;
    let uri = uri
        .filter(|uri| !uri.is_empty())
        .map(|uri| resource_uri(&uri))
        .transpose()?;
    let mut found = api.bus.subscriber_state(id).await?;
    let mut explanation = None;
    if let (Some(uri), Some(SubscriberState::Live(_))) = (&uri, &found) {
        explanation = api.bus.explain(id, uri).await?;
    }
    if let Some(DeliveryStatus::Ended(ended)) = &explanation {
        // It ended between the two questions.
        found = Some(SubscriberState::Ended(ended.clone()));
    } else if let Some(SubscriberState::Ended(ended)) = &found {
        explanation = Some(DeliveryStatus::Ended(ended.clone()));
    }
    let explanation = uri.as_ref().zip(explanation.as_ref());
    let explanation = explanation.map(|(uri, explanation)| explanation_item(uri, explanation));
    match found {
        None => Err(unknown(id)),
        Some(SubscriberState::Live(info)) => {
            let subscriber = subscriber_item(&info);
            Ok(Json(Explained {
                subscriber,
                explanation,
            })
            .into_response())
        }
        Some(SubscriberState::Ended(ended)) => {
            let subscriber = ended_item(&ended);
            Ok(Json(Explained {
                subscriber,
                explanation,
            })
            .into_response())
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

/// `DELETE /v1/sessions/{id}`: ends one of them.
pub(super) async fn evict(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = subscriber_id(&id)?;
    if api.bus.evict(id).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    match api.bus.subscriber_state(id).await? {
        Some(SubscriberState::Ended(ended)) => {
            Err(ProblemKind::NotFound.because(format!("{id} has ended already: {}", ended.reason.name())))
        }
        _ => Err(unknown(id)),
    }
}

fn unknown(id: SubscriberId) -> Problem {
    ProblemKind::NotFound.because(format!(
        "there is no session {id}, nor did one end lately; see /v1/sessions"
    ))
}

fn subscriber_id(text: &str) -> Result<SubscriberId, Problem> {
    let id = text.parse::<SubscriberId>();
    id.map_err(|error| ProblemKind::BadRequest.because(error.to_string()))
}

fn resource_uri(text: &str) -> Result<ResourceUri, Problem> {
    ResourceUri::new(text).map_err(|error| ProblemKind::BadRequest.because(error.to_string()))
}

fn limit_of(text: Option<&str>) -> Result<usize, Problem> {
    match text {
        None | Some("") => Ok(PAGE_LEN),
        Some(text) => page_len(text),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn surveyed(found: &SubscriberPage) -> Response {
    let items = found.subscribers.iter().map(subscriber_item).collect();
    Json(SurveyedItems {
        items,
        total: found.total,
    })
    .into_response()
}

fn subscriber_item(info: &SubscriberInfo) -> SubscriberItem<'_> {
    let (pending, progress) = (&info.pending, &info.progress);
    let told = |kind: ListKind| {
        let at = ListKind::ALL.iter().position(|other| *other == kind)?;
        pending.lists_notified[at].map(|hash| hash.to_string())
    };
    SubscriberItem {
        id: info.id.to_string(),
        kind: info.kind.name(),
        label: &info.label,
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
            resources: told(ListKind::Resources),
            tools: told(ListKind::Tools),
            prompts: told(ListKind::Prompts),
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

/// What an explanation says: a word for programs and a sentence for people.
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
    let changed = Duration::from_millis(millis(changed));
    format!("version {version} is pending, changed {changed:?} ago; {reason}")
}

fn ended_text(ended: &EndedSubscriber) -> String {
    let (reason, ago) = (ended.reason.name(), Duration::from_millis(millis(ended.ended)));
    format!(
        "the session ended {ago:?} ago ({reason}) with {} entries pending",
        ended.pending
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_actors::{EndReason, Etag, Position, SubscribeError, SubscriberKind};

    #[test]
    fn every_sentence_stands_on_the_page() {
        let page = include_str!("../../../docs/http-api.md");
        let uri = ResourceUri::new("demo://status").unwrap();
        let etag = Etag {
            version: 2,
            updated_at: 7,
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
