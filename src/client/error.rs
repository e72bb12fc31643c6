//! The errors of the client, and the translation of rmcp's errors into one line.

use std::error::Error;

use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::credentials::{Challenge, CredentialsError};
use crate::printable;

/// The error of a connection attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The target is not an address or a program.
    #[error("cannot reach {target:?}: {reason}")]
    Target {
        /// The target as given.
        target: String,
        /// The reason, with the expected form.
        reason: String,
    },
    /// Nothing answers at the address, or the program cannot be started.
    #[error("cannot reach {target}: {reason}; start the server or check its address")]
    Unreachable {
        /// The server.
        target: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The target answers, but not as a server of the revisions that were tried.
    #[error("cannot speak with {target}: {reason}")]
    Handshake {
        /// The server.
        target: String,
        /// The error of the handshake.
        reason: String,
    },
    /// An HTTP server is at the address, but nothing is served under its path.
    #[error("nothing speaks MCP at {target} (HTTP {status}){hint}")]
    NotServed {
        /// The server.
        target: String,
        /// The status of its answer: 404 or 405.
        status: u16,
        /// The address that is probably meant, as the end of the message; empty if there is none.
        hint: String,
    },
    /// The server does not let this client in, or not with these credentials.
    #[error("{target} does not let this client in: {reason}")]
    Denied {
        /// The server.
        target: String,
        /// Its challenge, with the scope that it asks for.
        reason: String,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(CredentialsError),
    /// The server does not offer the one strategy that was asked for.
    #[error(
        "{target} cannot be watched that way: it offers no {missing}; leave the choice of the strategy to the watcher"
    )]
    StrategyUnavailable {
        /// The server.
        target: String,
        /// The protocol method or tool that the strategy needs.
        missing: &'static str,
    },
}

/// The error of a subscription.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The server does not have this resource, or does not let it be watched.
    #[error("cannot watch {uri}: {reason}")]
    Refused {
        /// The resource.
        uri: String,
        /// The server's error message, if it sent one.
        reason: String,
    },
    /// The connection is lost; the watcher is reconnecting.
    #[error("not connected: {0}; try again once the server is back")]
    Disconnected(String),
    /// The watcher was closed.
    #[error("the watcher is closed")]
    Closed,
}

/// Returns the two innermost causes of `error` on one line, each text once.
pub(super) fn reason(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in causes(error) {
        let text = error.to_string();
        // Many errors print their source themselves.
        texts.retain(|outer| !outer.ends_with(&text));
        texts.push(text);
    }
    // The outer errors are about rmcp's machinery; the inner ones name the event.
    let inner = texts.split_off(texts.len().saturating_sub(2));
    printable::without_secrets(&inner.join(": ")).into_owned()
}

