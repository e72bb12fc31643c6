//! The answer of a server to a record that was sent to it.

use async_nats::jetstream::ErrorCode;
use async_nats::{Message, StatusCode};
use serde::Deserialize;
use tidings_actors::shared_log::Verdict;

/// The answer to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecordAnswer {
    /// The log has it.
    Stored {
        /// Its sequence number.
        sequence: u64,
        /// True if an earlier try had stored it.
        is_duplicate: bool,
    },
    /// The newest record of the URI is another one than expected.
    Conflict {
        /// The sequence number of the newest record; 0 if there is none.
        newest: u64,
    },
    /// An earlier try, or a record of another node for the URI, is being decided.
    InProcess,
    /// The log has no leader at the moment, or the server cannot reach it.
    Unavailable,
    /// The log does not take it, now or later.
    Refused {
        /// True if there is no room.
        is_full: bool,
        /// The reason that the server gives.
        reason: String,
    },
}

#[derive(Deserialize)]
struct PublishReply {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<ReplyError>,
}

#[derive(Deserialize)]
struct ReplyError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl RecordAnswer {
    /// Reads an answer. One that is not understood says nothing about the record, so it is tried again.
    pub(super) fn of(message: &Message) -> RecordAnswer {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return RecordAnswer::Unavailable;
        }
        RecordAnswer::parse(&message.payload)
    }

    fn parse(payload: &[u8]) -> RecordAnswer {
        match serde_json::from_slice::<PublishReply>(payload) {
            Ok(PublishReply {
                error: Some(error), ..
            }) => RecordAnswer::of_error(error),
            Ok(PublishReply { seq, duplicate, .. }) if seq > 0 => RecordAnswer::Stored {
                sequence: seq,
                is_duplicate: duplicate,
            },
            Ok(_) | Err(_) => RecordAnswer::Unavailable,
        }
    }

    fn of_error(error: ReplyError) -> RecordAnswer {
        let reason = error.description;
        match ErrorCode(error.err_code) {
            ErrorCode::STREAM_WRONG_LAST_SEQUENCE => match reason.rsplit(' ').next().map(str::parse) {
                Some(Ok(newest)) => RecordAnswer::Conflict { newest },
                _ => RecordAnswer::InProcess,
            },
            // The second is that of an own try, or of one that the leader before had begun.
            ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT | ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT => {
                RecordAnswer::InProcess
            }
            // A disk that fails may work again, or another server lead.
            ErrorCode::STREAM_STORE_FAILED if !reason.contains("maximum") => RecordAnswer::Unavailable,
            ErrorCode::STREAM_STORE_FAILED
            | ErrorCode::STORAGE_RESOURCES_EXCEEDED
            | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::INSUFFICIENT_RESOURCES => RecordAnswer::Refused {
                is_full: true,
                reason,
            },
            ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM
            | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM
            | ErrorCode::STREAM_SEALED
            | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => RecordAnswer::Refused {
                is_full: false,
                reason,
            },
            _ => RecordAnswer::Unavailable,
        }
    }
}

/// Returns the end of a change that the log does not take.
pub(super) fn refusal(is_full: bool, reason: &str) -> Verdict {
    let reason = match is_full {
        true => format!("the shared log has no room ({reason}); raise the max_bytes of its streams"),
        false => {
            format!("the shared log refuses the change ({reason}); shorten it, or check the server's limits")
        }
    };
    Verdict::Refused {
        full: is_full,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u64, description: &str) -> RecordAnswer {
        let text =
            format!(r#"{{"error":{{"code":400,"err_code":{code},"description":"{description}"}},"seq":0}}"#);
        RecordAnswer::parse(text.as_bytes())
    }

    #[test]
    fn answers_of_a_server_are_told_apart() {
        let stored = |sequence, is_duplicate| RecordAnswer::Stored {
            sequence,
            is_duplicate,
        };
        assert_eq!(
            RecordAnswer::parse(br#"{"stream":"T","seq":7}"#),
            stored(7, false)
        );
        assert_eq!(
            RecordAnswer::parse(br#"{"stream":"T","seq":7,"duplicate":true}"#),
            stored(7, true)
        );
        assert_eq!(
            error(10071, "wrong last sequence: 5"),
            RecordAnswer::Conflict { newest: 5 }
        );
        assert_eq!(error(10164, "wrong last sequence"), RecordAnswer::InProcess);
        assert_eq!(
            error(10158, "duplicate message id is in process"),
            RecordAnswer::InProcess
        );
        assert_eq!(
            error(10008, "JetStream system temporarily unavailable"),
            RecordAnswer::Unavailable
        );
        for (code, full) in [(10077, true), (10054, false)] {
            let RecordAnswer::Refused { is_full, .. } = error(code, "maximum bytes exceeded") else {
                panic!("{code} is refused");
            };
            assert_eq!(is_full, full);
        }
    }

    #[test]
    fn unknown_answers_are_no_verdict() {
        for text in ["", "{}", "[]", "null", r#"{"error":{}}"#, r#"{"seq":"x"}"#] {
            assert_eq!(
                RecordAnswer::parse(text.as_bytes()),
                RecordAnswer::Unavailable,
                "{text}"
            );
        }
    }
}
