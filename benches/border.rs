//! Rows `border` and `border-outbox`: the cost of rights in a delivery, beside the same without rights.
//!
//! Over sockets the twin is the service without a section `[auth]`, in process it is a bus whose sessions
//! have no viewer. Both sides are measured in one run and take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidings::ResourceUri;
use tidings::rights::{Audience, Standing, Viewer, WholeAudience};

use crate::Options;
use crate::http::{Figures, one_by_one};
use crate::outbox::{BusFanOut, Run, beyond_unwatched, measure as measure_outboxes};
use crate::sockets::{Case, Era, Kind};
use crate::support::{Column, RUNS, Spread, Table, least, median};

/// The numbers of sessions, unless `--sessions` has another one.
const SESSIONS: [usize; 2] = [1_000, 4_000];
/// The numbers of outboxes, unless `--sessions` has another one.
const OUTBOXES: [usize; 2] = [1_000, 10_000];

const KINDS: [Kind; 4] = [
    Kind::Tidings(Era::Sessions),
    Kind::Guarded(Era::Sessions),
    Kind::Tidings(Era::Listen),
    Kind::Guarded(Era::Listen),
];

const COLUMNS: &[Column] = &[
    ("cpu_us", "CPU µs per delivery", 2),
    ("without_x", "x without rules", 3),
    ("p50_ms", "p50 ms", 1),
    ("p99_ms", "p99 ms", 1),
    ("p99_without_x", "p99 x without rules", 2),
    ("idle_kib", "KiB per idle session", 1),
];

const OUTBOX_COLUMNS: &[Column] = &[
    ("cpu_ns", "CPU ns per outbox", 1),
    ("without_x", "x without rights", 3),
    ("cpu_ns_min", "least CPU ns", 1),
    ("without_x_min", "x without rights", 3),
];

/// Measures deliveries over sockets.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("border", COLUMNS);
    for sessions in options.sizes(&SESSIONS) {
        let cases = one_by_one(&KINDS, sessions, 0)?;
        for case in &cases {
            case.add_to(&mut table, sessions, figures(case, &cases));
        }
    }
    Ok(table)
}

fn figures(case: &Case<Figures>, all: &[Case<Figures>]) -> Vec<Option<Spread>> {
    let twin = match case.kind {
        Kind::Guarded(era) => Some(Kind::Tidings(era)),
        _ => None,
    };
    vec![
        case.spread(|figures| figures.cpu_us),
        case.beside(all, twin, |figures| figures.cpu_us),
        case.spread(|figures| figures.p50_ms),
        case.spread(|figures| figures.p99_ms),
        case.beside(all, twin, |figures| figures.p99_ms),
        case.spread(|figures| figures.idle_kib),
    ]
}

/// Measures changes up to the outbox, in process.
pub(crate) fn run_outbox(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("border-outbox", OUTBOX_COLUMNS);
    for size in options.sizes(&OUTBOXES) {
        let mut runs: [Vec<Run>; 2] = Default::default();
        for _ in 0..RUNS {
            for (viewer, runs) in [no_viewer, BenchViewer::make].into_iter().zip(&mut runs) {
                let mut bus = BusFanOut::start_for((size, 0), 0, viewer)?;
                runs.push(measure_outboxes(&mut bus, size)?);
            }
        }
        let costs = runs.map(|runs| {
            let middle = beyond_unwatched(&runs, size, median);
            (middle.cpu, beyond_unwatched(&runs, size, least).cpu)
        });
        let [(without, without_min), (with, with_min)] = costs;
        table.add_line(
            format!("without rights, {size}"),
            vec![Some(without), None, Some(without_min), None],
        );
        table.add_line(
            format!("with rights, {size}"),
            vec![
                Some(with),
                Some(with / without),
                Some(with_min),
                Some(with_min / without_min),
            ],
        );
    }
    Ok(table)
}

fn no_viewer() -> Option<Arc<dyn Viewer>> {
    None
}

/// The generations that the viewers of all sessions share, as those of a service share rules and tokens.
static RULES: AtomicU64 = AtomicU64::new(1);
static TOKENS: AtomicU64 = AtomicU64::new(1);

/// The rights of one session, which allow everything.
struct BenchViewer {
    changes: AtomicU64,
}

impl BenchViewer {
    fn make() -> Option<Arc<dyn Viewer>> {
        let changes = AtomicU64::new(0);
        Some(Arc::new(BenchViewer { changes }))
    }
}

impl Viewer for BenchViewer {
    fn generation(&self) -> u64 {
        let shared = RULES.load(Ordering::Acquire) + TOKENS.load(Ordering::Acquire);
        shared + self.changes.load(Ordering::Acquire)
    }

    fn standing(&self) -> Standing {
        Standing::Valid
    }

    fn may_be_told(&self, _: &ResourceUri) -> bool {
        true
    }

    fn audience(&self) -> Arc<dyn Audience> {
        Arc::new(WholeAudience)
    }
}
