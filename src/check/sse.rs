//! Server-sent events, as far as the protocol uses them.
//!
//! Owns splitting bytes into events. It never reads from a socket, and keeps no more than one event.

/// One event, or a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The data of an event; empty for comments and priming events.
    pub(super) data: String,
}

/// An event is larger than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Splits a stream.
#[derive(Debug)]
pub(super) struct Sse {
    line: Vec<u8>,
    data: String,
    seen: bool,
    id: Option<String>,
    bytes_max: usize,
}

impl Sse {
    pub(super) fn new(bytes_max: usize) -> Sse {
        Sse {
            line: Vec::new(),
            data: String::new(),
            seen: false,
            id: None,
            bytes_max,
        }
    }

    /// The id of the last event that had one.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The events that `bytes` complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, TooLarge> {
        let mut frames = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.data.len() > self.bytes_max {
                return Err(TooLarge);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                frames.extend(self.line(line.trim_end_matches(['\n', '\r'])));
            }
        }
        Ok(frames)
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            return std::mem::take(&mut self.seen).then(|| Frame {
                data: std::mem::take(&mut self.data),
            });
        }
        self.seen = true;
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" => self.id = Some(value.to_owned()),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(frames: Vec<Frame>) -> Vec<String> {
        frames.into_iter().map(|frame| frame.data).collect()
    }

    #[test]
    fn comments_events_and_ids_are_understood() {
        let mut sse = Sse::new(1000);
        let frames =
            sse.push(b": alive\n\nid: 3\r\ndata: {\r\ndata:}\r\n\r\n\n\nevent: message\ndata: x\n\n");
        assert_eq!(data(frames.unwrap()), ["", "{\n}", "x"]);
        assert_eq!(sse.last_id(), Some("3"));
    }

    #[test]
    fn an_event_without_end_is_refused() {
        assert_eq!(Sse::new(8).push(b"data: 123456789"), Err(TooLarge));
        let mut many = Sse::new(16);
        assert_eq!(
            many.push(b"data: 1234567\ndata: 1234567\ndata: 1234567\n"),
            Err(TooLarge)
        );
    }

    proptest! {
        #[test]
        fn where_it_is_cut_does_not_matter(cuts in prop::collection::vec(0usize..40, 0..6)) {
            let text = b"data: one\n\n: note\n\nid: 4\ndata: two\n\n".as_slice();
            let whole = Sse::new(1000).push(text).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut sse = Sse::new(1000);
            let mut frames = Vec::new();
            for pair in cuts.windows(2) {
                frames.extend(sse.push(&text[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(frames, whole);
        }
    }
}
