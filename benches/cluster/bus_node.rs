//! A node in this process: a bus whose order is the log.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tidings::cluster::{ClusterSettings, NatsLog};
use tidings::{Bus, Resource};

use super::brokers::Brokers;

/// The limit on the time until it is ready, the election of new servers included.
const START_MAX: Duration = Duration::from_secs(60);

/// The bytes of a body: as many as a record of the twin has.
const BODY_BYTES: usize = 200;

/// A bus on the log.
pub(super) struct BusNode {
    bus: Bus,
    changes: Cell<u64>,
}

impl BusNode {
    /// Starts a node, and waits until it has read the log.
    pub(super) async fn start(brokers: &Brokers, namespace: &str) -> anyhow::Result<BusNode> {
        let log = NatsLog::new(ClusterSettings {
            urls: brokers.urls(),
            namespace: namespace.to_owned(),
            node: "bench".to_owned(),
            ..ClusterSettings::default()
        })?;
        let bus = Bus::builder().shared_log(log).start()?;
        let until = Instant::now() + START_MAX;
        while !bus.log_state().unwrap_or_default().is_caught_up {
            ensure!(Instant::now() < until, "it is not ready after {START_MAX:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let changes = Cell::new(0);
        Ok(BusNode { bus, changes })
    }

    /// Gives a resource a body that no other change has, and waits until this node has heard it.
    pub(super) async fn publish(&self, resource: usize) -> anyhow::Result<()> {
        let number = self.changes.get() + 1;
        self.changes.set(number);
        let resource = Resource::text(uri(resource), format!("{number:0>BODY_BYTES$}"))?;
        let outcome = self.bus.upsert(resource).await?;
        ensure!(outcome.changed, "change {number} was none");
        Ok(())
    }

    pub(super) async fn stop(self) {
        self.bus.shutdown(Duration::from_secs(5)).await;
    }
}

/// Returns the URI of a resource.
pub(super) fn uri(number: usize) -> String {
    format!("bench://cluster/{number:06}")
}
