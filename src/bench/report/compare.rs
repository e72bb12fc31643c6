//! Two reports beside each other, with the ratio of each figure.

use crate::bench::report::table::columns;
use crate::bench::report::{GroupReport, Report};

/// Returns a table of both, figure by figure; the last column is the second divided by the first.
pub fn compare(first: (&str, &Report), second: (&str, &Report)) -> String {
    let mut rows = vec![vec![
        String::new(),
        first.0.to_owned(),
        second.0.to_owned(),
        "ratio".to_owned(),
    ]];
    let first = figures(first.1);
    let second = figures(second.1);
    for (name, value) in &first {
        let other = match second.iter().find(|(other, _)| other == name) {
            Some((_, value)) => *value,
            None => None,
        };
        rows.push(vec![
            name.clone(),
            show(*value),
            show(other),
            ratio(*value, other),
        ]);
    }
    for (name, value) in &second {
        if !first.iter().any(|(known, _)| known == name) {
            rows.push(vec![name.clone(), show(None), show(*value), ratio(None, *value)]);
        }
    }
    columns(&rows)
}

/// The figures of a report by name, in the order of the table.
#[derive(Default)]
struct Figures(Vec<(String, Option<f64>)>);

impl Figures {
    fn add(&mut self, name: &str, value: Option<f64>) {
        self.0.push((name.to_owned(), value));
    }

    fn add_group(&mut self, group: &GroupReport) {
        let latency = &group.latency;
        let times = [
            ("p50", latency.p50_us),
            ("p90", latency.p90_us),
            ("p99", latency.p99_us),
            ("p99.9", latency.p99_9_us),
            ("max", latency.max_us),
        ];
        for (name, us) in times {
            let ms = match latency.count {
                0 => None,
                _ => Some(us as f64 / 1e3),
            };
            self.add(&format!("{}: {name}, ms", group.name), ms);
        }
        let merged = match group.owed {
            0 => None,
            owed => Some(group.conflated as f64 / owed as f64),
        };
        self.add(&format!("{}: merged, share", group.name), merged);
        let missing = Some(group.missing_finals as f64);
        self.add(&format!("{}: missing finals", group.name), missing);
    }
}

fn figures(report: &Report) -> Vec<(String, Option<f64>)> {
    let mut figures = Figures::default();
    figures.add("sessions", report.settings["sessions"].as_f64());
    figures.add("updates/s asked for", report.settings["rate"].as_f64());
    figures.add("opened, s", Some(report.opened.seconds));
    figures.add("notices/s", Some(report.deliveries_per_s));
    for group in &report.groups {
        figures.add_group(group);
    }
    if let Some(server) = &report.server {
        figures.add("server CPU per notice, µs", server.cpu_us_per_delivery);
        figures.add("server CPU, % of a core", server.cpu_percent);
        figures.add("server KiB per session", server.kib_per_session);
        figures.add("server KiB at the end", server.after_kib.map(|kib| kib as f64));
    }
    figures.add("test CPU per notice, µs", report.own.cpu_us_per_delivery);
    figures.add("problems", Some(report.problems.len() as f64));
    figures.0
}

fn show(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.fract() == 0.0 => format!("{value}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn ratio(first: Option<f64>, second: Option<f64>) -> String {
    match (first, second) {
        (Some(first), Some(second)) if first != 0.0 => format!("{:.2}", second / first),
        (Some(_), Some(0.0)) => "1.00".to_owned(),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_second_by_first() {
        assert_eq!(ratio(Some(4.0), Some(2.0)), "0.50");
        assert_eq!(ratio(Some(0.0), Some(0.0)), "1.00");
        assert_eq!(ratio(Some(0.0), Some(3.0)), "-");
        assert_eq!(ratio(None, Some(3.0)), "-");
        assert_eq!(
            (show(Some(200.0)), show(Some(1.234)), show(None)),
            ("200".into(), "1.23".into(), "-".into())
        );
    }
}
