//! The charts of the page: the distribution of the latency, and the run second by second.

use crate::bench::report::axis::{Axis, time_ticks};
use crate::bench::report::chart::{Chart, Line, Tick};
use crate::bench::report::html::Shown;
use crate::bench::report::html::tables::{Cell, table};
use crate::bench::report::html::text::{
    count, datum, escape, mib_tick, micros, micros_tick, round, seconds_tick,
};
use crate::bench::report::{Report, Second};

/// The classes of the lines: one measure, and a second one in the same chart; dashed for the earlier run.
const ONE: [&str; 2] = ["one", "one earlier"];
const TWO: [&str; 2] = ["two", "two earlier"];

/// The parts after the decimal point up to which percentiles are drawn.
const NINES_MAX: f64 = 5.0;

/// Draws the latency over the percentile; none without latencies.
pub(crate) fn distribution(shown: &Shown<'_>) -> String {
    let most = shown.reports().map(|(_, report)| samples(report)).max();
    let Some(most) = most.filter(|most| *most > 0) else {
        return String::new();
    };
    // Beyond this, percentiles are all the longest time.
    let last = (most as f64).log10().ceil().clamp(2.0, NINES_MAX);
    let mut lines = Vec::new();
    for ((name, report), class) in std::iter::zip(shown.reports(), ONE) {
        let mut points = Vec::new();
        for point in &report.percentiles {
            let at = nines(point.percentile);
            let is_longest = point.percentile >= 100.0;
            if at < last || is_longest {
                points.push((at.min(last), point.us as f64));
            }
        }
        let name = name.to_owned();
        lines.push(Line { name, class, points });
    }
    let mut ticks = Vec::new();
    for (percentile, label) in [
        (50.0, "p50"),
        (90.0, "p90"),
        (99.0, "p99"),
        (99.9, "p99.9"),
        (99.99, "p99.99"),
    ] {
        let at = nines(percentile);
        if at < last - 0.01 {
            let is_minor = percentile == 50.0;
            ticks.push(Tick {
                at,
                label: label.to_owned(),
                is_minor,
            });
        }
    }
    let label = "max".to_owned();
    ticks.push(Tick {
        at: last,
        label,
        is_minor: false,
    });
    let chart = Chart {
        title: "Latency by percentile",
        note: "From the time at which an update was due until a client had its notice.".to_owned(),
        x_max: last,
        x_ticks: ticks,
        y: Axis::fitting(&values(&lines)),
        label: latency_label,
        twin: percentiles(shown),
        lines,
    };
    chart.html()
}

/// Writes microseconds: those of a tick, which are round, without digits that say nothing.
fn latency_label(us: f64) -> String {
    match us < 1e3 || (us / 100.0).fract() == 0.0 {
        true => micros_tick(us),
        false => micros(us),
    }
}

fn samples(report: &Report) -> u64 {
    let group = report.group("reading");
    group.map(|group| group.latency.count).unwrap_or_default()
}

/// Returns the place of a percentile on an axis that gives each nine the same room.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile.clamp(0.0, 99.999_999) / 100.0).log10()
}

/// The percentiles as a table.
fn percentiles(shown: &Shown<'_>) -> String {
    let mut rows = Vec::new();
    for (index, point) in shown.report.percentiles.iter().enumerate() {
        let us = point.us as f64;
        let field = format!("percentiles.{index}.us");
        let mut row = vec![
            Cell::text(&format!("{} %", point.percentile)),
            Cell::html(datum(&field, us, &micros(us))),
        ];
        if let Some((_, earlier)) = shown.earlier {
            let other = earlier
                .percentiles
                .iter()
                .find(|other| other.percentile == point.percentile);
            row.push(match other {
                Some(other) => Cell::text(&micros(other.us as f64)),
                None => Cell::text("–"),
            });
        }
        rows.push(row);
    }
    let mut heads = vec!["percentile"];
    heads.extend(shown.reports().map(|(name, _)| name));
    table("Latency by percentile", &heads, rows)
}

