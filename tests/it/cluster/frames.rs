//! The protocol of NATS as far as a link must know it: where a message of a server ends, and whether it
//! acknowledges a stored record.

/// One message of a server, as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// True if it says that a stream has stored a message.
    pub(super) is_acknowledgement: bool,
}

/// Splits the bytes of a server into its messages.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next message that is there as a whole.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let line_len = self.bytes.windows(2).position(|two| two == b"\r\n")? + 2;
        let line = String::from_utf8_lossy(&self.bytes[..line_len]).into_owned();
        let payload_len = payload_len(&line);
        let len = match payload_len {
            Some(payload_len) => line_len + payload_len + 2,
            None => line_len,
        };
        if self.bytes.len() < len {
            return None;
        }
        let bytes: Vec<u8> = self.bytes.drain(..len).collect();
        let payload = &bytes[line_len..];
        // An answer without an error has the stream first and the sequence number after it.
        let is_acknowledgement = line.starts_with("MSG ")
            && payload.starts_with(b"{\"stream\":")
            && payload.windows(6).any(|part| part == b"\"seq\":");
        Some(Frame {
            bytes,
            is_acknowledgement,
        })
    }
}

/// The length of the payload that follows the line of a message, without its end.
fn payload_len(line: &str) -> Option<usize> {
    match line.starts_with("MSG ") || line.starts_with("HMSG ") {
        true => line.split_whitespace().next_back()?.parse().ok(),
        false => None,
    }
}

#[test]
fn acknowledgements_are_told_from_other_messages() {
    let ack = "MSG _INBOX.a.7 1 26\r\n{\"stream\":\"T\", \"seq\":1234}\r\n";
    let error = "MSG _INBOX.a.8 1 22\r\n{\"error\":{\"code\":400}}\r\n";
    let record = "HMSG t.r.1 2 $JS.ACK.x 12 17\r\nNATS/1.0\r\n\r\nhello\r\n";
    let text = format!("INFO {{}}\r\n{ack}PING\r\n{error}{record}");
    for step in [1, 3, text.len()] {
        let mut frames = Frames::default();
        let mut found = Vec::new();
        for part in text.as_bytes().chunks(step) {
            frames.add(part);
            while let Some(frame) = frames.next() {
                found.push(frame);
            }
        }
        let acknowledgements: Vec<bool> = found.iter().map(|frame| frame.is_acknowledgement).collect();
        assert_eq!(acknowledgements, [false, true, false, false, false]);
        let whole: Vec<u8> = found.into_iter().flat_map(|frame| frame.bytes).collect();
        assert_eq!(whole, text.as_bytes());
    }
}
