//! The frames that the library holds for the requests of one connection.
//!
//! A request gives the library a frame as soon as it has one, and the library writes it when the windows of
//! the stream and of the connection are open. Until then the request gives it no other, so that notices stay
//! in their outbox, where newer ones replace them.
//!
//! The counts stand beside each other, by the places of the requests' tasks, since what a request has of its
//! own is seldom in the cache of the processor when a change wakes thousands.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Buf, Bytes};

use super::frame_buffers;

/// The frames that the library holds.
#[derive(Debug, Default)]
pub(super) struct SentFrames(RefCell<FrameCounts>);

#[derive(Debug, Default)]
struct FrameCounts {
    places: Vec<PlaceFrames>,
    /// The number of the last task.
    task: u32,
    /// The places that were given to the library since it was last looked at what it holds.
    given: Vec<usize>,
    /// The places that wait, and of which the library has dropped a frame.
    released: Vec<usize>,
    /// The places that wait for the socket.
    blocked: Vec<usize>,
}

/// The frames of one place.
#[derive(Debug, Clone, Copy, Default)]
struct PlaceFrames {
    /// The number of the task there.
    task: u32,
    bytes: usize,
    /// True if the task is to be polled when a frame is dropped.
    waits: bool,
    /// True while the task waits for the socket.
    waits_for_socket: bool,
}

impl SentFrames {
    /// Begins a task at a place.
    pub(super) fn begin(&self, key: usize) {
        let counts = &mut *self.0.borrow_mut();
        if counts.places.len() <= key {
            counts.places.resize(key + 1, PlaceFrames::default());
        }
        counts.task = counts.task.wrapping_add(1);
        counts.places[key] = PlaceFrames {
            task: counts.task,
            ..PlaceFrames::default()
        };
    }

    /// Returns the place of a task.
    pub(super) fn place(self: &Rc<Self>, key: usize) -> FramePlace<'_> {
        FramePlace { frames: self, key }
    }

    /// Takes the places whose tasks are to be polled after the library has written: those with a frame that
    /// it still holds, and those that wait for what has come. While the socket is blocked, those that wait
    /// for it go on waiting.
    pub(super) fn take_due(&self, is_blocked: bool) -> Vec<usize> {
        let counts = &mut *self.0.borrow_mut();
        let mut due = std::mem::take(&mut counts.released);
        // Most frames were written at once, and their tasks have nothing to wait for.
        let held = &counts.places;
        for key in counts.given.drain(..) {
            if let Some(PlaceFrames { bytes: 1.., .. }) = held.get(key) {
                due.push(key);
            }
        }
        if !is_blocked {
            for key in counts.blocked.drain(..) {
                if let Some(place) = counts.places.get_mut(key) {
                    place.waits_for_socket = false;
                    due.push(key);
                }
            }
        }
        due
    }

    /// Forgets the places of tasks that have all ended.
    pub(super) fn forget_places(&self) {
        let counts = &mut *self.0.borrow_mut();
        // Frames that are still held name places that are gone.
        *counts = FrameCounts {
            task: counts.task,
            ..FrameCounts::default()
        };
    }

    /// Notes that the library has dropped a frame.
    fn dropped(&self, frame: &SentFrame) {
        let counts = &mut *self.0.borrow_mut();
        if let Some(place) = counts.places.get_mut(frame.key)
            // A frame of an earlier task may be held for longer than its place.
            && place.task == frame.task
        {
            place.bytes -= frame.bytes.len();
            if std::mem::take(&mut place.waits) {
                counts.released.push(frame.key);
            }
        }
    }
}

/// The place of a task, for the time of a poll.
pub(super) struct FramePlace<'f> {
    frames: &'f Rc<SentFrames>,
    key: usize,
}

impl FramePlace<'_> {
    /// The bytes of the task's frames that the library holds.
    pub(super) fn held(&self) -> usize {
        self.frames.0.borrow().places[self.key].bytes
    }

    /// Makes a frame, which the library holds until it drops it.
    pub(super) fn frame(&self, bytes: FrameBytes) -> SentFrame {
        let counts = &mut *self.frames.0.borrow_mut();
        let place = &mut counts.places[self.key];
        let length = bytes.len();
        place.bytes += length;
        if length > 0 {
            counts.given.push(self.key);
        }
        SentFrame {
            bytes,
            written: 0,
            key: self.key,
            task: place.task,
            frames: self.frames.clone(),
        }
    }

    /// Has the task polled when the library drops a frame of it.
    pub(super) fn wait(&self) {
        self.frames.0.borrow_mut().places[self.key].waits = true;
    }

    /// Has the task polled when the socket takes bytes again.
    pub(super) fn wait_for_socket(&self) {
        let counts = &mut *self.frames.0.borrow_mut();
        // Once, however often it is polled meanwhile.
        if !std::mem::replace(&mut counts.places[self.key].waits_for_socket, true) {
            counts.blocked.push(self.key);
        }
    }
}

