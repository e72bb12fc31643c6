//! The bus: its limits, the store that outlives it, and its end.

use super::bounded::*;
use std::path::PathBuf;
use std::time::Duration;
use tidings_actors::Limits;

table! { BusConfig = "The limits of the bus, and of the changes that wait to enter it.";
    /// Changes inside the bus at a time. At the limit: Publishers wait until one has been answered.
    in_flight_max: usize = Limits::default().in_flight_max, "Checked::<Count<1, 65_536>>";
    /// Registered resources. At the limit: A further registration gets an error that names the limit.
    resources_max: usize = Limits::default().resources_max, "Checked::<Count<1, 10_000_000>>";
    /// Largest body of one resource. At the limit: A larger one is refused, over HTTP with 413.
    body_bytes_max: usize = Limits::default().body_bytes_max, "Checked::<Bytes<KIB, GIB>>";
    /// All bodies together.
    /// At the limit: A change that needs more is refused, over HTTP with 507.
    bytes_max: usize = Limits::default().bytes_max, "Checked::<Bytes<MIB, { 1024 * GIB }>>";
    /// Tools, prompts and templates, each.
    /// At the limit: A further registration gets an error that names the limit.
    list_items_max: usize = Limits::default().list_items_max, "Checked::<Count<1, 1_000_000>>";
    /// Threads over which connections and their subscriptions are distributed; 0 means one per core.
    /// At the limit: With 0, cores above 64 carry no shard.
    shards: usize = Limits::default().shards, "Checked::<Count<0, 64>>";
    /// Removed URIs that keep a version of their own.
    /// At the limit: The oldest share one floor, so versions still never go backward but may jump.
    removed_max: usize = Limits::default().removed_max, "Checked::<Count<0, 10_000_000>>";
}

table! { StoreConfig = "The durable store, in which versions and content outlive the process.";
    /// Folder of the durable store; empty keeps everything in memory, for one life of the process.
    dir: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// Time for which a URI of a former life waits for its source; then it is removed, and subscribers are
    /// told.
    unclaimed_after: Duration = Limits::default().unclaimed_after, "Checked::<Time<SECOND, { 3650 * DAY }>>";
    /// Changes that wait for sinks; one that is further behind gets the newest change of each resource, and
    /// the number that it missed.
    change_log_max: usize = Limits::default().change_log_max, "Checked::<Count<1, 10_000_000>>";
}

table! { ShutdownConfig = "The end of the service.";
    /// Time in which a stopping service still delivers pending notices. A second signal ends it at once, with
    /// exit code 1.
    /// At the limit: The rest is dropped with a warning that counts it.
    drain_timeout: Duration = Duration::from_secs(10), "Checked::<Time<0, { 10 * MINUTE }>>";
}
