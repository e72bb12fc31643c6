//! The sinks: files and receivers of notices.
//!
//! A sink is a struct of its own here and one field of [`Config`](super::Config). The attribute `x-path`
//! marks paths that start at the folder of the configuration file, with `written` for files that no other
//! sink may write to.

use super::LogFormat;
use super::bounded::{
    Bytes, Checked, Count, File, GIB, HOUR, KIB, Kind, List, MIB, MINUTE, Name, OrNone, Pattern, SECOND,
    Time, Url, Variable, bytes, count, millis,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tidings_actors::PATTERNS_MAX;

/// The notices kept for a sink that is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SinkClass {
    /// Every notice, in a bounded queue.
    #[default]
    Every,
    /// The newest of each resource and list.
    Latest,
}

/// The notice that a full queue loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SinkOverflow {
    /// The one that has waited longest.
    #[default]
    DropOldest,
    /// The one that came last.
    DropNewest,
}

/// The moments at which a file is synced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FsyncPolicy {
    /// Left to the system.
    Never,
    /// At each rotation, and at the end.
    Rotate,
    /// At most `fsync_every` after a line was written.
    #[default]
    Interval,
    /// With every line.
    Always,
}

/// A JSON-lines file that every notice is written to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    /// Its name: `journal/NAME` in metrics and logs; each is used once.
    #[serde(with = "Checked::<Name>")]
    #[schemars(extend("x-unique" = []))]
    pub name: String,
    /// The file. A relative path starts at the folder of the configuration file.
    #[serde(with = "Checked::<File>")]
    #[schemars(extend("x-path" = "written"))]
    pub file: PathBuf,
    /// Resources whose notices it gets; empty means all.
    #[serde(default, with = "Checked::<List<Pattern, 0, PATTERNS_MAX>>")]
    pub uris: Vec<String>,
    /// Kinds of notices it gets; empty means all.
    #[serde(default, with = "Checked::<List<Kind, 0, 256>>")]
    pub kinds: Vec<String>,
    /// Every notice, or, while it is behind, only the newest of each resource and list.
    #[serde(default)]
    pub class: SinkClass,
    /// Notices that may wait. Beyond that, `overflow` decides which are lost, and a gap is reported.
    #[serde(default = "count::<10_000>", with = "Checked::<Count<1, 1_000_000>>")]
    pub queue: usize,
    /// The notices that a full queue loses, with the class `every`.
    #[serde(default)]
    pub overflow: SinkOverflow,
    /// Size at which the file is rotated: FILE becomes FILE.1, FILE.1 becomes FILE.2, and so on.
    #[serde(
        default = "bytes::<{ 64 * MIB }>",
        with = "Checked::<Bytes<KIB, { 1024 * GIB }>>"
    )]
    pub bytes_max: u64,
    /// Rotated files that are kept besides FILE; the oldest is removed.
    #[serde(default = "count::<5>", with = "Checked::<Count<0, 1000>>")]
    pub files_max: usize,
    /// The moments at which lines are synced to the disk; the page on sinks lists the possible loss of each.
    #[serde(default)]
    pub fsync: FsyncPolicy,
    /// Longest time until a line is synced, with `interval`.
    #[serde(default = "millis::<SECOND>", with = "Checked::<Time<10, HOUR>>")]
    pub fsync_every: Duration,
}

