//! Two reports beside each other, with the ratio of each figure.
//!
//! Owns which figures are compared. It judges nothing: which ratio is good depends on the figure.

use crate::bench::report::table::columns;
use crate::bench::report::{Report, Spread};

/// A table of the two, figure by figure; the last column is the second divided by the first.
pub fn compare(first: (&str, &Report), second: (&str, &Report)) -> String {
    let mut rows = vec![vec![
        String::new(),
        first.0.to_owned(),
        second.0.to_owned(),
        "ratio".to_owned(),
    ]];
    let (first, second) = (figures(first.1), figures(second.1));
    for (name, value) in &first {
        let other = second.iter().find(|(other, _)| other == name);
        let other = other.and_then(|(_, value)| *value);
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

fn figures(report: &Report) -> Vec<(String, Option<f64>)> {
    let settings = |key: &str| report.settings[key].as_f64();
    let named = |name: &str, value: Option<f64>| (name.to_owned(), value);
    let mut figures = vec![
        named("sessions", settings("sessions")),
        named("updates/s asked for", settings("rate")),
        named("opened, s", Some(report.opened.seconds)),
        named("notices/s", Some(report.deliveries_per_s)),
    ];
    for group in &report.groups {
        let name = |what: &str| format!("{}: {what}", group.name);
        let ms = |us: fn(&Spread) -> u64| (group.latency.count > 0).then(|| us(&group.latency) as f64 / 1e3);
        let share = |part: u64| (group.owed > 0).then(|| part as f64 / group.owed as f64);
        figures.extend([
            (name("p50, ms"), ms(|all| all.p50_us)),
            (name("p90, ms"), ms(|all| all.p90_us)),
            (name("p99, ms"), ms(|all| all.p99_us)),
            (name("p99.9, ms"), ms(|all| all.p99_9_us)),
            (name("max, ms"), ms(|all| all.max_us)),
            (name("merged, share"), share(group.conflated)),
            (name("missing finals"), Some(group.missing_finals as f64)),
        ]);
    }
    if let Some(server) = &report.server {
        figures.extend([
            named("server CPU per notice, µs", server.cpu_us_per_delivery),
            named("server CPU, % of a core", server.cpu_percent),
            named("server KiB per session", server.kib_per_session),
            named("server KiB at the end", server.after_kib.map(|kib| kib as f64)),
        ]);
    }
    figures.push(named("test CPU per notice, µs", report.own.cpu_us_per_delivery));
    figures.push(named("problems", Some(report.problems.len() as f64)));
    figures
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
    fn a_ratio_is_the_second_by_the_first() {
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
