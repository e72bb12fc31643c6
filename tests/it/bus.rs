//! The promises of the bus, tested on a real bus without a protocol around it.

mod attach;
mod back_pressure;
mod cursors;
mod degrade;
mod etag;
mod interest;
mod limits;
mod listing;
mod lists;
mod model;
mod resources;
mod restart;
mod resume;
mod returning;
mod rights;
mod shards;
mod shutdown;
mod slow;
pub(crate) mod store;
mod subscriptions;
mod templates;
