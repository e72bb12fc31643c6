//! The sources of changes, on real files with the real watcher and real processes.
//!
//! An expected change is waited for. That something caused no change is shown by a later change that arrived.

mod folder;
mod files;
mod skipped;
mod prompts;
mod tools;
mod register;
mod collection;

use std::time::Duration;

/// The longest wait for an expected change, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(15);
/// The pause between two looks. The system's watcher and processes run in real time, so the tests do, too.
const PAUSE: Duration = Duration::from_millis(2);
