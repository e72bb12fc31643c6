//! The bus: its limits, the store of its versions, and its end.

use super::bounded::{Bytes, Checked, Count, File, GIB, KIB, MINUTE, OrNone, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tidings_actors::Limits;

/// The limits of the bus, and of the changes that wait to enter it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BusConfig {
    /// Changes inside the bus at a time.
    /// At the limit: Publishers wait until one has been answered.
    #[serde(with = "Checked::<Count<1, 65_536>>")]
    pub in_flight_max: usize,
    /// Registered resources.
    /// At the limit: A further registration gets an error that names the limit.
    #[serde(with = "Checked::<Count<1, 10_000_000>>")]
    pub resources_max: usize,
    /// Largest body of one resource.
    /// At the limit: A larger one is refused, over HTTP with 413.
    #[serde(with = "Checked::<Bytes<KIB, GIB>>")]
    pub body_bytes_max: usize,
    /// Tools, prompts and templates, each.
    /// At the limit: A further registration gets an error that names the limit.
    #[serde(with = "Checked::<Count<1, 1_000_000>>")]
    pub list_items_max: usize,
    /// Threads over which connections and their subscriptions are distributed; 0 means one per core.
    /// At the limit: With 0, cores above 64 carry no shard.
    #[serde(with = "Checked::<Count<0, 64>>")]
    pub shards: usize,
    /// Removed URIs that keep a version of their own.
    /// At the limit: The oldest share one floor, so versions still never go backward but may jump.
    #[serde(with = "Checked::<Count<0, 10_000_000>>")]
    pub removed_max: usize,
}

impl Default for BusConfig {
    fn default() -> BusConfig {
        // A bus works without a configuration, so its own defaults are the ones to declare.
        let limits = Limits::default();
        BusConfig {
            in_flight_max: limits.in_flight_max,
            resources_max: limits.resources_max,
            body_bytes_max: limits.body_bytes_max,
            list_items_max: limits.list_items_max,
            shards: limits.shards,
            removed_max: limits.removed_max,
        }
    }
}

/// The durable store, in which versions outlive the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Folder of the durable store; empty keeps versions in memory, for one life of the process.
    #[serde(with = "Checked::<OrNone<File>>")]
    pub dir: Option<PathBuf>,
}

/// The end of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// Time in which a stopping service still delivers pending notices.
    /// At the limit: The rest is dropped with a warning that counts it.
    #[serde(with = "Checked::<Time<0, { 10 * MINUTE }>>")]
    pub drain_timeout: Duration,
}

impl Default for ShutdownConfig {
    fn default() -> ShutdownConfig {
        ShutdownConfig {
            drain_timeout: Duration::from_secs(10),
        }
    }
}