/// The bytes of a frame.
#[derive(Debug)]
pub(super) enum FrameBytes {
    /// Of a body that has them.
    Body(Bytes),
    /// Of a stream, in a buffer for the time until they are written.
    Stream(Vec<u8>),
}

impl FrameBytes {
    pub(super) fn len(&self) -> usize {
        match self {
            FrameBytes::Body(bytes) => bytes.len(),
            FrameBytes::Stream(buffer) => buffer.len(),
        }
    }
}

/// A frame in the library.
#[derive(Debug)]
pub(super) struct SentFrame {
    bytes: FrameBytes,
    /// The bytes of it that are written.
    written: usize,
    key: usize,
    task: u32,
    frames: Rc<SentFrames>,
}

impl Buf for SentFrame {
    fn remaining(&self) -> usize {
        self.bytes.len() - self.written
    }

    fn chunk(&self) -> &[u8] {
        match &self.bytes {
            FrameBytes::Body(bytes) => &bytes[self.written..],
            FrameBytes::Stream(buffer) => &buffer[self.written..],
        }
    }

    fn advance(&mut self, count: usize) {
        self.written += count;
    }
}

impl Drop for SentFrame {
    fn drop(&mut self) {
        self.frames.dropped(self);
        if let FrameBytes::Stream(buffer) = &mut self.bytes {
            frame_buffers::give_back(std::mem::take(buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const TEXT: FrameBytes = FrameBytes::Body(Bytes::from_static(b"text"));

    #[test]
    fn task_is_due_if_its_frame_is_held_or_was_waited_for() {
        let frames = Rc::<SentFrames>::default();
        (0..3).for_each(|key| frames.begin(key));
        let written = frames.place(0).frame(TEXT);
        let held = frames.place(2).frame(TEXT);
        assert_eq!((frames.place(0).held(), frames.place(1).held()), (4, 0));
        drop(written);
        assert_eq!(frames.take_due(false), [2]);
        assert!(frames.take_due(false).is_empty());
        frames.place(2).wait();
        drop(held);
        assert_eq!(frames.place(2).held(), 0);
        assert_eq!(frames.take_due(false), [2]);
    }

    #[test]
    fn task_that_waits_for_the_socket_is_due_once() {
        let frames = Rc::<SentFrames>::default();
        frames.begin(0);
        frames.place(0).wait_for_socket();
        frames.place(0).wait_for_socket();
        assert!(frames.take_due(true).is_empty());
        assert_eq!(frames.take_due(false), [0]);
        assert!(frames.take_due(false).is_empty());
    }

    #[test]
    fn frames_of_an_earlier_task_count_for_nothing() {
        let frames = Rc::<SentFrames>::default();
        frames.begin(0);
        let old = frames.place(0).frame(TEXT);
        frames.begin(0);
        assert_eq!(frames.place(0).held(), 0);
        let new = frames.place(0).frame(TEXT);
        frames.place(0).wait();
        drop(old);
        assert_eq!(frames.place(0).held(), 4);
        drop(new);
        assert_eq!(frames.take_due(false), [0]);
    }

    /// A step of a connection, at one of three places.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Begin(usize),
        Send(usize),
        Wait(usize),
        /// The library drops the oldest frame.
        Drop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => (0..3_usize).prop_map(Step::Begin),
            4 => (0..3_usize).prop_map(Step::Send),
            2 => (0..3_usize).prop_map(Step::Wait),
            4 => Just(Step::Drop),
        ]
    }

    proptest! {
        #[test]
        fn bytes_of_a_task_are_those_of_its_frames(steps in prop::collection::vec(step(), 0..60)) {
            let frames = Rc::<SentFrames>::default();
            (0..3).for_each(|key| frames.begin(key));
            let mut tasks = [0; 3];
            let mut held = VecDeque::new();
            let mut waits = [false; 3];
            let mut released = [false; 3];
            for step in steps {
                match step {
                    Step::Begin(key) => {
                        frames.begin(key);
                        tasks[key] += 1;
                        waits[key] = false;
                    }
                    Step::Send(key) => held.push_back((key, tasks[key], frames.place(key).frame(TEXT))),
                    Step::Wait(key) => {
                        frames.place(key).wait();
                        waits[key] = true;
                    }
                    Step::Drop => {
                        if let Some((key, task, frame)) = held.pop_front() {
                            drop(frame);
                            released[key] |= task == tasks[key] && std::mem::take(&mut waits[key]);
                        }
                    }
                }
                for (key, task) in tasks.iter().enumerate() {
                    let own = held.iter().filter(|(of, by, _)| of == &key && by == task);
                    prop_assert_eq!(frames.place(key).held(), own.count() * TEXT.len());
                }
            }
            let due = frames.take_due(false);
            for (key, was_released) in released.iter().enumerate() {
                let is_held = frames.place(key).held() > 0;
                prop_assert_eq!(due.contains(&key), *was_released || is_held, "{}", key);
            }
        }
    }
}
