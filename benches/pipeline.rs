//! Many requests under way at once, so that what is measured is their cost rather than the way of one.
//!
//! Owns: the lanes, each of which asks again as soon as it is answered. Never: knows what is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::support::{Cpu, Threads};

/// Requests that wait for their answer at once.
pub(crate) const IN_FLIGHT: usize = 64;

/// What one request costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Requests per second.
    pub(crate) rate: f64,
    /// CPU of the whole process, the asking thread's included, in µs.
    pub(crate) cpu_us: f64,
    /// CPU of all threads but the first, which asks, in µs.
    pub(crate) own_us: f64,
}

/// Makes `count` requests; each is told the number of its lane and its own.
pub(crate) async fn pipeline<F>(count: usize, request: impl Fn(usize, usize) -> F) -> anyhow::Result<Cost>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let next = AtomicUsize::new(0);
    let (next, request) = (&next, &request);
    let lane = |lane: usize| async move {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return anyhow::Ok(());
            }
            request(lane, number).await?;
        }
    };
    let pid = std::process::id();
    let started = Instant::now();
    let (all, own) = (Cpu::read(pid, Threads::All)?, Cpu::read(pid, Threads::Helpers)?);
    let mut lanes: FuturesUnordered<_> = (0..IN_FLIGHT).map(lane).collect();
    while let Some(lane) = lanes.next().await {
        lane?;
    }
    let took = started.elapsed();
    let each = |nanos: f64| nanos / 1e3 / count as f64;
    Ok(Cost {
        rate: count as f64 / took.as_secs_f64(),
        cpu_us: each(all.since()?),
        own_us: each(own.since()?),
    })
}
