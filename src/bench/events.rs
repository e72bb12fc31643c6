//! Server-sent events of a stream, handed on without a copy where one read holds them whole.
//!
//! Owns what has been read of a line that is not complete. It never reads from a socket and keeps no more than one
//! event; comments and ids are nothing to it. What an event says is read by [`crate::bench::notice`].

/// An event beyond this is no notification.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// An event is larger than 4 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than 4 MiB")]
pub(crate) struct TooLarge;

/// Splits a stream into the data of its events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    /// Takes bytes and hands the data of every event that they complete to `event`.
    pub(crate) fn read(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLarge> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, later) = (&rest[..end], &rest[end + 1..]);
            rest = later;
            if self.line.is_empty() {
                self.take(line, &mut event)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take(&whole, &mut event)?;
                whole.clear();
                self.line = whole;
            }
        }
        if self.line.len() + rest.len() > EVENT_BYTES_MAX {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    fn take(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) -> Result<(), TooLarge> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if !self.data.is_empty() {
                event(&self.data);
                self.data.clear();
            }
            return Ok(());
        }
        let Some(data) = line.strip_prefix(b"data:") else {
            return Ok(());
        };
        let data = data.strip_prefix(b" ").unwrap_or(data);
        if self.data.len() + data.len() > EVENT_BYTES_MAX {
            return Err(TooLarge);
        }
        if !self.data.is_empty() {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(events: &mut Events, bytes: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        let taken = events.read(bytes, |event| {
            all.push(String::from_utf8(event.to_vec()).unwrap());
        });
        taken.unwrap();
        all
    }

    const STREAM: &[u8] =
        b": alive\n\nid: 3\r\ndata: {\r\ndata:}\r\n\r\n\n\nevent: message\ndata: x\nid: 4\n\ndata: \n\n";

    #[test]
    fn only_events_with_data_count() {
        assert_eq!(read(&mut Events::default(), STREAM), ["{\n}", "x"]);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        let part = vec![b'x'; EVENT_BYTES_MAX / 2 + 1];
        assert_eq!(events.read(&part, |_| ()), Ok(()));
        assert_eq!(events.read(&part, |_| ()), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn where_it_is_cut_does_not_matter(mut cuts in prop::collection::vec(0..STREAM.len(), 0..12)) {
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let mut events = Events::default();
            let all: Vec<String> = cuts
                .windows(2)
                .flat_map(|pair| read(&mut events, &STREAM[pair[0]..pair[1]]))
                .collect();
            prop_assert_eq!(all, ["{\n}", "x"]);
        }
    }
}
