//! Many requests in flight at once, so that their cost is measured rather than the latency of one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::support::{Cpu, Threads};

/// The requests in flight.
pub(crate) const IN_FLIGHT: usize = 64;

/// The cost of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestCost {
    /// Requests per second.
    pub(crate) rate: f64,
    /// CPU of the whole process in µs, the requesting thread included.
    pub(crate) cpu_us: f64,
    /// CPU in µs of all threads but the first, which makes the requests.
    pub(crate) own_us: f64,
}

/// Makes `count` requests over [`IN_FLIGHT`] lanes, each of which makes the next one as soon as one is
/// answered. `request` gets the number of the lane and of the request.
pub(crate) async fn pipeline<F>(
    count: usize,
    request: impl Fn(usize, usize) -> F,
) -> anyhow::Result<RequestCost>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let next = AtomicUsize::new(0);
    let pid = std::process::id();
    let started = Instant::now();
    let all = Cpu::read(pid, Threads::All)?;
    let own = Cpu::read(pid, Threads::Helpers)?;
    let mut lanes = FuturesUnordered::new();
    for index in 0..IN_FLIGHT {
        lanes.push(lane(index, count, &next, &request));
    }
    while let Some(ended) = lanes.next().await {
        ended?;
    }
    let elapsed = started.elapsed();
    let us_per_request = 1e-3 / count as f64;
    Ok(RequestCost {
        rate: count as f64 / elapsed.as_secs_f64(),
        cpu_us: all.since()? * us_per_request,
        own_us: own.since()? * us_per_request,
    })
}

async fn lane<F>(
    index: usize,
    count: usize,
    next: &AtomicUsize,
    request: impl Fn(usize, usize) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok(());
        }
        request(index, number).await?;
    }
}
