//! The future and error types that readers, lists, prompts and tools share, and the isolation of their
//! panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
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
    let mut running = match catch_unwind(AssertUnwindSafe(start)) {
        Ok(running) => running,
        Err(_panic) => return Err(panicked()),
    };
    // The assertion holds because the future is never polled again after a panic, so its broken state is
    // never seen.
    std::future::poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(_panic) => Poll::Ready(Err(panicked())),
        },
    )
    .await
}

fn panicked() -> CallbackError {
    CallbackError::from("its callback panicked")
}
