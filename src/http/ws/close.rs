//! The reasons for which the service closes a WebSocket, with their codes (RFC 6455, section 7.4) and texts.

use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::EndReason;

/// Longest reason in bytes that a close frame can carry.
const REASON_LEN_MAX: usize = 123;

/// A reason with its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Close {
    pub(super) code: u16,
    pub(super) reason: String,
}

impl Close {
    fn new(code: CloseCode, reason: impl Into<String>) -> Close {
        let mut reason = reason.into();
        // By characters, as the reason must stay UTF-8.
        while reason.len() > REASON_LEN_MAX {
            reason.pop();
        }
        Close {
            code: code.into(),
            reason,
        }
    }

    /// The service has reached a limit for now.
    pub(super) fn full(reason: impl Into<String>) -> Close {
        Close::new(CloseCode::Again, reason)
    }

    /// The client broke a rule of the service.
    pub(super) fn policy(reason: impl Into<String>) -> Close {
        Close::new(CloseCode::Policy, reason)
    }

    /// A request is too large.
    pub(super) fn too_big(max: usize) -> Close {
        Close::new(
            CloseCode::Size,
            format!("a message may have {max} bytes (ws.message_bytes_max); send several"),
        )
    }

    /// A message is binary.
    pub(super) fn not_text() -> Close {
        Close::new(CloseCode::Unsupported, "messages are JSON in text frames")
    }

    /// A frame could not be read.
    pub(super) fn unreadable(error: &impl std::fmt::Display) -> Close {
        Close::new(CloseCode::Protocol, format!("a frame could not be read: {error}"))
    }

    /// The session of the connection has ended.
    pub(super) fn ended(reason: EndReason) -> Close {
        match reason {
            EndReason::Shutdown => Close::new(CloseCode::Away, "the service stops; come back later"),
            EndReason::Failed => Close::new(CloseCode::Error, "the service failed; come back later"),
            other => Close::policy(format!("the session was ended: {}", other.name())),
        }
    }

    pub(super) fn frame(&self) -> CloseFrame {
        CloseFrame {
            code: self.code.into(),
            reason: self.reason.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_fits_into_its_frame() {
        let close = Close::policy("ä".repeat(100));
        assert_eq!((close.reason.len(), close.code), (122, 1008));
        assert_eq!(Close::ended(EndReason::Shutdown).code, 1001);
        assert_eq!(Close::ended(EndReason::Failed).code, 1011);
        assert_eq!(Close::ended(EndReason::Idle).code, 1008);
        assert!(Close::too_big(usize::MAX).reason.len() <= REASON_LEN_MAX);
    }
}
