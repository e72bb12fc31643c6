//! A report as a table for the terminal.

use serde_json::Value;

use crate::bench::report::{GroupReport, Report, Spread};

const HEADINGS: [&str; 10] = [
    "", "clients", "owed", "told", "merged", "p50", "p90", "p99", "p99.9", "max",
];

/// Returns the report as lines of text.
pub fn table(report: &Report) -> String {
    let mut text = headline(report);
    text += "\n";
    text += &columns(&rows(report));
    text += "\n";
    for line in lines(report) {
        text += &line;
        text.push('\n');
    }
    match report.problems.is_empty() {
        true if report.matching != "none" => {
            text += "every live client has the newest state of all it asked for\n";
        }
        true => {}
        false => {
            for problem in &report.problems {
                text += &format!("PROBLEM: {problem}\n");
            }
        }
    }
    text
}

fn headline(report: &Report) -> String {
    let settings = &report.settings;
    let pace = match settings["flat_out"].as_bool() {
        Some(true) => "updates flat out".to_owned(),
        _ => format!("{} updates/s", number(settings, "rate")),
    };
    let pace = match report.matching.as_str() {
        "none" => "only listening".to_owned(),
        matching => format!("{pace}, matched by {matching}"),
    };
    let tls = match settings["tls"].as_str() {
        Some(tls) => format!(", over {tls}"),
        None => String::new(),
    };
    format!(
        "{}: {} subscriptions each of {} resources, {pace}, {:.1} s{tls}\n",
        settings["url"].as_str().unwrap_or_default(),
        number(settings, "subscribe"),
        number(settings, "resources"),
        report.measured_s,
    )
}

fn number(settings: &Value, key: &str) -> f64 {
    settings[key].as_f64().unwrap_or_default()
}

fn rows(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    for group in &report.groups {
        rows.push(row(&group.name, group, &group.latency));
        if group.conflated > 0 {
            let mut age = row("  since the oldest merged", group, &group.age);
            age[1..5].iter_mut().for_each(String::clear);
            rows.push(age);
        }
    }
    rows
}

fn row(name: &str, group: &GroupReport, spread: &Spread) -> Vec<String> {
    let times = [
        spread.p50_us,
        spread.p90_us,
        spread.p99_us,
        spread.p99_9_us,
        spread.max_us,
    ];
    let times = times.map(|us| match spread.count {
        0 => "-".to_owned(),
        _ => time(us),
    });
    let counts = [group.clients, group.owed, group.deliveries, group.conflated];
    std::iter::once(name.to_owned())
        .chain(counts.map(|count| count.to_string()))
        .chain(times)
        .collect()
}

fn lines(report: &Report) -> Vec<String> {
    let shared = match report.settings["http2_connections"].as_u64() {
        Some(count) => {
            let rate = report.opened.sessions as f64 / report.opened.seconds.max(1e-9);
            format!(" ({rate:.0}/s), as streams of {count} connections of HTTP/2")
        }
        None => String::new(),
    };
    let mut lines = vec![format!(
        "{} sessions opened in {:.1} s{shared}; {} notices in the measured time, {:.0}/s",
        report.opened.sessions, report.opened.seconds, report.deliveries, report.deliveries_per_s
    )];
    let updates = &report.updates;
    if updates.sent > 0 {
        lines.push(format!(
            "{} updates: due to written p50 {} p99 {}, written to answered p50 {} p99 {}",
            updates.sent,
            time(updates.lag.p50_us),
            time(updates.lag.p99_us),
            time(updates.answer.p50_us),
            time(updates.answer.p99_us),
        ));
    }
    if let Some(server) = &report.server {
        lines.push(format!(
            "server: {} µs CPU per notice, {} % of a core; {} KiB per session, {} KiB growth per minute, {} KiB at the end",
            figure(server.cpu_us_per_delivery, 1),
            figure(server.cpu_percent, 0),
            figure(server.kib_per_session, 1),
            figure(server.growth_kib_per_minute, 0),
            figure(server.after_kib.map(|kib| kib as f64), 0),
        ));
    }
    lines.push(format!(
        "this test: {} µs CPU per notice, {} % of a core",
        figure(report.own.cpu_us_per_delivery, 1),
        figure(report.own.cpu_percent, 0)
    ));
    if let Some(calibration) = &report.calibration {
        lines.push(format!(
            "this test against bare sockets: {} µs CPU per notice, latency p50 {} p99 {}",
            figure(calibration.cpu_us_per_delivery, 1),
            time(calibration.p50_us),
            time(calibration.p99_us),
        ));
    }
    lines
}

fn figure(figure: Option<f64>, decimals: usize) -> String {
    match figure {
        Some(figure) => format!("{figure:.decimals$}"),
        None => "-".to_owned(),
    }
}

/// Formats a time with a suitable unit.
pub(crate) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..100_000 => format!("{:.1} ms", us as f64 / 1e3),
        100_000..10_000_000 => format!("{:.0} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// Aligns the columns of rows: the first to the left, the others to the right.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; count];
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            widths[column] = cell.chars().count().max(widths[column]);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_suitable_units() {
        assert_eq!(
            [0, 999, 1_500, 250_000, 12_000_000].map(time),
            ["0 µs", "999 µs", "1.5 ms", "250 ms", "12.0 s"]
        );
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            columns(&[row(["a", "b"]), row(["long", "123"])]),
            "a       b\nlong  123\n"
        );
    }
}
