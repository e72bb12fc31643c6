//! The report of a run, as it is written to a file; `docs/bench.md` describes it field by field.
//!
//! [`failures`] decides about the problems; [`table`] and [`html`] show the report.

pub(crate) mod axis;
pub(crate) mod chart;
pub(crate) mod compare;
pub(crate) mod failures;
pub(crate) mod html;
pub(crate) mod table;

use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bench::engine::{Engine, Readings};
use crate::bench::load::stats::{Group, Kind};
use crate::bench::report::failures::problems;
use crate::bench::settings::Settings;

/// The name of the format; it changes when a field goes or changes its meaning.
pub const SCHEMA: &str = "tidings-bench/1";

/// The percentiles that are drawn.
const PERCENTILES: [f64; 25] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0, 98.0, 99.0,
    99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 99.999, 100.0,
];

/// The report of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of the program that measured.
    pub version: String,
    /// The end of the run, in seconds since 1970.
    pub ended_at: u64,
    /// The settings of the run.
    pub settings: Value,
    /// The rule that matched notices with updates: `version`, `order`, or `none` where nothing was published.
    pub matching: String,
    /// The opening of the sessions.
    pub opened: Opened,
    /// The updates.
    pub updates: UpdateReport,
    /// Seconds that were measured.
    pub measured_s: f64,
    /// Notices that came in that time, to clients of all kinds.
    pub deliveries: u64,
    /// The same per second.
    pub deliveries_per_s: f64,
    /// The kinds of clients, without empty ones.
    pub groups: Vec<GroupReport>,
    /// The cost of the server, where its process is known.
    pub server: Option<ServerCost>,
    /// The cost of the test itself.
    pub own: OwnCost,
    /// The cost of the test against bare sockets, where it was measured.
    pub calibration: Option<Calibration>,
    /// Second by second.
    pub timeline: Vec<Second>,
    /// The latency of reading clients, by percentile.
    pub percentiles: Vec<Percentile>,
    /// The problems that make the run a failure.
    pub problems: Vec<String>,
}

/// The opening of the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Sessions that were open when updates began.
    pub sessions: u64,
    /// The time that it took, in seconds.
    pub seconds: f64,
}

/// The updates of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateReport {
    /// Updates written to the server in the whole run.
    pub sent: u64,
    /// Updates that the server refused or did not answer.
    pub refused: u64,
    /// Answers with a version that does not follow from this test's updates.
    pub foreign: u64,
    /// The times from due to written.
    pub lag: Spread,
    /// The times from written to answered.
    pub answer: Spread,
}

/// The distribution of a set of times, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// The number of times.
    pub count: u64,
    /// Half of them are no longer.
    pub p50_us: u64,
    /// 90 % of them are no longer.
    pub p90_us: u64,
    /// 99 % of them are no longer.
    pub p99_us: u64,
    /// 99.9 % of them are no longer.
    pub p99_9_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// One kind of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// `reading`, `slow`, `stalled`, `churn` or `polling`.
    pub name: String,
    /// The number of clients.
    pub clients: u64,
    /// Updates times their subscribers, in the whole run.
    pub owed: u64,
    /// Notices that announced something new, in the whole run.
    pub deliveries: u64,
    /// Updates that were merged into a later one.
    pub conflated: u64,
    /// Updates that were not announced, not even merged.
    pub untold: u64,
    /// Subscriptions without the newest state at the end.
    pub missing_finals: u64,
    /// Notices of a known state.
    pub again: u64,
    /// Notices of an older version than the one before.
    pub backward: u64,
    /// Notices of versions that this test did not make.
    pub foreign: u64,
    /// The times from the due time of an update to the reading of its notice.
    pub latency: Spread,
    /// The times from the due time of the oldest update that a notice covers.
    pub age: Spread,
}

/// The cost of the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ServerCost {
    /// Microseconds of CPU per notice that was read, in the measured time.
    pub cpu_us_per_delivery: Option<f64>,
    /// Percent of one core.
    pub cpu_percent: Option<f64>,
    /// KiB in memory before the first session.
    pub empty_kib: Option<u64>,
    /// KiB with all sessions open.
    pub idle_kib: Option<u64>,
    /// KiB at the end.
    pub after_kib: Option<u64>,
    /// Growth of the memory per session while they opened.
    pub kib_per_session: Option<f64>,
    /// Growth of the memory per minute of the measured time; none below three seconds.
    pub growth_kib_per_minute: Option<f64>,
}

/// The cost of the test itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Microseconds of CPU per notice that was read, in the measured time.
    pub cpu_us_per_delivery: Option<f64>,
    /// Percent of one core.
    pub cpu_percent: Option<f64>,
}

/// The cost of the test against bare sockets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Microseconds of the test's CPU per notice.
    pub cpu_us_per_delivery: Option<f64>,
    /// The median latency that it measures there: no server can show less.
    pub p50_us: u64,
    /// The 99th percentile of that latency.
    pub p99_us: u64,
}

/// One second of the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// The end of the second, from the beginning of the measured time.
    pub at_s: f64,
    /// Notices per second.
    pub deliveries_per_s: f64,
    /// The 99th percentile of their latency; none without notices.
    pub p99_us: Option<u64>,
    /// The server's CPU, in percent of one core.
    pub server_cpu_percent: Option<f64>,
    /// The server's memory.
    pub server_kib: Option<u64>,
    /// The test's own CPU.
    pub own_cpu_percent: Option<f64>,
}

/// One point of the latency's distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// From 0 to 100.
    pub percentile: f64,
    /// The latency that this share does not exceed.
    pub us: u64,
}

