//! What can go wrong between a watcher and a server.
//!
//! Owns the errors that users of the client see, and the translation of rmcp's into one line. It decides nothing
//! about what happens next.

use std::error::Error;

use rmcp::transport::streamable_http_client::StreamableHttpError;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// What was named is no server.
    #[error("cannot watch {target:?}: {reason}")]
    Target {
        /// As given.
        target: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers there, or the program cannot be started.
    #[error("cannot reach {target}: {reason}; start the server or check its address")]
    Unreachable {
        /// Who was to be reached.
        target: String,
        /// What the system said.
        reason: String,
    },
    /// Somebody answers, but not as a server of the revisions that were asked for.
    #[error("cannot speak with {target}: {reason}")]
    Handshake {
        /// Who was to be spoken with.
        target: String,
        /// What went wrong.
        reason: String,
    },
    /// The server does not offer the only strategy that was to be taken.
    #[error(
        "{target} cannot be watched that way: it offers no {missing}; leave the choice of the strategy to the watcher"
    )]
    StrategyUnavailable {
        /// The server.
        target: String,
        /// What it would need.
        missing: &'static str,
    },
}

/// Why a subscription was not made or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The server does not have this resource, or does not let it be watched.
    #[error("cannot watch {uri}: {reason}")]
    Refused {
        /// The resource.
        uri: String,
        /// The server's words where it has any.
        reason: String,
    },
    /// The connection is lost and being made again.
    #[error("not connected: {0}; try again once the server is back")]
    Disconnected(String),
    /// The watcher was closed.
    #[error("the watcher is closed")]
    Closed,
}

/// The innermost causes of `error` on one line, without those that only repeat.
pub(super) fn reason(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in causes(error) {
        let text = error.to_string();
        // Many errors print their source themselves.
        texts.retain(|outer| !outer.ends_with(&text));
        texts.push(text);
    }
    // The outer ones speak of our own machinery, the inner ones of what happened.
    let inner = texts.split_off(texts.len().saturating_sub(2));
    inner.join(": ")
}

/// Whether `error` was caused by nobody answering.
pub(super) fn is_unreachable(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|error| {
        error
            .downcast_ref::<reqwest::Error>()
            .is_some_and(reqwest::Error::is_connect)
    })
}

/// `error` and what is behind it.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'e (dyn Error + 'static) = *error;
        match error.downcast_ref() {
            // rmcp prints this one, but does not tell it as the source.
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

    #[test]
    fn a_reason_says_what_happened_once() {
        let layer = |text, source: Option<Layer>| Layer {
            text,
            source: source.map(Box::new),
        };
        let deep = layer("send: a: b", Some(layer("a: b", Some(layer("b", None)))));
        assert_eq!(reason(&deep), "b");
        let distinct = layer("outer", Some(layer("middle", Some(layer("inner", None)))));
        assert_eq!(reason(&distinct), "middle: inner");
        assert_eq!(reason(&layer("alone", None)), "alone");
    }
}
