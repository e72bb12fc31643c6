//! The sinks, which are files and receivers of notices, the log and the metrics.
//!
//! A sink is a struct of its own here and one field of [`Config`](super::Config). The attribute `x-path`
//! marks paths that start at the folder of the configuration file, with `written` for files that no other
//! sink may write to.

use super::bounded::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
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

table! { JournalConfig = "A JSON-lines file that every notice is written to.";
    /// Its name: `journal/NAME` in metrics and logs; each is used once.
    name: String = String::new(), "Checked::<Name>";
    /// The file. A relative path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "written"))]
    file: PathBuf = PathBuf::new(), "Checked::<File>";
    /// Resources whose notices it gets; empty means all.
    uris: Vec<String> = Vec::new(), "Checked::<List<Pattern, 0, PATTERNS_MAX>>";
    /// Kinds of notices it gets; empty means all.
    kinds: Vec<String> = Vec::new(), "Checked::<List<Kind, 0, 256>>";
    /// Every notice, or, while it is behind, only the newest of each resource and list.
    class: SinkClass = SinkClass::default();
    /// Notices that may wait. Beyond that, `overflow` decides which are lost, and a gap is reported.
    queue: usize = 10_000, "Checked::<Count<1, 1_000_000>>";
    /// The notices that a full queue loses, with the class `every`.
    overflow: SinkOverflow = SinkOverflow::default();
    /// Size at which the file is rotated: FILE becomes FILE.1, FILE.1 becomes FILE.2, and so on.
    bytes_max: u64 = 64 * MIB, "Checked::<Bytes<KIB, { 1024 * GIB }>>";
    /// Rotated files that are kept besides FILE; the oldest is removed.
    files_max: usize = 5, "Checked::<Count<0, 1000>>";
    /// The moments at which lines are synced to the disk; the page on sinks lists the possible loss of each.
    fsync: FsyncPolicy = FsyncPolicy::default();
    /// Longest time until a line is synced, with `interval`.
    fsync_every: Duration = Duration::from_millis(SECOND), "Checked::<Time<10, HOUR>>";
}

table! { #[schemars(extend("x-one-of" = ["secret_file", "secret_variable"]))]
    WebhookConfig = "A receiver of signed POST requests.";
    /// Its name: `webhook/NAME` in metrics and logs; each is used once.
    name: String = String::new(), "Checked::<Name>";
    /// Address to which notices are sent by POST.
    url: String = String::new(), "Checked::<Url>";
    /// File with the secret, `whsec_` and base64 of 24 to 64 bytes; several lines sign several times. A
    /// relative path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    secret_file: Option<PathBuf> = None, "Checked::<File>";
    /// Environment variable with the secret, in place of `secret_file`; several are separated by blanks.
    secret_variable: Option<String> = None, "Checked::<Variable>";
    /// Resources whose notices it gets; empty means all.
    uris: Vec<String> = Vec::new(), "Checked::<List<Pattern, 0, PATTERNS_MAX>>";
    /// Kinds of notices it gets; empty means all.
    kinds: Vec<String> = Vec::new(), "Checked::<List<Kind, 0, 256>>";
    /// Every notice, or, while it is behind, only the newest of each resource and list.
    class: SinkClass = SinkClass::default();
    /// Notices that may wait. Beyond that, `overflow` decides which are lost, and a gap is reported.
    queue: usize = 10_000, "Checked::<Count<1, 1_000_000>>";
    /// The notices that a full queue loses, with the class `every`.
    overflow: SinkOverflow = SinkOverflow::default();
    /// Time of one request, from the look-up of the name to the end of the answer.
    timeout: Duration = Duration::from_millis(10 * SECOND), "Checked::<Time<SECOND, { 5 * MINUTE }>>";
    /// Requests for one notice; then it is a dead letter.
    attempts: usize = 10, "Checked::<Count<1, 1000>>";
    /// Time for the requests for one notice; then it is a dead letter, even with `attempts` left.
    retry_for: Duration = Duration::from_millis(15 * MINUTE), "Checked::<Time<0, { 24 * HOUR }>>";
    /// Longest pause between two of them; the first is about half a second, and each is twice the one before.
    backoff_max: Duration = Duration::from_millis(MINUTE), "Checked::<Time<SECOND, HOUR>>";
    /// JSON-lines file for notices that could not be delivered; empty keeps none. A relative path starts at
    /// the folder of the configuration file.
    #[schemars(extend("x-path" = "written"))]
    dead_letters: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// Size at which that file is rotated; one rotated file is kept.
    dead_letter_bytes_max: u64 = 16 * MIB, "Checked::<Bytes<KIB, { 1024 * GIB }>>";
    /// Allows a loopback, private, link-local or otherwise special address.
    allow_private: bool = false;
}

table! { DebugLogConfig = "A log of the steps of each notice.";
    /// Its name: `debug_log/NAME` in metrics and logs; each is used once.
    name: String = String::new(), "Checked::<Name>";
    /// Resources whose notices are traced; empty means all.
    uris: Vec<String> = Vec::new(), "Checked::<List<Pattern, 0, PATTERNS_MAX>>";
    /// Traces changes of lists too.
    lists: bool = true;
    /// Traces one notice of this many, counted by position.
    sample: usize = 1, "Checked::<Count<1, 1_000_000_000>>";
    /// One line of text, or one JSON object, per step.
    format: LogFormat = LogFormat::default();
    /// The file; empty means standard error. A relative path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "written"))]
    file: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// Size at which the file is rotated.
    bytes_max: u64 = 64 * MIB, "Checked::<Bytes<KIB, { 1024 * GIB }>>";
    /// Rotated files that are kept besides it.
    files_max: usize = 2, "Checked::<Count<0, 1000>>";
    /// Steps that may wait. Beyond that, the oldest are lost, and a gap is written.
    queue: usize = 10_000, "Checked::<Count<1, 1_000_000>>";
}

table! { LogConfig = "The log: the events in it, and their form.";
    /// Filter directives such as `info` or `warn,tidings=debug`.
    level: String = "info".to_owned(), "Checked::<Text<1, 4096>>";
    /// One line of text, or one JSON object, per event.
    format: LogFormat = LogFormat::Text;
}

/// Form of one logged event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object for programs.
    Json,
}

table! { MetricsConfig = "The metrics for Prometheus, and the address that serves them.";
    /// Collects metrics for Prometheus and serves them as `/metrics`.
    enabled: bool = true;
    /// Address that serves `/metrics` alone; empty serves it on `http.listen`.
    /// At the limit: An address other machines can reach needs `http.allowed_hosts`, or the service does not
    /// start.
    listen: Option<SocketAddr> = None, "Checked::<OrNone<Address>>";
}
