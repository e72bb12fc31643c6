//! The numbers in the text of the metrics exporter (the text format of Prometheus, version 0.0.4).
//!
//! Only the metrics of the history are read, each summed over its labels.

use crate::metrics::MetricLine;

/// The numbers of one text. One that is not in it is none.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Exposition {
    pub(super) sessions: Option<f64>,
    pub(super) streams: Option<f64>,
    pub(super) subscriptions: Option<f64>,
    pub(super) stalled: Option<f64>,
    /// Changes that altered something.
    pub(super) changes: Option<f64>,
    pub(super) told: Option<f64>,
    pub(super) conflated: Option<f64>,
    pub(super) rss: Option<f64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) delivery: Latency,
    pub(super) fan_out: Latency,
    limits: Vec<(String, f64)>,
}

/// The cumulative buckets of a histogram: upper bounds in seconds and counts, in the order of the text.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Latency(Vec<(f64, f64)>);

impl Exposition {
    /// Reads a text. Lines that are none of the format are passed over.
    pub(super) fn parse(text: &str) -> Exposition {
        let mut found = Exposition::default();
        for line in text.lines() {
            if let Some(line) = MetricLine::parse(line) {
                found.add(&line);
            }
        }
        found
    }

    fn add(&mut self, line: &MetricLine<'_>) {
        let sum = match line.name {
            "tidings_sessions" => &mut self.sessions,
            "tidings_streams" => &mut self.streams,
            "tidings_subscriptions" => &mut self.subscriptions,
            "tidings_sessions_stalled" => &mut self.stalled,
            "tidings_changes_total" if line.label("outcome") == Some("changed") => &mut self.changes,
            "tidings_told_total" => &mut self.told,
            "tidings_conflated_total" => &mut self.conflated,
            "process_resident_memory_bytes" => &mut self.rss,
            "process_cpu_seconds_total" => &mut self.cpu_seconds,
            "tidings_delivery_seconds_bucket" => return self.delivery.add(line),
            "tidings_fan_out_seconds_bucket" => return self.fan_out.add(line),
            "tidings_limit_reached_total" => {
                if let Some(limit) = line.label("limit") {
                    add_to(&mut self.limits, limit, line.value);
                }
                return;
            }
            _ => return,
        };
        *sum = Some(sum.unwrap_or(0.0) + line.value);
    }

    /// The limits that were reached since `before`, with the number of times.
    pub(super) fn limits_since(&self, before: &Exposition) -> Vec<(String, f64)> {
        let mut reached = Vec::new();
        for (name, now) in &self.limits {
            let earlier = before.limits.iter().find(|(other, _)| other == name);
            let times = now - earlier.map(|(_, times)| *times).unwrap_or_default();
            if times > 0.0 {
                reached.push((name.clone(), times));
            }
        }
        reached
    }
}

/// Adds to the limit of this name, which the bus and the service may both count.
fn add_to(limits: &mut Vec<(String, f64)>, name: &str, times: f64) {
    match limits.iter_mut().find(|(other, _)| other == name) {
        Some((_, sum)) => *sum += times,
        None => limits.push((name.to_owned(), times)),
    }
}

impl Latency {
    fn add(&mut self, line: &MetricLine<'_>) {
        let Some(Ok(bound)) = line.label("le").map(str::parse::<f64>) else {
            return;
        };
        match self.0.iter_mut().find(|(other, _)| *other == bound) {
            Some((_, count)) => *count += line.value,
            None => self.0.push((bound, line.value)),
        }
    }

    /// Estimates the duration in seconds that this share of the samples since `before` did not exceed: linear
    /// within a bucket, and the greatest bound for samples beyond it. None without samples.
    pub(super) fn quantile_since(&self, before: &Latency, share: f64) -> Option<f64> {
        let since = |bound: f64, count: f64| {
            let earlier = before.0.iter().find(|(other, _)| *other == bound);
            count - earlier.map(|(_, count)| *count).unwrap_or_default()
        };
        let (last, all) = self.0.last()?;
        let total = since(*last, *all);
        if total <= 0.0 {
            return None;
        }
        let rank = share * total;
        let mut lower = 0.0;
        let mut below = 0.0;
        for (bound, count) in &self.0 {
            let within = since(*bound, *count);
            if within >= rank && bound.is_finite() {
                let part = (rank - below) / (within - below).max(f64::EPSILON);
                return Some(lower + (bound - lower) * part.clamp(0.0, 1.0));
            }
            // The last bucket has no upper bound to lie below, so its samples count as the greatest that has.
            if bound.is_finite() {
                lower = *bound;
                below = within;
            }
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(buckets: &[(f64, f64)]) -> Latency {
        Latency(buckets.to_vec())
    }

    #[test]
    fn numbers_are_summed_over_labels() {
        let text = "# HELP tidings_streams Open.\n# TYPE tidings_streams gauge\n\
                    tidings_streams{transport=\"http\"} 3\ntidings_streams{transport=\"stdio\"} 1\n\
                    tidings_told_total 9\nnothing\ntidings_told_total\n\
                    tidings_changes_total{outcome=\"unchanged\"} 5\n";
        let found = Exposition::parse(text);
        assert_eq!(found.streams, Some(4.0));
        assert_eq!(found.told, Some(9.0));
        assert_eq!(found.changes, None);
    }

    #[test]
    fn limits_count_from_the_sample_before() {
        let text = |a, b| {
            format!(
                "tidings_limit_reached_total{{limit=\"a\"}} {a}\ntidings_limit_reached_total{{limit=\"b\"}} {b}\n"
            )
        };
        let before = Exposition::parse(&text(1, 5));
        let now = Exposition::parse(&text(4, 5));
        assert_eq!(now.limits_since(&before), [("a".to_owned(), 3.0)]);
        assert_eq!(now.limits_since(&Exposition::default()).len(), 2);
    }

    #[test]
    fn quantile_lies_within_its_bucket() {
        let none = Latency::default();
        let now = latency(&[(0.1, 50.0), (0.2, 100.0), (f64::INFINITY, 100.0)]);
        assert_eq!(now.quantile_since(&none, 0.5), Some(0.1));
        assert!((now.quantile_since(&none, 0.75).unwrap() - 0.15).abs() < 1e-9);
        let later = latency(&[(0.1, 50.0), (0.2, 110.0), (f64::INFINITY, 110.0)]);
        assert!(
            later.quantile_since(&now, 0.5).unwrap() > 0.1,
            "only the new samples count"
        );
    }

    #[test]
    fn quantile_without_samples_is_none() {
        let now = latency(&[(0.1, 5.0), (f64::INFINITY, 5.0)]);
        assert_eq!(now.quantile_since(&now, 0.5), None);
        assert_eq!(Latency::default().quantile_since(&now, 0.5), None);
        let beyond = latency(&[(0.1, 0.0), (f64::INFINITY, 5.0)]);
        assert_eq!(beyond.quantile_since(&Latency::default(), 0.5), Some(0.1));
    }
}
