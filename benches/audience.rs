//! Row `audience`: the walk through the resource list for a subscriber with new rights.
//!
//! The rights are those of rules, and no subscriber had the same before. Beside the walk one thread changes a
//! resource again and again: its longest wait shows for how long the walk keeps the Registry from other
//! requests. The twin is the longest wait in changes before the walk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tidings::auth::{Authorize, Policy, Principal};
use tidings::config::RuleConfig;
use tidings::rights::{Audience, Standing, Viewer};
use tidings::{Bus, Limits, ListKind, Resource, ResourceUri, SessionOptions, SubscriberKind};
use tokio::runtime::{Builder, Runtime};

use crate::Options;
use crate::support::{Column, RUNS, Spread, Table, median};

/// The numbers of resources, unless `--sessions` has another one.
const RESOURCES: [usize; 2] = [10_000, 100_000];
/// The changes before the walk.
const CHANGES_BEFORE: usize = 2_000;
/// The audiences of one repetition; the median counts.
const AUDIENCES: usize = 5;

const COLUMNS: &[Column] = &[
    ("walk_ms", "ms until its lists are known", 2),
    ("longest_ms", "longest change beside it, ms", 2),
    ("before_ms", "longest change before, ms", 2),
];

/// The times of one walk, in milliseconds.
struct Walk {
    walk: f64,
    longest: f64,
    before: f64,
}

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("audience", COLUMNS);
    for resources in options.sizes(&RESOURCES) {
        let rig = Rig::start(resources)?;
        let mut runs = Vec::new();
        for repetition in 0..RUNS {
            let mut walks = Vec::new();
            for number in 0..AUDIENCES {
                walks.push(rig.walk(&format!("role-{repetition}-{number}"))?);
            }
            runs.push(walks);
        }
        let over =
            |figure: fn(&Walk) -> f64| Spread::of(runs.iter().map(|walks| median(walks.iter().map(figure))));
        table.add_spreads(
            format!("{resources} resources"),
            vec![
                over(|walk| walk.walk),
                over(|walk| walk.longest),
                over(|walk| walk.before),
            ],
        );
    }
    Ok(table)
}

/// A bus with many resources, and a thread that changes one of them.
struct Rig {
    runtime: Runtime,
    bus: Bus,
}

impl Rig {
    fn start(resources: usize) -> anyhow::Result<Rig> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let mut limits = Limits::default();
        limits.resources_max = limits.resources_max.max(resources + 1);
        let bus = runtime.block_on(async { Bus::builder().limits(limits).start() })?;
        runtime.block_on(async {
            for number in 0..resources {
                bus.register(Resource::text(uri(number), "content")?).await?;
            }
            anyhow::Ok(())
        })?;
        Ok(Rig { runtime, bus })
    }

    /// Opens a session with rights that no other one has, and returns the time until it knows its lists.
    fn walk(&self, role: &str) -> anyhow::Result<Walk> {
        let before = self.runtime.block_on(async {
            let mut longest = Duration::ZERO;
            for number in 0..CHANGES_BEFORE {
                longest = longest.max(change(&self.bus, &format!("{role} before {number}")).await?);
            }
            anyhow::Ok(longest)
        })?;
        let probe = Arc::<Probe>::new(Probe {
            is_over: AtomicBool::new(false),
            begun: Barrier::new(2),
        });
        let prober = std::thread::spawn({
            let bus = self.bus.clone();
            let probe = probe.clone();
            let role = role.to_owned();
            move || probe.run(&bus, &role)
        });
        probe.begun.wait();
        let mut options = SessionOptions::new(SubscriberKind::Session, "bench");
        options.lists = ListKind::ALL.to_vec();
        options.viewer = Some(Arc::new(RuleViewer::new(role)?));
        let opened = self.runtime.block_on(async {
            let session = self.bus.open(options).await?;
            let started = Instant::now();
            session.ready().await?;
            let walk = started.elapsed();
            session.end();
            anyhow::Ok(walk)
        });
        probe.is_over.store(true, Ordering::Release);
        let longest = prober.join().map_err(|_| anyhow!("the probe panicked"))??;
        let [walk, longest, before] = [opened?, longest, before].map(|time| time.as_secs_f64() * 1e3);
        Ok(Walk {
            walk,
            longest,
            before,
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.runtime.block_on(self.bus.shutdown(Duration::from_secs(5)));
    }
}

fn uri(number: usize) -> String {
    format!("bench://list/{number:06}")
}

/// Changes the first resource; returns the time until it was answered.
async fn change(bus: &Bus, text: &str) -> anyhow::Result<Duration> {
    let resource = Resource::text(uri(0), text.to_owned())?;
    let started = Instant::now();
    bus.update(resource).await?;
    Ok(started.elapsed())
}

/// The changes beside a walk.
struct Probe {
    is_over: AtomicBool,
    /// Passed when changes are about to be made.
    begun: Barrier,
}

impl Probe {
    /// Changes a resource until the walk is over; returns the longest time of a change.
    fn run(&self, bus: &Bus, role: &str) -> anyhow::Result<Duration> {
        let runtime = Builder::new_current_thread().enable_time().build();
        self.begun.wait();
        runtime?.block_on(async {
            let mut longest = Duration::ZERO;
            let mut number = 0;
            while number == 0 || !self.is_over.load(Ordering::Acquire) {
                number += 1;
                longest = longest.max(change(bus, &format!("{role} beside {number}")).await?);
            }
            Ok(longest)
        })
    }
}

/// The rights of a role that three rules name.
struct RuleViewer(Arc<dyn Audience>);

impl RuleViewer {
    fn new(role: &str) -> anyhow::Result<RuleViewer> {
        let rules = ["note://*", "bench://list/{name}", role].map(|pattern| RuleConfig {
            roles: vec![role.to_owned()],
            may: vec!["list".to_owned()],
            // No other role has URIs that begin with this one, so it is an audience of its own.
            r#match: vec![match pattern == role {
                true => format!("{role}://*"),
                false => pattern.to_owned(),
            }],
            scope: None,
        });
        let policy = Policy::new(&rules)?;
        let principal = Principal::builder("bench").roles(vec![role.to_owned()]).build();
        Ok(RuleViewer(policy.audience(&principal)))
    }
}

impl Viewer for RuleViewer {
    fn generation(&self) -> u64 {
        1
    }

    fn standing(&self) -> Standing {
        Standing::Valid
    }

    fn may_be_told(&self, _: &ResourceUri) -> bool {
        true
    }

    fn audience(&self) -> Arc<dyn Audience> {
        self.0.clone()
    }
}
