//! Server-sent events: splits the body of a stream into events.

/// The default limit on an event; notifications are far smaller.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// An event is larger than the reader allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {} MiB", EVENT_BYTES_MAX >> 20)]
pub struct EventTooLarge;

/// An event, or a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'e> {
    /// The data; empty for a comment, and for the event that primes a stream.
    pub data: &'e [u8],
    /// The id, if this event has one.
    pub id: Option<&'e str>,
    /// The text of a comment that stands alone, as servers send to keep a stream open.
    pub comment: Option<&'e str>,
}

/// Splits a stream into its events, across the boundaries of reads.
#[derive(Debug)]
pub struct EventReader {
    /// The line that is not complete yet.
    line: Vec<u8>,
    data: Vec<u8>,
    last_id: String,
    /// True if the event being read has set `last_id`.
    has_id: bool,
    has_line: bool,
    has_field: bool,
    comment: String,
    bytes_max: usize,
}

impl Default for EventReader {
    fn default() -> EventReader {
        EventReader::with_limit(EVENT_BYTES_MAX)
    }
}

impl EventReader {
    /// Makes a reader that refuses events larger than `bytes_max`; the default is 4 MiB.
    pub fn with_limit(bytes_max: usize) -> EventReader {
        EventReader {
            line: Vec::new(),
            data: Vec::new(),
            last_id: String::new(),
            has_id: false,
            has_line: false,
            has_field: false,
            comment: String::new(),
            bytes_max,
        }
    }

    /// Returns the id of the last event that had one, after which the stream can be resumed.
    pub fn last_id(&self) -> Option<&str> {
        match self.last_id.as_str() {
            "" => None,
            id => Some(id),
        }
    }

    /// Reads bytes and hands each event and comment that they complete to `on_event`.
    ///
    /// # Errors
    /// [`EventTooLarge`] when an event exceeds the limit; the reader cannot be used any further.
    pub fn read(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>),
    ) -> Result<(), EventTooLarge> {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.line.is_empty() {
                self.take_line(line, &mut on_event)?;
                continue;
            }
            let mut whole = std::mem::take(&mut self.line);
            whole.extend_from_slice(line);
            self.take_line(&whole, &mut on_event)?;
            // The buffer is put back, so that lines cut in two cost no allocation each.
            whole.clear();
            self.line = whole;
        }
        if self.data.len() + self.line.len() + rest.len() > self.bytes_max {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    fn take_line(
        &mut self,
        line: &[u8],
        on_event: &mut impl FnMut(SseEvent<'_>),
    ) -> Result<(), EventTooLarge> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.end_event(on_event);
            return Ok(());
        }
        self.has_line = true;
        if let [b':', comment @ ..] = line {
            self.comment.clear();
            self.comment.push_str(String::from_utf8_lossy(comment).trim());
            return Ok(());
        }
        self.has_field = true;
        // Only these two fields are looked at: the type of an event and the pause before a reconnect decide
        // nothing for any of the readers.
        if let Some(data) = field(line, b"data") {
            if self.data.len() + data.len() > self.bytes_max {
                return Err(EventTooLarge);
            }
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
        } else if let Some(id) = field(line, b"id") {
            self.last_id.clear();
            self.last_id.push_str(&String::from_utf8_lossy(id));
            self.has_id = true;
        }
        Ok(())
    }

    fn end_event(&mut self, on_event: &mut impl FnMut(SseEvent<'_>)) {
        // Empty lines in a row end nothing.
        if self.has_line {
            on_event(SseEvent {
                data: &self.data,
                id: self.has_id.then_some(self.last_id.as_str()),
                comment: (!self.has_field).then_some(self.comment.as_str()),
            });
        }
        self.data.clear();
        self.has_id = false;
        self.has_line = false;
        self.has_field = false;
    }
}

/// Returns the value of a line of the field `name`.
fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    // One space after the colon is not a part of the value (HTML, section 9.2.6).
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(events: &mut EventReader, bytes: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        let taken = events.read(bytes, |event| {
            all.push(String::from_utf8(event.data.to_vec()).unwrap());
        });
        taken.unwrap();
        all
    }

    const STREAM: &[u8] =
        b": alive\n\nid: 3\r\ndata: {\r\ndata:}\r\n\r\n\n\nevent: message\ndata: x\nid: 4\n\ndata: \n\n";

    #[test]
    fn comments_and_empty_events_have_no_data() {
        let mut events = EventReader::default();
        assert_eq!(read(&mut events, STREAM), ["", "{\n}", "x", ""]);
        assert_eq!(events.last_id(), Some("4"));
    }

    #[test]
    fn event_carries_its_own_id_only() {
        let mut seen = Vec::new();
        let mut events = EventReader::default();
        let taken = events.read(STREAM, |event| {
            seen.push((event.id.map(str::to_owned), event.comment.map(str::to_owned)));
        });
        assert_eq!(taken, Ok(()));
        assert_eq!(
            seen,
            [
                (None, Some("alive".to_owned())),
                (Some("3".to_owned()), None),
                (Some("4".to_owned()), None),
                (None, None)
            ]
        );
    }

    #[test]
    fn event_beyond_the_limit_is_refused() {
        let mut events = EventReader::default();
        let part = vec![b'x'; EVENT_BYTES_MAX / 2 + 1];
        assert_eq!(events.read(&part, |_| ()), Ok(()));
        assert_eq!(events.read(&part, |_| ()), Err(EventTooLarge));
        let mut small = EventReader::with_limit(8);
        assert_eq!(small.read(b"data: 123456789", |_| ()), Err(EventTooLarge));
        let mut lines = EventReader::with_limit(16);
        let many = b"data: 1234567\ndata: 1234567\ndata: 1234567\n";
        assert_eq!(lines.read(many, |_| ()), Err(EventTooLarge));
    }

    proptest! {
        #[test]
        fn stream_survives_any_cut(mut cuts in prop::collection::vec(0..STREAM.len(), 0..12)) {
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let mut events = EventReader::default();
            let all: Vec<String> = cuts
                .windows(2)
                .flat_map(|pair| read(&mut events, &STREAM[pair[0]..pair[1]]))
                .collect();
            prop_assert_eq!(all, ["", "{\n}", "x", ""]);
        }
    }
}
