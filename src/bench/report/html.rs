//! A report as one page without scripts or other files: charts as SVG, readable in light and dark.

use serde_json::Value;

use crate::bench::report::chart::{Line, chart, escape};
use crate::bench::report::table::{table, time};
use crate::bench::report::{Report, Second};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2329;--dim:#66717d;--paper:#fff;--rule:#dfe4e8;--one:#1668b8;--two:#c2571a;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e6eaee;--dim:#98a4b0;--paper:#14181c;--rule:#2c343c;--one:#6db3f2;--two:#f0a070;--bad:#f2877f}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:760px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}pre{overflow-x:auto;border:1px solid var(--rule);padding:1rem;font-size:12px}\
figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.3rem}svg{width:100%;height:auto}\
.grid{stroke:var(--rule)}.tick{fill:var(--dim);font:11px system-ui,sans-serif}.line{fill:none;stroke-width:2}\
.one{stroke:var(--one)}.two{stroke:var(--two)}.bad{color:var(--bad)}table{border-collapse:collapse}\
td,th{padding:.15rem 1rem .15rem 0;text-align:left;border-bottom:1px solid var(--rule)}";

/// The most ticks of an axis of time.
const TIME_TICKS: usize = 8;

/// Returns the page.
pub fn html(report: &Report) -> String {
    let sessions = report.settings["sessions"].as_u64().unwrap_or_default();
    let title = format!("tidings bench: {sessions} sessions");
    let mut body = format!("<h1>{}</h1>", escape(&title));
    for problem in &report.problems {
        body += &format!("<p class=\"bad\">{}</p>", escape(problem));
    }
    body += &format!("<pre>{}</pre><h2>Latency</h2>", escape(&table(report)));
    body += &distribution(report);
    body += "<h2>Second by second</h2>";
    body += &timelines(report);
    body += &format!("<h2>Settings</h2>{}", settings(&report.settings));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escape(&title)
    )
}

/// Draws the latency over the percentile, whose axis gives each nine the same room.
fn distribution(report: &Report) -> String {
    let points = report.percentiles.iter();
    let points = points
        .map(|point| (nines(point.percentile), point.us as f64))
        .collect();
    let ticks = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999]
        .map(|percentile| (nines(percentile), format!("{percentile} %")));
    let line = Line {
        name: "latency",
        class: "one",
        points,
    };
    chart(
        "Latency of reading clients, by percentile",
        &[line],
        &ticks,
        |us| time(us as u64),
    )
}

fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile.min(99.999) / 100.0).log10()
}

fn timelines(report: &Report) -> String {
    let seconds = &report.timeline;
    let last = match seconds.last() {
        Some(second) => second.at_s,
        None => 1.0,
    };
    let step = (last / TIME_TICKS as f64).ceil().max(1.0);
    let ticks: Vec<(f64, String)> = (0..=TIME_TICKS)
        .map(|tick| tick as f64 * step)
        .filter(|at| *at <= last)
        .map(|at| (at, format!("{at} s")))
        .collect();
    let mut charts = chart(
        "Notices per second",
        &[line(seconds, "notices", "one", |second| {
            Some(second.deliveries_per_s)
        })],
        &ticks,
        count,
    );
    charts += &chart(
        "p99 of the latency",
        &[line(seconds, "p99", "one", |second| {
            second.p99_us.map(|us| us as f64)
        })],
        &ticks,
        |us| time(us as u64),
    );
    if seconds.iter().any(|second| second.server_kib.is_some()) {
        charts += &chart(
            "Memory of the server",
            &[line(seconds, "memory", "one", |second| {
                second.server_kib.map(|kib| kib as f64)
            })],
            &ticks,
            |kib| format!("{:.0} MiB", kib / 1024.0),
        );
    }
    charts
        + &chart(
            "CPU, percent of a core: the server (blue), this test (orange)",
            &[
                line(seconds, "server", "one", |second| second.server_cpu_percent),
                line(seconds, "this test", "two", |second| second.own_cpu_percent),
            ],
            &ticks,
            count,
        )
}

/// Draws a value of each second, where there is one.
fn line<'l>(
    seconds: &[Second],
    name: &'l str,
    class: &'l str,
    value: fn(&Second) -> Option<f64>,
) -> Line<'l> {
    let mut points = Vec::new();
    for second in seconds {
        if let Some(value) = value(second) {
            points.push((second.at_s, value));
        }
    }
    Line { name, class, points }
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

fn settings(settings: &Value) -> String {
    let mut rows = String::new();
    for (name, value) in settings.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        rows += &format!("<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(&value));
    }
    format!("<table>{rows}</table>")
}