/// The name of a measure, and its value in one second.
type Measure = (&'static str, fn(&Second) -> Option<f64>);

/// A chart over time.
struct Course {
    title: &'static str,
    note: &'static str,
    measures: &'static [Measure],
    label: fn(f64) -> String,
    may_be_log: bool,
}

const COURSES: [Course; 4] = [
    Course {
        title: "Notices per second",
        note: "Notices that all clients read in each second.",
        measures: &[("notices", |second| Some(second.deliveries_per_s))],
        label: count,
        may_be_log: false,
    },
    Course {
        title: "p99 latency over time",
        note: "Of the notices in each second.",
        measures: &[("p99", |second| second.p99_us.map(|us| us as f64))],
        label: latency_label,
        may_be_log: true,
    },
    Course {
        title: "CPU",
        note: "Percent of one core.",
        measures: &[
            ("server", |second| second.server_cpu_percent),
            ("this test", |second| second.own_cpu_percent),
        ],
        label: |percent| format!("{} %", round(percent)),
        may_be_log: false,
    },
    Course {
        title: "Memory of the server",
        note: "Resident, in each second.",
        measures: &[("memory", |second| {
            second.server_kib.map(|kib| kib as f64 / 1_024.0)
        })],
        label: mib_tick,
        may_be_log: false,
    },
];

/// Draws the run second by second; none for a run without seconds.
pub(crate) fn courses(shown: &Shown<'_>) -> String {
    let mut html = String::new();
    for course in &COURSES {
        html += &course.html(shown);
    }
    html
}

impl Course {
    fn html(&self, shown: &Shown<'_>) -> String {
        let mut lines = Vec::new();
        for ((run, report), age) in std::iter::zip(shown.reports(), 0..) {
            for ((measure, value), classes) in std::iter::zip(self.measures, [ONE, TWO]) {
                let points = points(&report.timeline, *value);
                if points.is_empty() {
                    continue;
                }
                let name = match shown.earlier {
                    Some(_) => format!("{measure}, {run}"),
                    None => (*measure).to_owned(),
                };
                lines.push(Line {
                    name,
                    class: classes[age],
                    points,
                });
            }
        }
        if lines.is_empty() {
            return String::new();
        }
        let values = values(&lines);
        let last = lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|(at, _)| *at)
            .fold(1.0, f64::max);
        let ticks = time_ticks(last).into_iter();
        let chart = Chart {
            title: self.title,
            note: self.note.to_owned(),
            x_max: last,
            x_ticks: ticks
                .map(|at| Tick {
                    at,
                    label: seconds_tick(at),
                    is_minor: false,
                })
                .collect(),
            y: if self.may_be_log {
                Axis::fitting(&values)
            } else {
                Axis::linear(&values)
            },
            label: self.label,
            twin: self.twin(&lines),
            lines,
        };
        chart.html()
    }

    /// The least, the median, the greatest and the last value of each line, as a table.
    fn twin(&self, lines: &[Line<'_>]) -> String {
        let mut rows = Vec::new();
        for line in lines {
            let mut sorted: Vec<f64> = line.points.iter().map(|(_, value)| *value).collect();
            let last = sorted.last().copied().unwrap_or_default();
            sorted.sort_by(f64::total_cmp);
            let least = sorted[0];
            let most = sorted[sorted.len() - 1];
            let mut row = vec![Cell::html(escape(&line.name))];
            for value in [least, sorted[sorted.len() / 2], most, last] {
                row.push(Cell::text(&(self.label)(value)));
            }
            rows.push(row);
        }
        table(self.title, &["", "least", "median", "greatest", "last"], rows)
    }
}

/// The values of each second, where there is one.
fn points(seconds: &[Second], value: fn(&Second) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for second in seconds {
        if let Some(value) = value(second) {
            points.push((second.at_s, value));
        }
    }
    points
}

fn values(lines: &[Line<'_>]) -> Vec<f64> {
    let points = lines.iter().flat_map(|line| &line.points);
    points.map(|(_, value)| *value).collect()
}