/// A receiver of signed POST requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["secret_file", "secret_variable"]))]
pub struct WebhookConfig {
    /// Its name: `webhook/NAME` in metrics and logs; each is used once.
    #[serde(with = "Checked::<Name>")]
    #[schemars(extend("x-unique" = []))]
    pub name: String,
    /// Address to which notices are sent by POST.
    #[serde(with = "Checked::<Url>")]
    pub url: String,
    /// File with the secret, `whsec_` and base64 of 24 to 64 bytes; several lines sign several times. A
    /// relative path starts at the folder of the configuration file.
    #[serde(default, with = "Checked::<File>")]
    #[schemars(extend("x-path" = "read"))]
    pub secret_file: Option<PathBuf>,
    /// Environment variable with the secret, in place of `secret_file`; several are separated by blanks.
    #[serde(default, with = "Checked::<Variable>")]
    pub secret_variable: Option<String>,
    /// Resources whose notices it gets; empty means all.
    #[serde(default, with = "Checked::<List<Pattern, 0, PATTERNS_MAX>>")]
    pub uris: Vec<String>,
    /// Kinds of notices it gets; empty means all.
    #[serde(default, with = "Checked::<List<Kind, 0, 256>>")]
    pub kinds: Vec<String>,
    /// Every notice, or, while it is behind, only the newest of each resource and list.
    #[serde(default)]
    pub class: SinkClass,
    /// Notices that may wait. Beyond that, `overflow` decides which are lost, and a gap is reported.
    #[serde(default = "count::<10_000>", with = "Checked::<Count<1, 1_000_000>>")]
    pub queue: usize,
    /// The notices that a full queue loses, with the class `every`.
    #[serde(default)]
    pub overflow: SinkOverflow,
    /// Time of one request, from the look-up of the name to the end of the answer.
    #[serde(
        default = "millis::<{ 10 * SECOND }>",
        with = "Checked::<Time<SECOND, { 5 * MINUTE }>>"
    )]
    pub timeout: Duration,
    /// Requests for one notice; then it is a dead letter.
    #[serde(default = "count::<10>", with = "Checked::<Count<1, 1000>>")]
    pub attempts: usize,
    /// Time for the requests for one notice; then it is a dead letter, even with `attempts` left.
    #[serde(
        default = "millis::<{ 15 * MINUTE }>",
        with = "Checked::<Time<0, { 24 * HOUR }>>"
    )]
    pub retry_for: Duration,
    /// Longest pause between two of them; the first is about half a second, and each is twice the one before.
    #[serde(default = "millis::<MINUTE>", with = "Checked::<Time<SECOND, HOUR>>")]
    pub backoff_max: Duration,
    /// JSON-lines file for notices that could not be delivered; empty keeps none. A relative path starts at
    /// the folder of the configuration file.
    #[serde(default, with = "Checked::<OrNone<File>>")]
    #[schemars(extend("x-path" = "written"))]
    pub dead_letters: Option<PathBuf>,
    /// Size at which that file is rotated; one rotated file is kept.
    #[serde(
        default = "bytes::<{ 16 * MIB }>",
        with = "Checked::<Bytes<KIB, { 1024 * GIB }>>"
    )]
    pub dead_letter_bytes_max: u64,
    /// Allows a loopback, private, link-local or otherwise special address.
    #[serde(default)]
    pub allow_private: bool,
}

/// A log of the steps of each notice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DebugLogConfig {
    /// Its name: `debug_log/NAME` in metrics and logs; each is used once.
    #[serde(with = "Checked::<Name>")]
    #[schemars(extend("x-unique" = []))]
    pub name: String,
    /// Resources whose notices are traced; empty means all.
    #[serde(default, with = "Checked::<List<Pattern, 0, PATTERNS_MAX>>")]
    pub uris: Vec<String>,
    /// Traces changes of lists too.
    #[serde(default = "yes")]
    pub lists: bool,
    /// Traces one notice of this many, counted by position.
    #[serde(default = "count::<1>", with = "Checked::<Count<1, 1_000_000_000>>")]
    pub sample: usize,
    /// One line of text, or one JSON object, per step.
    #[serde(default)]
    pub format: LogFormat,
    /// The file; empty means standard error. A relative path starts at the folder of the configuration file.
    #[serde(default, with = "Checked::<OrNone<File>>")]
    #[schemars(extend("x-path" = "written"))]
    pub file: Option<PathBuf>,
    /// Size at which the file is rotated.
    #[serde(
        default = "bytes::<{ 64 * MIB }>",
        with = "Checked::<Bytes<KIB, { 1024 * GIB }>>"
    )]
    pub bytes_max: u64,
    /// Rotated files that are kept besides it.
    #[serde(default = "count::<2>", with = "Checked::<Count<0, 1000>>")]
    pub files_max: usize,
    /// Steps that may wait. Beyond that, the oldest are lost, and a gap is written.
    #[serde(default = "count::<10_000>", with = "Checked::<Count<1, 1_000_000>>")]
    pub queue: usize,
}

fn yes() -> bool {
    true
}
