//! The shapes of what publishers plug in.
//!
//! Owns: the future and error types that readers, lists and handlers share. Never: runs any of them; the task that
//! asked for a read or a call does, outside the actors.

use std::pin::Pin;

/// A boxed future that can move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a callback may fail with. Its text reaches the client that asked.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;
