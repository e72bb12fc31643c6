//! The sinks as used: files and receivers that are told of every change.
//!
//! Plain values for `crate::sink`. A value that came out of `Config::load` keeps the rules of the table in `list`:
//! names are identifiers, patterns and addresses are well-formed, no two sinks write to one file. Nothing here opens
//! a file or connects.

use super::{LogFormat, folder, time};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What a sink is handed, and what is kept for it while it is behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedConfig {
    /// Patterns of URIs; none means all.
    pub uris: Vec<String>,
    /// Names of kinds of news; none means all.
    pub kinds: Vec<String>,
    /// Every notice, or the newest of each resource.
    pub class: SinkClass,
    /// How many may wait. What is lost then, `overflow` says.
    pub queue: usize,
    /// What a full queue loses.
    pub overflow: SinkOverflow,
}

/// What is kept for a sink that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkClass {
    /// Every notice, in a bounded queue.
    Every,
    /// The newest of each resource and list.
    Latest,
}

/// What a full queue loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkOverflow {
    /// What has waited longest.
    DropOldest,
    /// What came last.
    DropNewest,
}

/// When a file is brought to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsyncPolicy {
    /// Whenever the system likes.
    Never,
    /// When it is rotated, and at the end.
    Rotate,
    /// At most `fsync_every` after a line was written.
    Interval,
    /// With every line.
    Always,
}

/// A JSON-lines file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalConfig {
    /// Its name: `journal/NAME` in metrics and logs.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// What is written to it.
    #[serde(flatten)]
    pub feed: FeedConfig,
    /// Size in bytes at which it is rotated.
    pub bytes_max: u64,
    /// Rotated files that are kept.
    pub files_max: usize,
    /// When it is brought to the disk.
    pub fsync: FsyncPolicy,
    /// How long a line may wait for that with [`FsyncPolicy::Interval`].
    #[serde(with = "time")]
    pub fsync_every: Duration,
}

/// A receiver of signed POST requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookConfig {
    /// Its name: `webhook/NAME` in metrics and logs.
    pub name: String,
    /// Where to.
    pub url: String,
    /// The file with the secrets, one a line; or none, with `secret_variable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The environment variable with the secrets, separated by blanks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_variable: Option<String>,
    /// What is sent.
    #[serde(flatten)]
    pub feed: FeedConfig,
    /// Time of one request.
    #[serde(with = "time")]
    pub timeout: Duration,
    /// Requests for one notice.
    pub attempts: usize,
    /// Time for all of them.
    #[serde(with = "time")]
    pub retry_for: Duration,
    /// Longest pause between two of them.
    #[serde(with = "time")]
    pub backoff_max: Duration,
    /// Where notices go that could not be delivered; none drops them.
    #[serde(with = "folder")]
    pub dead_letters: Option<PathBuf>,
    /// Size in bytes at which that file is rotated; one rotated file is kept.
    pub dead_letter_bytes_max: u64,
    /// Whether the address may be one that the internet does not route.
    pub allow_private: bool,
}

/// A log of what became of notices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DebugLogConfig {
    /// Its name: `debug_log/NAME` in metrics and logs.
    pub name: String,
    /// Patterns of URIs; none means all.
    pub uris: Vec<String>,
    /// Whether lists are traced too.
    pub lists: bool,
    /// Of every so many notices one is traced.
    pub sample: usize,
    /// Shape of one line.
    pub format: LogFormat,
    /// The file; none means standard error.
    #[serde(with = "folder")]
    pub file: Option<PathBuf>,
    /// Size in bytes at which it is rotated.
    pub bytes_max: u64,
    /// Rotated files that are kept.
    pub files_max: usize,
    /// How many lines may wait; the oldest are lost then.
    pub queue: usize,
}
