//! Two reports beside each other, with the ratio of each figure.

use serde_json::Value;

use crate::bench::report::table::columns;
use crate::bench::report::{GroupReport, Report};

/// Changes of less than this share are noise between two runs.
const NOISE: f64 = 0.05;
/// The settings that are the load: two runs with others cannot be compared figure by figure.
const LOAD: [&str; 16] = [
    "sessions",
    "http2_connections",
    "tls",
    "era",
    "revision",
    "resources",
    "subscribe",
    "rate",
    "flat_out",
    "duration_s",
    "publish",
    "stalled",
    "slow",
    "slow_rate",
    "churn",
    "pollers",
];

/// Returns a table of both, figure by figure; the last column is the second divided by the first.
pub fn compare(first: (&str, &Report), second: (&str, &Report)) -> String {
    let mut rows = vec![vec![
        String::new(),
        first.0.to_owned(),
        second.0.to_owned(),
        "ratio".to_owned(),
    ]];
    for pair in pairs(first.1, second.1) {
        rows.push(vec![
            pair.name.clone(),
            show(pair.first),
            show(pair.second),
            ratio(pair.first, pair.second),
        ]);
    }
    columns(&rows)
}

/// The side on which a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
    Neither,
}

/// The judgement on a change of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Better,
    Worse,
    /// Too small to mean anything, or of a figure that is neither good nor bad.
    None,
}

impl Better {
    pub(crate) fn judge(self, first: f64, second: f64) -> Judgement {
        let difference = second - first;
        let is_noise = difference.abs() <= first.abs() * NOISE;
        match (self, difference < 0.0) {
            (Better::Neither, _) => Judgement::None,
            _ if is_noise => Judgement::None,
            (Better::Lower, true) | (Better::Higher, false) => Judgement::Better,
            _ => Judgement::Worse,
        }
    }
}

/// One figure of two reports.
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) first: Option<f64>,
    pub(crate) second: Option<f64>,
    pub(crate) better: Better,
}

/// Returns the figures of both reports, in the order of the table.
pub(crate) fn pairs(first: &Report, second: &Report) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for figure in figures(first) {
        pairs.push(Pair {
            name: figure.name,
            first: figure.value,
            second: None,
            better: figure.better,
        });
    }
    for figure in figures(second) {
        match pairs.iter_mut().find(|pair| pair.name == figure.name) {
            Some(pair) => pair.second = figure.value,
            None => pairs.push(Pair {
                name: figure.name,
                first: None,
                second: figure.value,
                better: figure.better,
            }),
        }
    }
    pairs
}

/// Returns the settings of the load in which two reports differ, with both values.
pub(crate) fn differences(first: &Report, second: &Report) -> Vec<String> {
    let mut differences = Vec::new();
    for name in LOAD {
        let one = &first.settings[name];
        let other = &second.settings[name];
        // A whole number may have been written with and without a fraction.
        if one != other && (one.as_f64().is_none() || one.as_f64() != other.as_f64()) {
            differences.push(format!("{name} {} and {}", plain(one), plain(other)));
        }
    }
    differences
}

/// Writes a setting as people do: a text without quotes, a whole number without a fraction.
pub(crate) fn plain(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::Null, _) => "–".to_owned(),
        (Value::String(text), _) => text.clone(),
        // Beyond this a number in JSON may have lost digits, so it is shown as it was written.
        (_, Some(number)) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
        (other, _) => other.to_string(),
    }
}

/// A figure of a report.
struct Figure {
    name: String,
    value: Option<f64>,
    better: Better,
}

/// The figures of a report by name, in the order of the table.
#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(&mut self, name: &str, value: Option<f64>, better: Better) {
        let name = name.to_owned();
        self.0.push(Figure { name, value, better });
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
            self.add(&format!("{}: {name}, ms", group.name), ms, Better::Lower);
        }
        let merged = match group.owed {
            0 => None,
            owed => Some(group.conflated as f64 / owed as f64),
        };
        self.add(&format!("{}: merged, share", group.name), merged, Better::Neither);
        let missing = Some(group.missing_finals as f64);
        self.add(&format!("{}: missing finals", group.name), missing, Better::Lower);
    }
}

fn figures(report: &Report) -> Vec<Figure> {
    use Better::{Higher, Lower, Neither};
    let mut figures = Figures::default();
    figures.add("sessions", report.settings["sessions"].as_f64(), Neither);
    figures.add("updates/s asked for", report.settings["rate"].as_f64(), Neither);
    figures.add("opened, s", Some(report.opened.seconds), Lower);
    figures.add("notices/s", Some(report.deliveries_per_s), Higher);
    for group in &report.groups {
        figures.add_group(group);
    }
    if let Some(server) = &report.server {
        figures.add("server CPU per notice, µs", server.cpu_us_per_delivery, Lower);
        figures.add("server CPU, % of a core", server.cpu_percent, Lower);
        figures.add("server KiB per session", server.kib_per_session, Lower);
        let kib = server.after_kib.map(|kib| kib as f64);
        figures.add("server KiB at the end", kib, Lower);
    }
    figures.add("test CPU per notice, µs", report.own.cpu_us_per_delivery, Neither);
    figures.add("problems", Some(report.problems.len() as f64), Lower);
    figures.0
}

pub(crate) fn show(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.fract() == 0.0 => format!("{value}"),
        Some(value) => format!("{value:.2}"),
    }
}

pub(crate) fn ratio(first: Option<f64>, second: Option<f64>) -> String {
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
    fn settings_are_written_plainly() {
        for (text, expected) in [
            ("20.0", "20"),
            ("0.5", "0.5"),
            ("60", "60"),
            ("\"api\"", "api"),
            ("false", "false"),
            ("null", "–"),
        ] {
            assert_eq!(plain(&serde_json::from_str(text).unwrap()), expected);
        }
    }

    #[test]
    fn change_is_judged_beyond_noise() {
        assert_eq!(Better::Lower.judge(100.0, 80.0), Judgement::Better);
        assert_eq!(Better::Lower.judge(100.0, 104.0), Judgement::None);
        assert_eq!(Better::Lower.judge(0.0, 1.0), Judgement::Worse);
        assert_eq!(Better::Higher.judge(100.0, 80.0), Judgement::Worse);
        assert_eq!(Better::Neither.judge(100.0, 1.0), Judgement::None);
    }

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
