//! Row `list`: the cost of a page of a list, and of a change of it, for a short and for a long list.
//!
//! The twin of the long list is the short one: neither operation has to look at the rest of the list.

use std::time::Duration;

use anyhow::ensure;
use tidings::{Bus, Resource};
use tokio::runtime::Builder;

use crate::Options;
use crate::pipeline::pipeline;
use crate::support::{Column, RUNS, Table, least, median};

/// The resources in each list.
const SIZES: [usize; 2] = [1_000, 10_000];
/// The resources of a page.
const PAGE: usize = 100;
/// The pages of one run.
const PAGES: usize = 20_000;
/// The resources that are registered and removed again in one run.
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

/// The CPU of each run, in µs.
#[derive(Default)]
struct Runs {
    pages: Vec<f64>,
    pairs: Vec<f64>,
}

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let mut runs = [Runs::default(), Runs::default()];
    for _ in 0..RUNS {
        for (size, runs) in std::iter::zip(SIZES, &mut runs) {
            measure(size, runs)?;
        }
    }
    let costs = runs.map(|Runs { pages, pairs }| {
        let least_page = least(pages.iter().copied());
        let least_pair = least(pairs.iter().copied());
        [median(pages), least_page, median(pairs), least_pair]
    });
    let mut table = Table::new("list", COLUMNS);
    for (size, cost) in std::iter::zip(SIZES, costs) {
        let mut figures = Vec::new();
        for (cost, short) in std::iter::zip(cost, costs[0]) {
            figures.extend([Some(cost), Some(cost / short)]);
        }
        table.add_line(format!("{size} resources"), figures);
    }
    Ok(table)
}

fn item(name: &str) -> anyhow::Result<Resource> {
    Ok(Resource::text(format!("bench://item/{name}"), "body")?)
}

/// Measures pages in the middle of a list, and resources that are registered and removed there.
fn measure(size: usize, runs: &mut Runs) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let bus = Bus::builder().start()?;
        for number in 0..size {
            bus.register(item(&format!("{number:06}"))?).await?;
        }
        let bus = &bus;
        let middle = &format!("{:06}", size / 2);
        let pages = pipeline(PAGES, |_, _| async move {
            let after = format!("bench://item/{middle}");
            let page = bus.resources(Some(after), PAGE).await?;
            ensure!(page.items.len() == PAGE, "a page of {}", page.items.len());
            Ok(())
        })
        .await?;
        // The lane is in the name, so that no two requests in flight use the same resource.
        let pairs = pipeline(PAIRS, |lane, _| async move {
            let resource = item(&format!("{middle}-{lane}"))?;
            let uri = resource.uri().clone();
            let registered = bus.register(resource).await?;
            let removed = bus.remove(uri.as_str()).await?;
            ensure!(
                registered.created && removed.changed,
                "{uri} was not registered and removed"
            );
            Ok(())
        })
        .await?;
        bus.shutdown(Duration::from_secs(5)).await;
        runs.pages.push(pages.cpu_us);
        runs.pairs.push(pairs.cpu_us);
        Ok(())
    })
}
