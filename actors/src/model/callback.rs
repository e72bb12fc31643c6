//! The shapes of what publishers plug in.
//!
//! Owns: the future and error types that readers, lists and handlers share, and how a panic in one of them becomes
//! its error. Never: runs any of them inside the actors; the task that asked for a read or a list does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// A boxed future that can move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a callback may fail with. Its text reaches the client that asked.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;

/// Runs a callback. A panic in it is its error: it hurts whoever asked, and only with an answer.
pub(crate) async fn run_callback<T>(
    start: impl FnOnce() -> BoxFuture<Result<T, CallbackError>>,
) -> Result<T, CallbackError> {
    let panicked = || CallbackError::from("its callback panicked");
    let mut running = catch_unwind(AssertUnwindSafe(start)).map_err(|_panic| panicked())?;
    // After a panic the future is never polled again, so nobody sees what it left half done.
    let poll = |cx: &mut std::task::Context<'_>| {
        catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)))
            .unwrap_or_else(|_panic| Poll::Ready(Err(panicked())))
    };
    std::future::poll_fn(poll).await
}
