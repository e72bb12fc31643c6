//! The bus and the runtime that the targets share: one of each for all inputs of a process.

use std::sync::LazyLock;
use std::time::Duration;

use tidings::{Bus, Resource};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
});

static BUS: LazyLock<Bus> = LazyLock::new(|| {
    let bus = Bus::builder().start().expect("a bus");
    let resource = Resource::text("demo://a", "body").expect("a resource");
    block_on(bus.register(resource)).expect("an outcome");
    bus
});

/// Returns the bus, which has one resource.
pub fn bus() -> Bus {
    BUS.clone()
}

/// Runs a future.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(future)
}

/// Runs a future that must end in time: an input that holds it up for longer is a finding.
pub fn in_time<T>(future: impl Future<Output = T>) -> T {
    let ended = block_on(async { tokio::time::timeout(Duration::from_secs(20), future).await });
    ended.expect("the input is handled in time")
}