impl Report {
    /// Returns the group of that name.
    pub fn group(&self, name: &str) -> Option<&GroupReport> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns the report as one JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every value of a report is valid JSON")
    }
}

impl Spread {
    fn of(histogram: &Histogram<u64>) -> Spread {
        Spread {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p99_9_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

/// A report, and the whole distribution of the latency.
pub(crate) struct Run {
    pub(crate) report: Report,
    latency: Histogram<u64>,
}

impl Run {
    pub(crate) fn new(settings: &Settings, engine: &Engine<'_>, by_version: bool) -> Run {
        let stats = &engine.book.stats;
        let readings = &engine.readings;
        let updates = engine.publisher.as_ref().map(|publisher| UpdateReport {
            sent: publisher.log.sent,
            refused: publisher.log.refused,
            foreign: publisher.log.foreign,
            lag: Spread::of(&publisher.log.lag),
            answer: Spread::of(&publisher.log.answer),
        });
        let measured_s = (stats.window.end - stats.window.start.min(stats.window.end)) as f64 / 1e9;
        let deliveries = stats.in_window();
        let groups = Kind::ALL.map(|kind| group(kind, stats.group(kind)));
        let latency = stats.group(Kind::Reading).latency.clone();
        let mut shown = settings.to_json();
        shown["tls"] = engine.tls().into();
        let report = Report {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ended_at: match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => since.as_secs(),
                // A clock before 1970 is wrong, but no reason to lose a report.
                Err(_) => 0,
            },
            settings: shown,
            matching: match (&updates, by_version) {
                (None, _) => "none",
                (Some(_), true) => "version",
                (Some(_), false) => "order",
            }
            .to_owned(),
            opened: Opened {
                sessions: (settings.sessions + settings.slow + settings.stalled) as u64,
                seconds: readings.opened_in.as_secs_f64(),
            },
            updates: updates.unwrap_or_default(),
            measured_s,
            deliveries,
            deliveries_per_s: deliveries as f64 / measured_s.max(1e-9),
            groups: groups.into_iter().filter(|group| group.clients > 0).collect(),
            server: server(readings, settings, (deliveries, measured_s), &engine.timeline),
            own: OwnCost {
                cpu_us_per_delivery: per_delivery(readings.own_cpu, deliveries),
                cpu_percent: percent(readings.own_cpu, measured_s),
            },
            calibration: None,
            timeline: engine.timeline.clone(),
            percentiles: percentiles(&latency),
            problems: problems(engine, stats),
        };
        Run { report, latency }
    }

    /// Returns the latency of reading clients, in microseconds, at a percentile from 0 to 100.
    pub(crate) fn latency_at(&self, percentile: f64) -> u64 {
        self.latency.value_at_quantile(percentile / 100.0)
    }
}

fn percentiles(latency: &Histogram<u64>) -> Vec<Percentile> {
    if latency.is_empty() {
        return Vec::new();
    }
    let points = PERCENTILES.map(|percentile| Percentile {
        percentile,
        us: latency.value_at_quantile(percentile / 100.0),
    });
    points.to_vec()
}

fn group(kind: Kind, group: &Group) -> GroupReport {
    GroupReport {
        name: kind.name().to_owned(),
        clients: group.sessions,
        owed: group.owed,
        deliveries: group.deliveries,
        conflated: group.conflated,
        untold: group.untold,
        missing_finals: group.missing,
        again: group.again,
        backward: group.backward,
        foreign: group.foreign,
        latency: Spread::of(&group.latency),
        age: Spread::of(&group.age),
    }
}

fn per_delivery(nanos: Option<u64>, deliveries: u64) -> Option<f64> {
    match deliveries {
        0 => None,
        _ => Some(nanos? as f64 / 1e3 / deliveries as f64),
    }
}

fn percent(nanos: Option<u64>, seconds: f64) -> Option<f64> {
    Some(nanos? as f64 / 1e9 / seconds.max(1e-9) * 100.0)
}

fn server(
    readings: &Readings,
    settings: &Settings,
    (deliveries, seconds): (u64, f64),
    timeline: &[Second],
) -> Option<ServerCost> {
    let empty_kib = readings.empty_kib?;
    let sessions = (settings.sessions + settings.slow + settings.stalled).max(1) as f64;
    let mut memory = Vec::new();
    for second in timeline {
        if let Some(kib) = second.server_kib {
            memory.push((second.at_s, kib as f64));
        }
    }
    let idle = readings.idle_kib;
    Some(ServerCost {
        cpu_us_per_delivery: per_delivery(readings.server_cpu, deliveries),
        cpu_percent: percent(readings.server_cpu, seconds),
        empty_kib: readings.empty_kib,
        idle_kib: readings.idle_kib,
        after_kib: readings.after_kib,
        kib_per_session: idle.map(|idle| (idle as f64 - empty_kib as f64) / sessions),
        growth_kib_per_minute: slope(&memory).map(|per_second| per_second * 60.0),
    })
}

/// Returns the slope of the straight line that fits best; none for fewer than three points.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    // A line through two points says nothing about a trend.
    if points.len() < 3 {
        return None;
    }
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_memory_has_a_slope() {
        assert_eq!(slope(&[(0.0, 5.0), (1.0, 7.0)]), None);
        let slope = slope(&[(1.0, 10.0), (2.0, 12.0), (3.0, 14.0)]).unwrap();
        assert!((slope - 2.0).abs() < 1e-9);
    }

    #[test]
    fn cost_is_per_notice_if_there_is_one() {
        assert_eq!(per_delivery(Some(10_000), 5), Some(2.0));
        assert_eq!(per_delivery(Some(10_000), 0), None);
        assert_eq!(percent(Some(500_000_000), 2.0), Some(25.0));
    }
}
