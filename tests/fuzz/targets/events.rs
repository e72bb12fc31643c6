//! The client's reader of server-sent events: the events do not depend on the boundaries of reads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::wire::sse::EventReader;

type Event = (Vec<u8>, Option<String>, Option<String>);

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Event>> {
    let mut reader = EventReader::with_limit(1 << 10);
    let mut events = Vec::new();
    for piece in pieces {
        let read = reader.read(piece, |event| {
            events.push((
                event.data.to_vec(),
                event.id.map(str::to_owned),
                event.comment.map(str::to_owned),
            ));
        });
        read.ok()?;
    }
    Some(events)
}

fuzz_target!(|data: &[u8]| {
    let Some((size, stream)) = data.split_first() else {
        return;
    };
    let whole = events(std::iter::once(stream));
    let pieces = events(stream.chunks(usize::from(*size).max(1)));
    // Which read finds an event too large depends on the boundaries.
    if let (Some(whole), Some(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
    }
});