/// Returns true if `error` was caused by a connection that could not be made.
pub(super) fn is_unreachable(error: &(dyn Error + 'static)) -> bool {
    for error in causes(error) {
        if let Some(error) = error.downcast_ref::<reqwest::Error>()
            && error.is_connect()
        {
            return true;
        }
    }
    false
}

/// Returns the status that says that nothing is served under the path, if it caused `error`.
pub(super) fn absence(error: &(dyn Error + 'static)) -> Option<u16> {
    causes(error).find_map(|error| match error.downcast_ref()? {
        // rmcp keeps the status in its texts alone.
        StreamableHttpError::<reqwest::Error>::UnexpectedServerResponse(text) => {
            match text.strip_prefix("HTTP ")?.get(..3)? {
                "404" => Some(404),
                "405" => Some(405),
                _ => None,
            }
        }
        StreamableHttpError::Client(error) => match error.status()?.as_u16() {
            status @ (404 | 405) => Some(status),
            _ => None,
        },
        _ => None,
    })
}

/// Returns true if `error` was caused by a program that closed its input or output.
pub(super) fn is_ended(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|error| match error.downcast_ref::<std::io::Error>() {
        Some(error) => error.kind() == std::io::ErrorKind::BrokenPipe,
        None => matches!(
            error.downcast_ref::<ClientInitializeError>(),
            Some(ClientInitializeError::ConnectionClosed(_))
        ),
    })
}

/// Returns the HTTP status with which the server refused a request, if that caused `error`.
#[cfg(feature = "service")]
pub(crate) fn refused_status(error: &(dyn Error + 'static)) -> Option<u16> {
    causes(error).find_map(|error| match error.downcast_ref()? {
        StreamableHttpError::<reqwest::Error>::AuthRequired(_) => Some(401),
        StreamableHttpError::InsufficientScope(_) => Some(403),
        StreamableHttpError::SessionExpired => Some(404),
        // rmcp keeps the status in its texts alone.
        StreamableHttpError::UnexpectedServerResponse(text) => {
            text.strip_prefix("HTTP ")?.get(..3)?.parse().ok()
        }
        StreamableHttpError::Client(error) => Some(error.status()?.as_u16()),
        _ => None,
    })
}

/// Returns true if an answer that is longer than rmcp takes caused `error`.
#[cfg(feature = "service")]
pub(crate) fn has_too_long_answer(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|error| {
        matches!(
            error.downcast_ref(),
            Some(StreamableHttpError::<reqwest::Error>::ResponseBodyTooLarge { .. })
        )
    })
}

/// Returns the refusal of the client that caused `error`, if one did.
pub(super) fn refusal(error: &(dyn Error + 'static)) -> Option<Challenge> {
    causes(error).find_map(|error| match error.downcast_ref()? {
        StreamableHttpError::<reqwest::Error>::AuthRequired(refused) => {
            Challenge::of(401, Some(&refused.www_authenticate_header))
        }
        StreamableHttpError::InsufficientScope(refused) => {
            Challenge::of(403, Some(&refused.www_authenticate_header))
        }
        // Without a header rmcp keeps the status in its texts alone.
        StreamableHttpError::UnexpectedServerResponse(text) => match text.strip_prefix("HTTP ")?.get(..3)? {
            "401" => Challenge::of(401, None),
            "403" => Challenge::of(403, None),
            _ => None,
        },
        StreamableHttpError::Client(error) => Challenge::of(error.status()?.as_u16(), None),
        _ => None,
    })
}

/// Returns the error of the credentials that caused `error`, if one did.
pub(super) fn credentials_error(error: &(dyn Error + 'static)) -> Option<CredentialsError> {
    causes(error).find_map(|error| match error.downcast_ref()? {
        StreamableHttpError::<reqwest::Error>::Io(error) => {
            error.get_ref()?.downcast_ref::<CredentialsError>().cloned()
        }
        _ => None,
    })
}

/// Carries an error of the credentials through rmcp, which has no kind for it.
pub(super) fn carried(error: CredentialsError) -> StreamableHttpError<reqwest::Error> {
    StreamableHttpError::Io(std::io::Error::other(error))
}

/// Iterates over `error` and its sources, the outermost first.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'e (dyn Error + 'static) = *error;
        match error.downcast_ref() {
            // rmcp prints this error but does not return it from `source()`.
            Some(StreamableHttpError::<reqwest::Error>::Client(error)) => Some(error),
            _ => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    /// Returns an error with these texts, the outermost first.
    fn layers(texts: &[&'static str]) -> Layer {
        let mut source = None;
        for text in texts.iter().skip(1).rev() {
            source = Some(Box::new(Layer { text, source }));
        }
        Layer {
            text: texts[0],
            source,
        }
    }

    #[test]
    fn reason_shows_the_innermost_causes_once() {
        assert_eq!(reason(&layers(&["send: a: b", "a: b", "b"])), "b");
        assert_eq!(reason(&layers(&["outer", "middle", "inner"])), "middle: inner");
        assert_eq!(reason(&layers(&["alone"])), "alone");
    }
}
