//! The folder whose files are served, with its tools and its executable `register`.

use super::bounded::*;
use std::path::PathBuf;
use std::time::Duration;

table! { WorkspaceConfig = "The folder whose files are served, and the way files are watched.";
    /// Folder to serve, relative to where the service was started; empty serves none.
    dir: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// Scheme of the URIs that files get.
    scheme: String = "workspace".to_owned(), "Checked::<Scheme>";
    /// Quiet time after a file event before the folder, or the file of a collection, is read.
    debounce: Duration = Duration::from_millis(100), "Checked::<Time<10, { 10 * SECOND }>>";
    /// Longest wait during a burst of events; not shorter than `workspace.debounce`.
    /// At the limit: It is read in the middle of the burst.
    debounce_max: Duration = Duration::from_secs(1), "Checked::<Time<10, MINUTE>>";
    /// Interval at which the folder, or the file of a collection, is checked without a file event, in case
    /// one was lost.
    rescan: Duration = Duration::from_secs(30), "Checked::<Time<SECOND, { 24 * HOUR }>>";
    /// Largest file that is served. At the limit: Larger files are skipped and reported.
    file_bytes_max: u64 = 4 << 20, "Checked::<Bytes<KIB, GIB>>";
    /// Files that are served. At the limit: Further files are skipped and reported.
    files_max: usize = 50_000, "Checked::<Count<1, 10_000_000>>";
    /// Serves files and folders whose name starts with a dot too.
    hidden: bool = false;
    /// Largest file of a collection.
    /// At the limit: A larger one is reported, and the items that were read before stay.
    collection_bytes_max: u64 = 64 << 20, "Checked::<Bytes<KIB, GIB>>";
    /// Items of one collection.
    /// At the limit: A file with more is reported, and the items that were read before stay.
    collection_items_max: usize = 100_000, "Checked::<Count<1, 1_000_000>>";
}

table! { ToolsConfig = "The tools of that folder: executables that clients call.";
    /// Time of one call; the sidecar of a tool may set another for it.
    /// At the limit: All processes of the call are killed and it gets a tool error that names this key.
    timeout: Duration = Duration::from_secs(30), "Checked::<Time<SECOND, { 10 * MINUTE }>>";
    /// Output of one call.
    /// At the limit: All processes of the call are killed and it gets a tool error that names this key.
    output_bytes_max: u64 = 1 << 20, "Checked::<Bytes<KIB, { 64 * MIB }>>";
    /// Calls that run at a time.
    /// At the limit: Further calls wait, at most their timeout; then they get a tool error that says busy.
    concurrency_max: usize = 8, "Checked::<Count<1, 1024>>";
    /// Address space of one process of a tool or of `register`; 0 leaves the limit of the service. Runtimes
    /// such as Java's and Node's reserve far more than they use. At the limit: Its allocations fail.
    address_space_max: Option<u64> = None, "Checked::<OrNone<Bytes<{ 16 * MIB }, { 1024 * GIB }>>>";
    /// Processes and threads of the service's user, counted when a tool starts one; 0 leaves the limit of the
    /// service. It does not bind root. At the limit: The tool can start no further ones.
    processes_max: Option<u64> = None, "Checked::<OrNone<Count<1, 4_000_000>>>";
    /// Processor time of one process, in whole seconds; 0 leaves the limit of the service.
    /// At the limit: The process is killed, even one that left the process group of its call.
    cpu_max: Option<Duration> = Some(Duration::from_secs(3600)), "Checked::<OrNone<Time<SECOND, { 24 * HOUR }>>>";
    /// Open files of one process; 0 leaves the limit of the service.
    /// At the limit: It can open no further ones.
    open_files_max: Option<u64> = Some(1024), "Checked::<OrNone<Count<16, 1_000_000>>>";
}

table! { RegisterConfig = "The executable `register` of that folder, which prints further registrations.";
    /// Pause between two runs.
    refresh: Duration = Duration::from_secs(5), "Checked::<Time<SECOND, HOUR>>";
    /// Time of one run.
    /// At the limit: It is killed and reported, and the output of the run before stays in effect.
    timeout: Duration = Duration::from_secs(10), "Checked::<Time<SECOND, { 10 * MINUTE }>>";
}
