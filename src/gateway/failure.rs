//! The errors with which the gateway answers for a server that did not.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::service::ServiceError;
use rmcp::transport::DynamicTransportError;
use serde_json::json;

use crate::client::{MissingAnswers, has_too_long_answer, refused_status};
use crate::metrics::UpstreamMetrics;
use crate::units::time;

/// The reason that a request has no answer of the server. The client finds its label in `data.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamFailure {
    /// The connection ended while the request was under way. It may have been executed.
    Restarted,
    /// There has been no connection for as long as a request waits for one.
    Unavailable,
    /// The server refused the request with this HTTP status, and without an answer.
    Refused(u16),
    /// The server did not answer in time.
    TimedOut(Duration),
    /// The server answered, but not what the request asks for.
    Unexpected,
    /// The answer of the server is longer than the gateway takes.
    TooLong,
    /// The clients hold as many connections as the gateway opens.
    TooManySpeakers,
    /// As many requests are under way as the gateway sends at once.
    TooManyCalls,
    /// The call waited too long for the client's input.
    Expired,
    /// As many calls wait for input as the gateway keeps.
    TooManyParked,
}

impl UpstreamFailure {
    fn label(self) -> &'static str {
        match self {
            UpstreamFailure::Restarted => "restarted",
            UpstreamFailure::Unavailable => "unavailable",
            UpstreamFailure::Refused(_) => "refused",
            UpstreamFailure::TimedOut(_) => "timeout",
            UpstreamFailure::Unexpected => "unexpected",
            UpstreamFailure::TooLong => "too_long",
            UpstreamFailure::TooManySpeakers => "too_many_speakers",
            UpstreamFailure::TooManyCalls => "too_many_calls",
            UpstreamFailure::Expired => "expired",
            UpstreamFailure::TooManyParked => "too_many_parked",
        }
    }

    fn text(self) -> String {
        match self {
            UpstreamFailure::Restarted => {
                "the connection to the server behind the gateway ended during the request, which may have been \
                 executed"
                    .to_owned()
            }
            UpstreamFailure::Unavailable => {
                "the server behind the gateway cannot be reached now; try again".to_owned()
            }
            UpstreamFailure::Refused(status) => {
                format!("the server behind the gateway refused the request with HTTP status {status}")
            }
            UpstreamFailure::TimedOut(limit) => format!(
                "the server behind the gateway gave no answer and no progress within {}; the request was \
                 cancelled",
                time::text(limit)
            ),
            UpstreamFailure::Unexpected => "the server behind the gateway gave an answer of another kind".to_owned(),
            UpstreamFailure::TooLong => "the answer of the server behind the gateway has more than 16 MiB".to_owned(),
            UpstreamFailure::TooManySpeakers => {
                "the gateway has no connection left for this client; try again when others have ended".to_owned()
            }
            UpstreamFailure::TooManyCalls => "too many requests are under way; try again".to_owned(),
            UpstreamFailure::Expired => {
                "the call that waited for this input has ended or is not this client's; call again".to_owned()
            }
            UpstreamFailure::TooManyParked => "too many calls wait for input; try again".to_owned(),
        }
    }

    /// Returns the answer to the client.
    pub(super) fn answer(self) -> ErrorData {
        let mut data = json!({ "reason": self.label() });
        if self == UpstreamFailure::Unavailable {
            data["retryAfterMs"] = json!(1_000);
        }
        ErrorData::internal_error(self.text(), Some(data))
    }
}

/// Returns the answers to requests over HTTP whose responses have none. They concern no other request, so the
/// connection goes on.
pub(super) fn missing_answers(metrics: &UpstreamMetrics) -> MissingAnswers {
    MissingAnswers {
        too_long: UpstreamFailure::TooLong.answer(),
        ended: UpstreamFailure::Restarted.answer(),
        unexpected: UpstreamFailure::Unexpected.answer(),
        long: metrics.too_long.clone(),
        foreign: metrics.unknown_ids.clone(),
        malformed: metrics.malformed.clone(),
    }
}

