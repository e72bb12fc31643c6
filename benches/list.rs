//! Row `list`: what a page of a list costs, and a change of it, when the list is short and when it is long.
//!
//! Owns: the lists and what is asked of them, 64 requests at a time. Its twin is the short list: nothing of what is asked
//! has to look at the rest of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tidings::{Bus, Resource};
use tokio::runtime::Builder;

use crate::Options;
use crate::pipeline::pipeline;
use crate::support::{Column, RUNS, Table, least, median};

/// Resources in the list.
const SIZES: [usize; 2] = [1_000, 10_000];
/// Resources of a page.
const PAGE: usize = 100;
const PAGES: usize = 20_000;
/// Resources registered and removed again.
const PAIRS: usize = 50_000;

const COLUMNS: &[Column] = &[
    ("page_us", "CPU µs per page of 100", 2),
    ("page_x", "x the short list", 2),
    ("page_us_min", "least CPU µs", 2),
    ("page_x_min", "x the short list", 2),
    ("pair_us", "CPU µs per resource registered and removed", 2),
    ("pair_x", "x the short list", 2),
    ("pair_us_min", "least CPU µs", 2),
    ("pair_x_min", "x the short list", 2),
];

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let mut runs = [(); 2].map(|()| (Vec::new(), Vec::new()));
    for _ in 0..RUNS {
        for (size, (pages, pairs)) in SIZES.into_iter().zip(&mut runs) {
            let (page, pair) = of_list(size)?;
            pages.push(page);
            pairs.push(pair);
        }
    }
    let costs = runs.map(|(pages, pairs)| {
        let mins = [&pages, &pairs].map(|runs| least(runs.iter().copied()));
        [median(pages), mins[0], median(pairs), mins[1]]
    });
    let mut table = Table::new("list", COLUMNS);
    for (size, cost) in SIZES.into_iter().zip(costs) {
        let figures = cost.into_iter().zip(costs[0]);
        let figures = figures.flat_map(|(cost, short)| [Some(cost), Some(cost / short)]);
        table.line(format!("{size} resources"), figures.collect());
    }
    Ok(table)
}

fn item(name: &str) -> anyhow::Result<Resource> {
    Ok(Resource::text(format!("bench://item/{name}"), "body")?)
}

/// CPU of a page in the middle, and of a resource that comes and goes there, in µs.
fn of_list(size: usize) -> anyhow::Result<(f64, f64)> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let bus = Bus::builder().start()?;
        for number in 0..size {
            bus.register(item(&format!("{number:06}"))?).await?;
        }
        let middle = format!("{:06}", size / 2);
        let (bus, middle) = (&bus, Arc::<str>::from(middle));
        let middle = &middle;
        let pages = pipeline(PAGES, |_, _| async move {
            let page = bus
                .resources(Some(format!("bench://item/{middle}")), PAGE)
                .await?;
            ensure!(page.items.len() == PAGE, "a page of {}", page.items.len());
            Ok(())
        })
        .await?;
        let pairs = pipeline(PAIRS, |lane, _| async move {
            let coming = item(&format!("{middle}-{lane}"))?;
            let uri = coming.uri().clone();
            let came = bus.register(coming).await?;
            let went = bus.remove(uri.as_str()).await?;
            ensure!(came.created && went.changed, "{uri} did not come and go");
            Ok(())
        })
        .await?;
        bus.shutdown(Duration::from_secs(5)).await;
        Ok((pages.cpu_us, pairs.cpu_us))
    })
}
