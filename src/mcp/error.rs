//! The one place where the bus's errors become JSON-RPC errors.
//!
//! Owns: codes, texts and data. Never: shows what is inside: a failing reader's own text is its publisher's to word.

use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::json;

use crate::{Closed, InvalidUri, OpenError, PublishError, ReadError, SubscribeError};

/// A request whose parameters are wrong: -32602.
pub(crate) fn invalid_params(text: impl Into<String>) -> ErrorData {
    ErrorData::invalid_params(text.into(), None)
}

/// A server that is stopping, or a session that was ended meanwhile: -32603.
pub(crate) fn stopping(_: Closed) -> ErrorData {
    ErrorData::internal_error(
        "the session was ended or the server is stopping; connect again",
        None,
    )
}

fn invalid_uri(error: &InvalidUri) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), Some(json!({ "uri": error.uri })))
}

/// A read that failed. An unknown URI is -32002, which rmcp turns into -32602 for clients of 2026-07-28.
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

/// A subscription that was refused: -32602, naming the URI.
pub(crate) fn subscribe(error: &SubscribeError) -> ErrorData {
    match error {
        SubscribeError::NotFound(uri) | SubscribeError::NotSubscribable(uri) => {
            ErrorData::invalid_params(error.to_string(), Some(json!({ "uri": uri.as_str() })))
        }
        SubscribeError::InvalidUri(error) => invalid_uri(error),
        SubscribeError::Closed(closed) => stopping(*closed),
        other => invalid_params(other.to_string()),
    }
}

/// A session that could not be opened.
pub(crate) fn open(error: &OpenError) -> ErrorData {
    match error {
        OpenError::Closed(closed) => stopping(*closed),
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

/// A list that could not be listed.
pub(crate) fn list(error: &PublishError) -> ErrorData {
    match error {
        PublishError::Closed(closed) => stopping(*closed),
        other => ErrorData::internal_error(other.to_string(), None),
    }
}
