//! The events of a stream, and the reasons for which it ends.

/// Something that came on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent<'b> {
    /// The head of the answer.
    Head {
        /// Its status; none where it cannot be read without a table of headers.
        status: Option<u16>,
    },
    /// A part of the body.
    Data(&'b [u8]),
    /// The end of the stream.
    End(StreamEnd),
}

/// The reason for which a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The answer is complete.
    Complete,
    /// The server reset it, with this code.
    Reset(u32),
    /// The server said that it does not handle it (GOAWAY), with this code.
    Refused(u32),
}

impl std::fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamEnd::Complete => f.write_str("the server ended the stream"),
            StreamEnd::Reset(code) => write!(f, "the server reset the stream: {}", error_name(*code)),
            StreamEnd::Refused(code) => {
                write!(
                    f,
                    "the server takes no more streams (GOAWAY): {}",
                    error_name(*code)
                )
            }
        }
    }
}

/// Returns the name of an error code (RFC 9113, section 7).
pub(super) fn error_name(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    // A server may send any number.
    match NAMES.get(code as usize) {
        Some(name) => (*name).to_owned(),
        None => format!("error {code}"),
    }
}
