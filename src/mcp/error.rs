//! The bus's errors and end reasons in the words of MCP: JSON-RPC errors, and texts for clients whose session
//! ended.
//!
//! A reader's own error text is passed on, since its publisher wrote it for clients; nothing else from inside
//! is shown.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::json;

use super::options::McpOptions;
use crate::http::{Exceeded, refused_subscription};
use crate::{Closed, EndReason, InvalidUri, NotLatest, OpenError, PublishError, ReadError, SubscribeError};

/// The refusal of a subscription for which the record of its session has no room.
pub(crate) const RECORD_FULL: &str = "the session has as many subscriptions as other nodes can take over with it,      64 KiB of URIs and versions; unsubscribe from some, open another session, or have the operator set      cluster.sessions = \"sticky\"";

/// Makes the error of a request whose parameters are wrong: -32602.
pub(crate) fn invalid_params(text: impl Into<String>) -> ErrorData {
    ErrorData::invalid_params(text.into(), None)
}

/// Makes the error of a server that is stopping, or of a session that has ended: -32603.
pub(crate) fn stopping(_: Closed) -> ErrorData {
    ErrorData::internal_error(
        "the session was ended or the server is stopping; connect again",
        None,
    )
}

/// Converts the refusal of a read that must be of the latest state.
pub(crate) fn not_latest(error: &NotLatest) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn invalid_uri(error: &InvalidUri) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), Some(json!({ "uri": error.uri })))
}

/// Converts the error of a read. An unknown URI is -32002, which rmcp turns into -32602 for clients of
/// 2026-07-28.
pub(crate) fn read(error: &ReadError) -> ErrorData {
    match error {
        ReadError::NotFound(uri) => ErrorData::new(
            ErrorCode::RESOURCE_NOT_FOUND,
            error.to_string(),
            Some(json!({ "uri": uri.as_str() })),
        ),
        ReadError::InvalidUri(error) => invalid_uri(error),
        ReadError::Closed(closed) => stopping(*closed),
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

/// Converts the refusal of a subscription: -32602, naming the URI.
pub(crate) fn subscribe(error: &SubscribeError) -> ErrorData {
    match error {
        SubscribeError::NotFound(uri) | SubscribeError::NotSubscribable(uri) => {
            ErrorData::invalid_params(error.to_string(), Some(json!({ "uri": uri.as_str() })))
        }
        SubscribeError::InvalidUri(error) => invalid_uri(error),
        SubscribeError::Closed(closed) => stopping(*closed),
        other => invalid_params(refused_subscription(other)),
    }
}

/// Converts a limit that a caller has reached: -32603, with the seconds after which it may try again.
pub(crate) fn exceeded(exceeded: Exceeded) -> ErrorData {
    let data = json!({ "retryAfter": exceeded.retry_after });
    ErrorData::internal_error(exceeded.text, Some(data))
}

/// Converts the refusal to open a session.
pub(crate) fn open(error: &OpenError) -> ErrorData {
    match error {
        OpenError::Closed(closed) => stopping(*closed),
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

/// Converts the error of a list that could not be listed.
pub(crate) fn list(error: &PublishError) -> ErrorData {
    match error {
        PublishError::Closed(closed) => stopping(*closed),
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

/// Describes why a session ended, as the end of a sentence about it. The text names the configuration key
/// that decided, so that an operator who is shown it knows where to look.
pub(crate) fn end_reason(reason: EndReason, options: &McpOptions) -> String {
    match reason {
        EndReason::Closed => "its client ended it".to_owned(),
        EndReason::Idle => format!(
            "it had neither a stream nor a request for {} (session.idle_timeout)",
            limit_text(Some(options.session.idle_timeout))
        ),
        EndReason::Stalled => format!(
            "it took nothing for {} (session.stall_timeout)",
            limit_text(options.session.stall_timeout)
        ),
        EndReason::WriteTimeout => {
            "its connection took nothing of what was written to it (http.write_timeout)".to_owned()
        }
        EndReason::Expired => format!(
            "it reached the greatest age, {} (session.age_max)",
            limit_text(options.session.age_max)
        ),
        EndReason::Evicted => "an operator ended it".to_owned(),
        EndReason::NotReady => {
            "the server was full and its client had not sent notifications/initialized (session.max)"
                .to_owned()
        }
        EndReason::Unauthorized => "its credential expired or was revoked".to_owned(),
        EndReason::Moved => "it moved to another node, which goes on with it".to_owned(),
        EndReason::Shutdown => "the server is stopping".to_owned(),
        _ => "it failed inside the server".to_owned(),
    }
}

fn limit_text(limit: Option<Duration>) -> String {
    format!("{:?}", limit.unwrap_or_default())
}

/// Returns the comment that ends a stream whose session was ended while the client was connected; none for an
/// end that the client expects.
pub(crate) fn eviction_comment(reason: EndReason, options: &McpOptions) -> Option<String> {
    let word = match reason {
        EndReason::Moved => "moved",
        other if other.is_eviction() => "evicted",
        _ => return None,
    };
    Some(format!(": {word}: {}\n\n", end_reason(reason, options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_reasons_have_distinct_texts_of_one_line() {
        let mut options = McpOptions::default();
        options.session.stall_timeout = Some(Duration::from_secs(60));
        let texts: std::collections::BTreeSet<_> =
            EndReason::ALL.map(|reason| end_reason(reason, &options)).into();
        assert_eq!(texts.len(), EndReason::ALL.len());
        assert!(texts.iter().all(|text| !text.contains('\n')));
        let comment = eviction_comment(EndReason::Stalled, &options);
        let expected = ": evicted: it took nothing for 60s (session.stall_timeout)\n\n";
        assert_eq!(comment.as_deref(), Some(expected));
        assert_eq!(eviction_comment(EndReason::Shutdown, &options), None);
    }
}
