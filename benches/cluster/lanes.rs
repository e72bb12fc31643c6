//! Changes in flight: lanes, each of which makes its next change when the one before is answered.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::brokers::Brokers;
use crate::support::{Cpu, Threads, quantile};

/// The resources that are changed, as many subjects of the twin.
pub(super) const RESOURCES: usize = 2_000;

/// The course of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    /// Changes per second.
    pub(super) rate: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// CPU of this process for each change.
    pub(super) cpu_us: f64,
    /// CPU of this process without the publishing thread.
    pub(super) own_us: f64,
    /// CPU of all servers for each change.
    pub(super) brokers_us: f64,
}

/// Makes `count` changes, `in_flight` at a time, each of another resource than all that are in flight.
pub(super) async fn run<F>(
    (in_flight, count): (usize, usize),
    brokers: &Brokers,
    change: impl Fn(usize) -> F,
) -> anyhow::Result<Course>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let latencies = RefCell::new(Vec::with_capacity(count));
    let pid = std::process::id();
    let servers = brokers.cpu()?;
    let all = Cpu::read(pid, Threads::All)?;
    let own = Cpu::read(pid, Threads::Helpers)?;
    let started = Instant::now();
    let left = AtomicUsize::new(count);
    let mut lanes = FuturesUnordered::new();
    for lane in 0..in_flight {
        lanes.push(walk((lane, in_flight), &left, &change, &latencies));
    }
    while let Some(ended) = lanes.next().await {
        ended?;
    }
    let elapsed = started.elapsed();
    let us = 1e-3 / count as f64;
    let mut latencies = latencies.take();
    Ok(Course {
        rate: count as f64 / elapsed.as_secs_f64(),
        p50_ms: quantile(&mut latencies, 0.5),
        p99_ms: quantile(&mut latencies, 0.99),
        cpu_us: all.since()? * us,
        own_us: own.since()? * us,
        brokers_us: servers.since()? * us,
    })
}

/// Changes the resources of one lane in turn.
async fn walk<F>(
    (lane, lanes): (usize, usize),
    left: &AtomicUsize,
    change: impl Fn(usize) -> F,
    latencies: &RefCell<Vec<f64>>,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    for resource in (lane..RESOURCES).step_by(lanes).cycle() {
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() {
            break;
        }
        let begun = Instant::now();
        change(resource).await?;
        latencies.borrow_mut().push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}
