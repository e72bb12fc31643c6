//! Storms: clients connect, stall, reset and leave while resources, files and a webhook change beside them,
//! in a disorder that a seed repeats. At rest every client must know the newest versions and nothing may be
//! left behind.
//!
//! The short form runs with all tests. A long one runs by command:
//! `STRESS_SECONDS=600 STRESS_SEED=1 cargo test --all-features --test it long_storm -- --ignored --nocapture`

mod client;
mod plan;
mod receiver;
mod service;
mod storm;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::number;
pub(crate) use plan::Random;
use plan::Size;
use receiver::SlowReceiver;
use service::{Footprint, StressedService};
use storm::Storm;

/// The memory may grow between the first round and the last by a quarter, or by this many KiB.
const GROWTH_KIB: u64 = 16 * 1024;

const SHORT: Size = Size {
    clients: 40,
    resources: 16,
    files: 4,
    steps: 600,
};

/// The outcome of a run of several rounds.
#[derive(Debug, Default)]
struct Report {
    rounds: usize,
    connects: usize,
    /// Updates, repetitions and removals that were answered.
    writes: usize,
    /// Notices that clients read.
    notices: u64,
    /// Deliveries that the slow receiver accepted.
    received: u64,
    /// Broken promises, in words.
    faults: Vec<String>,
}

/// Runs storms until the time is up or a promise is broken, at least two: the memory that a service needs is
/// known after the first.
async fn run(config: &str, seed: u64, size: Size, time: Duration) -> Report {
    let receiver = SlowReceiver::start().await;
    let service = Arc::new(StressedService::start(config, &receiver, size).await);
    let mut report = Report::default();
    let mut first: Option<Footprint> = None;
    let mut last = Footprint::default();
    let began = Instant::now();
    while report.faults.is_empty() && (report.rounds < 2 || began.elapsed() < time) {
        let round_seed = seed.wrapping_add(report.rounds as u64);
        Storm::new(&service, &receiver, &mut report)
            .run(plan::steps(round_seed, size))
            .await;
        last = service.wait_at_rest(first.as_ref(), &mut report.faults).await;
        first.get_or_insert_with(|| last.clone());
        report.rounds += 1;
    }
    let first = first.unwrap_or_default();
    if last.resident_kib > first.resident_kib + GROWTH_KIB.max(first.resident_kib / 4) {
        let grown = format!("{} KiB to {} KiB", first.resident_kib, last.resident_kib);
        report
            .faults
            .push(format!("memory grew between two times at rest from {grown}"));
    }
    report.received = receiver.accepted();
    if report.faults.is_empty() {
        let service = Arc::into_inner(service).expect("every storm is over");
        service.end().await;
    }
    report
}

#[tokio::test]
async fn storm_leaves_all_informed_and_nothing_behind() {
    let report = run("", 7, SHORT, Duration::from_secs(1)).await;
    assert_eq!(report.faults, [""; 0], "repeat it with seed 7");
    assert!(report.rounds >= 2, "{report:?}");
    assert!(report.connects > 0 && report.writes > 0, "{report:?}");
    assert!(report.notices > 0 && report.received > 0, "{report:?}");
}

/// The storm itself is put to the test: no client asked for sessions that end after a second.
#[tokio::test]
async fn sessions_that_end_by_themselves_are_found() {
    let size = Size {
        steps: 3_000,
        ..SHORT
    };
    let report = run("[session]\nage_max = \"1s\"\n", 1, size, Duration::from_secs(1)).await;
    let faults = report.faults.join("; ");
    assert!(
        faults.contains("the server ended the stream") || faults.contains("session ended"),
        "{report:?}"
    );
}

#[tokio::test]
#[ignore = "takes as long as STRESS_SECONDS says"]
async fn long_storm() {
    let seed = number("STRESS_SEED", 1);
    let size = Size {
        clients: number("STRESS_CLIENTS", 60) as usize,
        resources: number("STRESS_RESOURCES", 24) as usize,
        files: 4,
        steps: number("STRESS_STEPS", 1_500) as usize,
    };
    let time = Duration::from_secs(number("STRESS_SECONDS", 60));
    let report = run("", seed, size, time).await;
    println!("seed {seed}: {report:#?}");
    assert_eq!(report.faults, [""; 0], "repeat it with STRESS_SEED={seed}");
}
