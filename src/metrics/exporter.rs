//! The Prometheus recorder of the service, and its text.
//!
//! Owns: the recorder, the buckets of histograms, and the timer that takes samples out of it, so that their number is
//! bounded by what comes in a second. Never: opens a socket; whoever serves HTTP asks for the text. Installed before
//! the bus starts, since handles belong to the recorder that is there when they are made.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::process;

/// How often samples are taken out of the recorder when nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// For what takes microseconds when all is well.
const SHORT: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 1.0, 10.0,
];
/// For what takes as long as a reader does.
const LONG: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 60.0, 300.0,
];
const COUNT: [f64; 12] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 4_096.0,
];

/// Every histogram has fixed buckets; one that is missing here would be a summary.
const BUCKETS: [(&str, &[f64]); 5] = [
    ("tidings_fan_out_seconds", &SHORT),
    ("tidings_door_wait_seconds", &SHORT),
    ("tidings_store_batch_seconds", &SHORT),
    ("tidings_store_batch_records", &COUNT),
    ("tidings_delivery_seconds", &LONG),
];

/// The recorder of this process.
#[derive(Debug, Clone)]
pub(crate) struct Exporter {
    handle: PrometheusHandle,
    /// When the process started, in seconds since 1970.
    started: f64,
}

impl Exporter {
    /// Installs the recorder; none when the process has another one already, which then keeps the numbers.
    pub(crate) fn install() -> Option<Exporter> {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        super::register();
        Some(Exporter {
            handle,
            started: now.map_or(0.0, |now| now.as_secs_f64()),
        })
    }

    /// Everything in the text format of Prometheus.
    pub(crate) fn render(&self) -> String {
        let mut text = self.handle.render();
        process::write(&mut text, self.started);
        text
    }

    /// Keeps the number of samples bounded, for ever.
    pub(crate) async fn keep_up(self) {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            self.handle.run_upkeep();
        }
    }
}

fn builder() -> PrometheusBuilder {
    BUCKETS
        .iter()
        .fold(PrometheusBuilder::new(), |builder, (name, buckets)| {
            let matcher = Matcher::Full((*name).to_owned());
            let builder = builder.set_buckets_for_metric(matcher, buckets);
            builder.expect("no list of buckets is empty")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bus;
    use crate::metrics::{HttpMetrics, McpMetrics, register};

    /// What is exported by a bus and a service to which nothing has happened.
    fn text() -> String {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            register();
            drop(Bus::builder().start().unwrap());
            drop((HttpMetrics::new(), McpMetrics::new("http")));
        });
        handle.render()
    }

    #[test]
    fn no_histogram_is_a_summary_and_all_are_there_from_the_start() {
        let text = text();
        assert!(!text.contains(" summary"), "{text}");
        for (name, buckets) in BUCKETS {
            assert!(
                text.contains(&format!("# TYPE {name} histogram")),
                "{name}\n{text}"
            );
            let lines = text
                .lines()
                .filter(|line| line.starts_with(&format!("{name}_bucket")));
            assert_eq!(lines.count(), buckets.len() + 1, "{name}");
            assert!(buckets.is_sorted(), "{name}");
        }
    }

    #[test]
    fn the_page_lists_the_buckets() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"));
        for (name, buckets) in BUCKETS {
            let listed: Vec<String> = buckets.iter().map(ToString::to_string).collect();
            let row = format!("| `{name}` | {} |\n", listed.join(", "));
            assert!(page.contains(&row), "docs/metrics.md lacks\n{row}");
        }
    }
}
