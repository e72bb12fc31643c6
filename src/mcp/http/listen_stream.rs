//! `subscriptions/listen` over HTTP: the request is checked, its subscriptions begin, and the stream's first
//! and last message are made here, with rmcp's types. Everything between them comes from the outbox.

use ::http::header::CONTENT_TYPE;
use ::http::request::Parts;
use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use rmcp::model::{
    Implementation, NotificationMetaObject, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerResult, SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenResult,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::endpoint::EndpointState;
use super::headers::{EVENT_STREAM, MCP_METHOD, PROTOCOL_VERSION, is_plain_post, sole};
use super::outbox_stream::{OutboxStream, StreamOwner, follow_connection};
use super::plain::{PlainMeta, is_plain_id};
use super::reply::{self, Answer, Refusal};
use super::served::EndpointServer;
use crate::auth::Caller;
use crate::mcp::frames::FrameFormat;
use crate::mcp::listen::{AcceptedListen, ListenCheck, ListenRequest, client_name};
use crate::mcp::listen_id::ListenId;
use crate::mcp::revision::{ETAG_META_KEY, Revision};
use crate::mcp::session::SessionLifetime;
use crate::wire::protocol::CLIENT_INFO_META_KEY;

const METHOD: &str = "subscriptions/listen";

/// A listen request with no field that is unknown here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainListen<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    #[serde(borrow)]
    params: PlainListenParams<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainListenParams<'a> {
    notifications: SubscriptionFilter,
    #[serde(borrow, rename = "_meta")]
    meta: PlainMeta<'a>,
}

#[derive(Deserialize)]
struct AnyListenParams {
    notifications: SubscriptionFilter,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

impl<S: EndpointServer> EndpointState<S> {
    /// Opens a listen stream: checks the request, begins its subscriptions, and streams from the outbox.
    pub(super) async fn listen(
        &self,
        parts: Parts,
        id: &RawValue,
        params: Option<&RawValue>,
        body: &Bytes,
    ) -> Result<Answer, Refusal> {
        let plain = plain_request(&parts.headers, body);
        let is_plain = plain.is_some();
        let Some(mut requested) = plain.or_else(|| any_request(params)) else {
            let text =
                "subscriptions/listen needs params.notifications, an object of the notifications to send";
            return Err(reply::invalid_params(Some(id), text).into());
        };
        // Both places come before the subscriptions: a refused request must not reach the bus.
        let open = self.open_stream(Some(id))?;
        let place = self.place_for_session(&parts, Some(id))?;
        // rmcp judges every other request, so that refusals of headers and fields come from one place.
        if !is_plain {
            self.check_listen(&parts, body).await?;
        }
        let unlimited = &self.server.caller;
        let caller = Caller::of(&parts.extensions).unwrap_or(unlimited);
        let narrowed = requested.narrow(&self.server, caller);
        narrowed.map_err(|refusal| reply::refused_stream(id, &refusal))?;
        let kept = self.served.before_listen(&requested.filter, params).await;
        let kept = kept.map_err(|refusal| reply::refused_stream(id, &refusal))?;
        let accepted = AcceptedListen::open(&self.server, requested, SessionLifetime::Limited, caller).await;
        let accepted = accepted.map_err(|refusal| reply::refused_stream(id, &refusal))?;
        let is_empty = accepted.is_empty();
        let AcceptedListen {
            session,
            filter,
            current,
            ..
        } = accepted;
        let id = ListenId::new(id);
        let unmade = || reply::internal_error("the acknowledgement could not be made");
        let first = first_message(&id, filter, current).ok_or_else(unmade)?;
        if is_empty {
            // Nothing could ever be sent, so the stream would only hold a permit.
            let last = last_message(&id, &self.implementation).ok_or_else(unmade)?;
            return Ok(reply::finished(&first, &last));
        }
        if let Some(kept) = kept {
            session.hold(kept);
        }
        let reader = session.reader();
        follow_connection(&reader, &parts);
        let owner = StreamOwner::Listen {
            _session: session,
            _place: place,
            server: self.implementation.clone(),
        };
        let format = FrameFormat::Listen(id);
        let stream = OutboxStream::new(reader, format, first, owner, open);
        Ok(reply::events(stream, parts.extensions.get()))
    }

