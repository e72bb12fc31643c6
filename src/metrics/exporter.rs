//! The Prometheus recorder of the service, the buckets of its histograms, and its text.
//!
//! Install it before the bus starts: metric handles belong to the recorder that is current when they are
//! created.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::process;

/// The interval at which histogram samples are moved into their buckets. A scrape does the same, but without
/// one the samples would pile up.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Buckets for durations that are microseconds in a healthy service.
const SHORT: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 1.0, 10.0,
];
/// Buckets for durations that depend on how fast a client reads.
const LONG: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 60.0, 300.0,
];
/// Buckets for numbers of records.
const COUNT: [f64; 12] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 4_096.0,
];

/// The buckets of every histogram. The exporter turns a histogram that is missing here into a summary.
const BUCKETS: [(&str, &[f64]); 8] = [
    ("tidings_fan_out_seconds", &SHORT),
    ("tidings_door_wait_seconds", &SHORT),
    ("tidings_store_batch_seconds", &SHORT),
    ("tidings_store_batch_records", &COUNT),
    ("tidings_delivery_seconds", &LONG),
    ("tidings_cluster_lag_seconds", &LONG),
    ("tidings_cluster_propose_seconds", &LONG),
    ("tidings_upstream_call_seconds", &LONG),
];

/// The Prometheus recorder of this process.
#[derive(Debug, Clone)]
pub(crate) struct Exporter {
    handle: PrometheusHandle,
    /// Start of the process in seconds since 1970.
    started: f64,
}

impl Exporter {
    /// Installs the recorder, or returns `None` if the process has one already, which then receives the
    /// metrics.
    pub(crate) fn install() -> Option<Exporter> {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).ok()?;
        // A clock before 1970 shows as 0 rather than as an error: the rest of the scrape is still worth
        // having.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        super::register();
        Some(Exporter {
            handle,
            started: now.as_secs_f64(),
        })
    }

    /// Returns all metrics in the text format of Prometheus.
    pub(crate) fn render(&self) -> String {
        let mut text = self.handle.render();
        process::write(&mut text, self.started);
        text
    }

    /// Moves samples into their buckets once per [`UPKEEP_INTERVAL`]. Never returns.
    pub(crate) async fn keep_up(self) {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            self.handle.run_upkeep();
        }
    }
}

fn builder() -> PrometheusBuilder {
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in BUCKETS {
        builder = builder
            .set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
            .expect("no list of buckets is empty");
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bus;
    use crate::metrics::{HttpMetrics, McpMetrics, UpstreamMetrics, register};

    /// Returns the metrics of a bus and a gateway right after their start.
    fn text() -> String {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            register();
            drop(Bus::builder().start().unwrap());
            drop((
                HttpMetrics::new(),
                McpMetrics::new("http"),
                UpstreamMetrics::new("server"),
            ));
        });
        handle.render()
    }

    #[test]
    fn every_histogram_has_buckets_from_the_start() {
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
    fn metrics_page_lists_the_buckets() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"));
        for (name, buckets) in BUCKETS {
            let listed: Vec<String> = buckets.iter().map(ToString::to_string).collect();
            let row = format!("| `{name}` | {} |\n", listed.join(", "));
            assert!(page.contains(&row), "docs/metrics.md lacks\n{row}");
        }
    }
}
