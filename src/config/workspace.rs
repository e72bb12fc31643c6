//! The folder whose files are served, with its tools and its executable `register`.

use super::bounded::{
    Bytes, Checked, Count, File, GIB, HOUR, KIB, MIB, MINUTE, OrNone, SECOND, Scheme, Time,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The folder whose files are served, and the way files are watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkspaceConfig {
    /// Folder to serve, relative to where the service was started; empty serves none.
    #[serde(with = "Checked::<OrNone<File>>")]
    pub dir: Option<PathBuf>,
    /// Scheme of the URIs that files get.
    #[serde(with = "Checked::<Scheme>")]
    pub scheme: String,
    /// Quiet time after a file event before the folder, or the file of a collection, is read.
    #[serde(with = "Checked::<Time<10, { 10 * SECOND }>>")]
    pub debounce: Duration,
    /// Longest wait during a burst of events; not shorter than `workspace.debounce`.
    /// At the limit: It is read in the middle of the burst.
    #[serde(with = "Checked::<Time<10, MINUTE>>")]
    pub debounce_max: Duration,
    /// Interval at which the folder, or the file of a collection, is checked without a file event, in case
    /// one was lost.
    #[serde(with = "Checked::<Time<SECOND, { 24 * HOUR }>>")]
    pub rescan: Duration,
    /// Largest file that is served.
    /// At the limit: Larger files are skipped and reported.
    #[serde(with = "Checked::<Bytes<KIB, GIB>>")]
    pub file_bytes_max: u64,
    /// Files that are served.
    /// At the limit: Further files are skipped and reported.
    #[serde(with = "Checked::<Count<1, 10_000_000>>")]
    pub files_max: usize,
    /// Serves files and folders whose name starts with a dot too.
    pub hidden: bool,
    /// Largest file of a collection.
    /// At the limit: A larger one is reported, and the items that were read before stay.
    #[serde(with = "Checked::<Bytes<KIB, GIB>>")]
    pub collection_bytes_max: u64,
    /// Items of one collection.
    /// At the limit: A file with more is reported, and the items that were read before stay.
    #[serde(with = "Checked::<Count<1, 1_000_000>>")]
    pub collection_items_max: usize,
}

impl Default for WorkspaceConfig {
    fn default() -> WorkspaceConfig {
        WorkspaceConfig {
            dir: None,
            scheme: "workspace".to_owned(),
            debounce: Duration::from_millis(100),
            debounce_max: Duration::from_secs(1),
            rescan: Duration::from_secs(30),
            file_bytes_max: 4 << 20,
            files_max: 50_000,
            hidden: false,
            collection_bytes_max: 64 << 20,
            collection_items_max: 100_000,
        }
    }
}

/// The tools of that folder: executables that clients call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsConfig {
    /// Time of one call; the sidecar of a tool may set another for it.
    /// At the limit: All processes of the call are killed and it gets a tool error that names this key.
    #[serde(with = "Checked::<Time<SECOND, { 10 * MINUTE }>>")]
    pub timeout: Duration,
    /// Output of one call.
    /// At the limit: All processes of the call are killed and it gets a tool error that names this key.
    #[serde(with = "Checked::<Bytes<KIB, { 64 * MIB }>>")]
    pub output_bytes_max: u64,
    /// Calls that run at a time.
    /// At the limit: Further calls wait, at most their timeout; then they get a tool error that says busy.
    #[serde(with = "Checked::<Count<1, 1024>>")]
    pub concurrency_max: usize,
}

impl Default for ToolsConfig {
    fn default() -> ToolsConfig {
        ToolsConfig {
            timeout: Duration::from_secs(30),
            output_bytes_max: 1 << 20,
            concurrency_max: 8,
        }
    }
}

/// The executable `register` of that folder, which prints further registrations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegisterConfig {
    /// Pause between two runs.
    #[serde(with = "Checked::<Time<SECOND, HOUR>>")]
    pub refresh: Duration,
    /// Time of one run.
    /// At the limit: It is killed and reported, and the output of the run before stays in effect.
    #[serde(with = "Checked::<Time<SECOND, { 10 * MINUTE }>>")]
    pub timeout: Duration,
}

impl Default for RegisterConfig {
    fn default() -> RegisterConfig {
        RegisterConfig {
            refresh: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        }
    }
}