    /// Lets rmcp judge a listen request.
    ///
    /// # Errors
    /// rmcp's refusal.
    async fn check_listen(&self, parts: &Parts, body: &Bytes) -> Result<(), Refusal> {
        let mut parts = parts.clone();
        parts.extensions.clear();
        parts.extensions.insert(ListenCheck);
        let answer = self.forward(parts, body.clone()).await;
        let is_stream = match answer.headers().get(CONTENT_TYPE) {
            Some(media_type) => media_type.as_bytes().starts_with(EVENT_STREAM.as_bytes()),
            None => false,
        };
        if answer.status() != StatusCode::OK || !is_stream {
            return Err(answer.into());
        }
        // Dropping the acknowledgement ends rmcp's part of the request.
        Ok(())
    }
}

/// Returns a plain request: one that rmcp would accept, as its headers and all its fields are known here.
fn plain_request(headers: &HeaderMap, body: &[u8]) -> Option<ListenRequest> {
    if !is_plain_post(headers)
        || sole(headers, &PROTOCOL_VERSION) != Some(Revision::STATELESS.as_str())
        || sole(headers, &MCP_METHOD) != Some(METHOD)
    {
        return None;
    }
    let request: PlainListen<'_> = serde_json::from_slice(body).ok()?;
    let plain = request.jsonrpc == "2.0"
        && request.method == METHOD
        && is_plain_id(request.id.get())
        && request.params.meta.is_plain();
    plain.then_some(ListenRequest {
        filter: request.params.notifications,
        client: request.params.meta.client_name(),
        etags: request.params.meta.etags,
    })
}

/// Returns a request with any other fields beside the known ones.
fn any_request(params: Option<&RawValue>) -> Option<ListenRequest> {
    let params: AnyListenParams = serde_json::from_str(params?.get()).ok()?;
    Some(ListenRequest {
        filter: params.notifications,
        client: client_name(params.meta.get(CLIENT_INFO_META_KEY)),
        etags: params.meta.get(ETAG_META_KEY).cloned(),
    })
}

/// Makes a stream's first message, the acknowledgement of `accepted` with the etags that are `current`.
fn first_message(id: &ListenId, accepted: SubscriptionFilter, current: Option<Value>) -> Option<Bytes> {
    let mut meta = NotificationMetaObject::new();
    meta.set_subscription_id(serde_json::from_slice(id.as_bytes()).ok()?);
    if let Some(current) = current {
        meta.insert(ETAG_META_KEY.to_owned(), current);
    }
    let params = SubscriptionsAcknowledgedNotificationParams::new(accepted);
    let mut acknowledged = SubscriptionsAcknowledgedNotification::new(params);
    acknowledged.extensions.insert(meta);
    let acknowledged = ServerNotification::SubscriptionsAcknowledgedNotification(acknowledged);
    event(&ServerJsonRpcMessage::notification(acknowledged))
}

/// Makes a stream's last message, the result of a graceful end. It is made when it is needed, since a stream
/// would hold more memory for it than for most else.
pub(super) fn last_message(id: &ListenId, server: &Implementation) -> Option<Bytes> {
    let id: RequestId = serde_json::from_slice(id.as_bytes()).ok()?;
    let mut result = SubscriptionsListenResult::complete(id.clone());
    result.meta.set_server_info(server.clone());
    event(&ServerJsonRpcMessage::response(
        ServerResult::SubscriptionsListenResult(result),
        id,
    ))
}

/// Encodes a message as an event of a stream.
fn event(message: &ServerJsonRpcMessage) -> Option<Bytes> {
    let json = serde_json::to_string(message).ok()?;
    Some(Bytes::from(format!("data: {json}\n\n")))
}

#[cfg(test)]
mod tests;
