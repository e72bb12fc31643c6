//! The sources of changes, on real files with the real watcher and real processes.
//!
//! The watcher and the processes run in real time, so an expected change is waited for. That something caused
//! no change is shown by a later change that arrived.

mod folder;
mod files;
mod skipped;
mod prompts;
mod tools;
mod launcher;
mod register;
mod collection;