/// Returns the answer for a tool, prompt or task that no server behind the gateway has.
pub(super) fn unknown(kind: &str, name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("Unknown {kind}: {name}"), None)
}

/// Returns the answer for a resource that no server behind the gateway has.
pub(super) fn unknown_resource(uri: &str) -> ErrorData {
    let data = json!({ "uri": uri });
    ErrorData::resource_not_found(format!("Resource not found: {uri}"), Some(data))
}

/// Returns the answer for an error of the connection. An error that the server answered is passed on.
pub(super) fn answer_of(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        ServiceError::Timeout { timeout } => UpstreamFailure::TimedOut(timeout).answer(),
        ServiceError::UnexpectedResponse => UpstreamFailure::Unexpected.answer(),
        ServiceError::TransportSend(error) if is_too_long(&error) => UpstreamFailure::TooLong.answer(),
        ServiceError::TransportSend(error) => match status_of(&error) {
            Some(status) => UpstreamFailure::Refused(status).answer(),
            None => UpstreamFailure::Restarted.answer(),
        },
        ServiceError::Cancelled { .. } => ErrorData::internal_error("the request was cancelled", None),
        error => {
            tracing::debug!(%error, "a request of a client ended with its connection");
            UpstreamFailure::Restarted.answer()
        }
    }
}

/// Returns true for an error after which the connection cannot be used.
pub(super) fn ends_connection(error: &ServiceError) -> bool {
    match error {
        ServiceError::TransportSend(error) => status_of(error).is_none() && !is_too_long(error),
        ServiceError::TransportClosed => true,
        _ => false,
    }
}

/// Returns the HTTP status with which a server refused one request. The end of a session (404) is none, and
/// neither is a failure of a proxy before the server (5xx).
fn status_of(error: &DynamicTransportError) -> Option<u16> {
    match refused_status(error.error.as_ref())? {
        status @ (400..=403 | 405..=499) => Some(status),
        _ => None,
    }
}

/// Returns true for the failure of one request whose answer is too long; others are not concerned.
fn is_too_long(error: &DynamicTransportError) -> bool {
    has_too_long_answer(error.error.as_ref())
}

/// Returns true for an answer that the gateway gave in place of the server.
pub(super) fn is_of_gateway(error: &ErrorData) -> bool {
    let failures = [
        UpstreamFailure::Restarted,
        UpstreamFailure::TooLong,
        UpstreamFailure::Unexpected,
    ];
    failures.into_iter().any(|failure| has_reason(error, failure))
}

/// Returns true for the answer to a request that the server refused by HTTP alone.
pub(super) fn is_refusal(error: &ErrorData) -> bool {
    has_reason(error, UpstreamFailure::Refused(0))
}

/// Returns true for the answer to a request whose connection has ended.
pub(super) fn is_restart(error: &ErrorData) -> bool {
    has_reason(error, UpstreamFailure::Restarted)
}

/// Returns true for the answer to a client that has reached the limit of connections.
pub(super) fn is_limit(error: &ErrorData) -> bool {
    has_reason(error, UpstreamFailure::TooManySpeakers)
}

fn has_reason(error: &ErrorData, failure: UpstreamFailure) -> bool {
    matches!(&error.data, Some(data) if data["reason"] == failure.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_names_the_reason() {
        let answer = UpstreamFailure::Restarted.answer();
        assert_eq!(answer.code, rmcp::model::ErrorCode::INTERNAL_ERROR);
        assert_eq!(answer.data.unwrap()["reason"], "restarted");
        let answer = answer_of(ServiceError::Timeout {
            timeout: Duration::from_secs(90),
        });
        assert_eq!(answer.data.unwrap()["reason"], "timeout");
    }

    #[test]
    fn answered_error_is_passed_on() {
        let refusal = ErrorData::invalid_params("no such tool", Some(json!({ "a": 1 })));
        assert_eq!(answer_of(ServiceError::McpError(refusal.clone())), refusal);
    }
}
