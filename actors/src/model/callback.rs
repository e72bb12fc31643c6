//! The future and error types that readers, lists, prompts and tools share, and the isolation of their
//! panics.
//!
//! A callback is code of an embedder. The task that runs it serves a request, so a panic that ended the task
//! would leave a client without an answer.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

/// A boxed future that can move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The error of a callback. Its text is sent to the client that made the request.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;

/// Runs a callback and turns a panic in it into an error, so that it fails one request and not the task
/// around it.
pub(crate) async fn run_callback<T>(
    start: impl FnOnce() -> BoxFuture<Result<T, CallbackError>>,
) -> Result<T, CallbackError> {
    match catch_panic(start).await {
        Ok(result) => result,
        Err(panicked) => Err(panicked.into()),
    }
}

/// The end of a callback that panicked. The panic itself is told on standard error by the panic hook of the
/// process, and never to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its callback panicked")]
pub struct Panicked;

/// Runs the future that `start` returns, and turns a panic in either into an error.
///
/// # Errors
/// [`Panicked`]. State that the callback shares with others may be half changed then.
pub async fn catch_panic<F: Future>(start: impl FnOnce() -> F) -> Result<F::Output, Panicked> {
    let Ok(running) = catch_unwind(AssertUnwindSafe(start)) else {
        return Err(Panicked);
    };
    let mut running = pin!(running);
    // The assertion holds because the future is never polled again after a panic, so its broken state is
    // never seen.
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_panic) => Poll::Ready(Err(Panicked)),
        },
    )
    .await
}
