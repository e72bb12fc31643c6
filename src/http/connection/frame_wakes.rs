//! The wakes by which the library tells a task of room for the frame that it has in hand.
//!
//! When a body gives it a frame, the library asks for room in the window of the stream. Where there is some
//! it wakes the task that waits for room, which is the one that asks, and goes on to write the frame. Such a
//! wake would have each task polled twice for a delivery, so it is held back, and counts for nothing if the
//! library asks the body for its next frame in the same poll.
//!
//! Only wakes on the thread of the poll are held back: one on another thread is that of a newer notice.

use std::cell::Cell;
use std::ptr;

use super::woken_tasks::WokenTasks;

thread_local! {
    static POLLED: Cell<PolledTask> = const { Cell::new(PolledTask::NONE) };
}

/// The task that the thread polls.
#[derive(Clone, Copy)]
struct PolledTask {
    /// The set of the task; null while none is polled.
    list: *const WokenTasks,
    key: usize,
    /// True between a frame and the next question for one.
    holds_back: bool,
    /// True if it was woken meanwhile.
    was_woken: bool,
}

impl PolledTask {
    const NONE: PolledTask = PolledTask {
        list: ptr::null(),
        key: 0,
        holds_back: false,
        was_woken: false,
    };
}

/// Notes that the task at a place of a set is polled next.
pub(super) fn begin_poll(list: &WokenTasks, key: usize) {
    POLLED.set(PolledTask {
        list,
        key,
        ..PolledTask::NONE
    });
}

/// Notes that the poll is over. Returns true if a wake of the task is still held back, as the library waits
/// for more room than it had.
pub(super) fn end_poll() -> bool {
    POLLED.replace(PolledTask::NONE).was_woken
}

/// Notes that the body of the polled task gives the library a frame.
pub(super) fn frame_given() {
    POLLED.set(PolledTask {
        holds_back: true,
        ..POLLED.get()
    });
}

/// Notes that the library asks the body of the polled task for a frame, as it has written the last one.
pub(super) fn frame_asked() {
    POLLED.set(PolledTask {
        holds_back: false,
        was_woken: false,
        ..POLLED.get()
    });
}

/// Returns true if a wake of the task at a place of a set is held back.
pub(super) fn holds_back(list: &WokenTasks, key: usize) -> bool {
    let polled = POLLED.get();
    if !polled.holds_back || polled.key != key || !ptr::eq(polled.list, list) {
        return false;
    }
    POLLED.set(PolledTask {
        was_woken: true,
        ..polled
    });
    true
}

#[cfg(test)]
mod tests {
    use crate::http::connection::http2_body::Http2Body;
    use crate::http::connection::http2_streams::StreamSpawner;
    use crate::http::connection::request_tasks::{NewTasks, RequestTasks};
    use crate::http::connection::texts::{Texts, streams};
    use ::http::{Request, Response};
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper::server::conn::http2;
    use hyper_util::rt::TokioIo;
    use std::convert::Infallible;
    use std::future::{Future, poll_fn, ready};
    use std::pin::pin;
    use std::task::Poll;
    use tokio::io::duplex;

    #[tokio::test]
    async fn stream_is_asked_once_for_each_delivery() {
        let texts = Texts::default();
        let streams = streams();
        let new_tasks = NewTasks::default();
        let mut tasks = RequestTasks::new(new_tasks.clone());
        let (client, server) = duplex(4_096);
        let body_of = texts.clone();
        let serve = hyper::service::service_fn(|_| {
            let body = Http2Body::<Empty<Bytes>>::of_stream(Box::new(body_of.clone()), streams.begin());
            ready(Ok::<_, Infallible>(Response::new(body)))
        });
        let spawner = StreamSpawner::new(streams.clone(), new_tasks);
        let mut library = pin!(http2::Builder::new(spawner).serve_connection(TokioIo::new(server), serve));
        let server = poll_fn(|cx| {
            assert!(library.as_mut().poll(cx).is_pending());
            while tasks.poll_turn(true) {
                assert!(library.as_mut().poll(cx).is_pending());
            }
            if tasks.wait(cx, false) {
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        let client = async {
            let (mut requests, connection) = h2::client::handshake(client).await.unwrap();
            let talk = async {
                let (response, _) = requests.send_request(Request::new(()), true).unwrap();
                let mut body = response.await.unwrap().into_body();
                for _ in 0..10 {
                    texts.put("text");
                    assert_eq!(body.data().await.unwrap().unwrap(), "text");
                }
            };
            tokio::select! {
                () = talk => (),
                ended = connection => panic!("the connection ended: {ended:?}"),
            }
        };
        tokio::select! {
            () = server => unreachable!("a server serves until it is dropped"),
            () = client => (),
        }
        assert_eq!(texts.asked(), 1 + 10);
    }
}
