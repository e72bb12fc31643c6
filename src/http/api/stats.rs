//! `GET /v1/stats`: the figures of the last 15 minutes, for a page or a terminal to draw.
//!
//! One timer takes a sample every 5 seconds from the text of the metrics exporter and encodes the whole
//! history once, so the paths of changes count nothing twice and a further viewer costs one copy. The history
//! is a ring, so its memory does not grow.

mod exposition;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tidings_actors::StoreState;
use tokio::time::{Instant, MissedTickBehavior};

use exposition::{Exposition, Latency};

use super::metrics::Render;
use super::{Api, ApiResponse, json};
use crate::auth::{Object, Right};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::rights::{caller, require};

/// The time between two samples.
const STEP: Duration = Duration::from_secs(5);
/// The samples that are kept: 15 minutes.
const SAMPLES_MAX: usize = 180;

/// One sample. A value that is not known, such as a rate before the second sample, is none.
#[derive(Debug, Default)]
struct Sample {
    sessions: Option<f32>,
    streams: Option<f32>,
    subscriptions: Option<f32>,
    stalled: Option<f32>,
    changes_per_s: Option<f32>,
    told_per_s: Option<f32>,
    conflated_per_s: Option<f32>,
    delivery_ms: Percentiles,
    fan_out_ms: Percentiles,
    rss: Option<f32>,
    cpu: Option<f32>,
    limits_per_s: Option<f32>,
    /// The limits that were reached since the sample before, with the number of times.
    limits: Vec<(String, f64)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Percentiles {
    p50: Option<f32>,
    p99: Option<f32>,
}

#[derive(Serialize, JsonSchema)]
struct Series {
    sessions: Vec<Option<f32>>,
    streams: Vec<Option<f32>>,
    subscriptions: Vec<Option<f32>>,
    stalled: Vec<Option<f32>>,
    changes_per_s: Vec<Option<f32>>,
    told_per_s: Vec<Option<f32>>,
    conflated_per_s: Vec<Option<f32>>,
    delivery_ms: PercentileSeries,
    fan_out_ms: PercentileSeries,
    rss: Vec<Option<f32>>,
    cpu: Vec<Option<f32>>,
    limits_per_s: Vec<Option<f32>>,
}

#[derive(Serialize, JsonSchema)]
struct PercentileSeries {
    p50: Vec<Option<f32>>,
    p99: Vec<Option<f32>>,
}

/// The answer. The series are encoded once per sample.
#[derive(Serialize, JsonSchema)]
pub(super) struct StatsItem<'a> {
    /// The time of the last sample in milliseconds since 1970.
    now: u64,
    step_ms: u64,
    version: &'static str,
    #[schemars(with = "Series")]
    series: &'a RawValue,
    /// The limits that were reached within the history, with the number of times.
    #[schemars(with = "BTreeMap<String, f64>")]
    limits: &'a RawValue,
    store: StoreItem,
}

#[derive(Serialize, JsonSchema)]
struct StoreItem {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The history as JSON.
#[derive(Debug)]
struct Encoded {
    now: u64,
    series: Box<RawValue>,
    limits: Box<RawValue>,
}

/// The figures of the last minutes. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct StatsHistory(Arc<RwLock<Arc<Encoded>>>);

impl StatsHistory {
    /// Takes a sample of the text that `render` makes now and every 5 seconds, until the last clone is
    /// dropped. Needs a tokio runtime.
    pub fn start(render: Render) -> StatsHistory {
        let mut taker = Taker::new(render);
        taker.take(Instant::now());
        // The timer holds no history, so that it ends with the last clone.
        let history = StatsHistory(Arc::new(RwLock::new(Arc::new(taker.encode()))));
        tokio::spawn(taker.keep_taking(Arc::downgrade(&history.0)));
        history
    }

    fn newest(&self) -> Arc<Encoded> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Takes the samples.
struct Taker {
    render: Render,
    /// The counters at the sample before, and its time.
    before: Option<(Exposition, Instant)>,
    samples: VecDeque<Sample>,
}

impl Taker {
    fn new(render: Render) -> Taker {
        Taker {
            render,
            before: None,
            samples: VecDeque::with_capacity(SAMPLES_MAX),
        }
    }

    async fn keep_taking(mut self, history: Weak<RwLock<Arc<Encoded>>>) {
        let mut timer = tokio::time::interval_at(Instant::now() + STEP, STEP);
        // Samples stand for equal steps of time, so a late one is not followed by two at once.
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = timer.tick().await;
            let Some(history) = history.upgrade() else {
                return;
            };
            self.take(now);
            // Encoded before the lock is taken, so that no viewer waits for it.
            let encoded = Arc::new(self.encode());
            *history.write().unwrap_or_else(PoisonError::into_inner) = encoded;
        }
    }

    fn take(&mut self, now: Instant) {
        let current = Exposition::parse(&(self.render)());
        let sample = match &self.before {
            Some((before, at)) => Sample::between(before, &current, now.duration_since(*at)),
            None => Sample::first(&current),
        };
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.before = Some((current, now));
    }

    fn encode(&self) -> Encoded {
        let all = |value: fn(&Sample) -> Option<f32>| self.samples.iter().map(value).collect();
        let series = Series {
            sessions: all(|sample| sample.sessions),
            streams: all(|sample| sample.streams),
            subscriptions: all(|sample| sample.subscriptions),
            stalled: all(|sample| sample.stalled),
            changes_per_s: all(|sample| sample.changes_per_s),
            told_per_s: all(|sample| sample.told_per_s),
            conflated_per_s: all(|sample| sample.conflated_per_s),
            delivery_ms: PercentileSeries {
                p50: all(|sample| sample.delivery_ms.p50),
                p99: all(|sample| sample.delivery_ms.p99),
            },
            fan_out_ms: PercentileSeries {
                p50: all(|sample| sample.fan_out_ms.p50),
                p99: all(|sample| sample.fan_out_ms.p99),
            },
            rss: all(|sample| sample.rss),
            cpu: all(|sample| sample.cpu),
            limits_per_s: all(|sample| sample.limits_per_s),
        };
        let mut limits: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, times) in self.samples.iter().flat_map(|sample| &sample.limits) {
            *limits.entry(name).or_default() += times;
        }
        Encoded {
            now: millis_of(SystemTime::now()),
            series: to_raw_value(&series).expect("numbers and lists of them are JSON"),
            limits: to_raw_value(&limits).expect("texts and numbers are JSON"),
        }
    }
}

impl Sample {
    /// The values that one look at the metrics tells.
    fn first(now: &Exposition) -> Sample {
        Sample {
            // The exporter has no line for either before the first of them.
            sessions: rounded(now.sessions.or(Some(0.0))),
            streams: rounded(now.streams.or(Some(0.0))),
            subscriptions: rounded(now.subscriptions),
            stalled: rounded(now.stalled),
            rss: rounded(now.rss),
            ..Sample::default()
        }
    }

    /// The values of two looks, with the rates between them.
    fn between(before: &Exposition, now: &Exposition, passed: Duration) -> Sample {
        let seconds = passed.as_secs_f64();
        let rate = |value: fn(&Exposition) -> Option<f64>| match (value(before), value(now)) {
            (Some(before), Some(now)) if seconds > 0.0 => rounded(Some((now - before) / seconds)),
            _ => None,
        };
        let limits = now.limits_since(before);
        let reached: f64 = limits.iter().map(|(_, times)| times).sum();
        Sample {
            changes_per_s: rate(|one| one.changes),
            told_per_s: rate(|one| one.told),
            conflated_per_s: rate(|one| one.conflated),
            delivery_ms: Percentiles::between(&before.delivery, &now.delivery),
            fan_out_ms: Percentiles::between(&before.fan_out, &now.fan_out),
            cpu: rate(|one| one.cpu_seconds),
            limits_per_s: rounded(Some(reached / seconds.max(f64::EPSILON))),
            limits,
            ..Sample::first(now)
        }
    }
}

impl Percentiles {
    fn between(before: &Latency, now: &Latency) -> Percentiles {
        let millis = |share| rounded(now.quantile_since(before, share).map(|seconds| seconds * 1_000.0));
        Percentiles {
            p50: millis(0.5),
            p99: millis(0.99),
        }
    }
}

/// Shortens a number to what a chart can show, so that the answer stays small.
fn rounded(value: Option<f64>) -> Option<f32> {
    let value = value?;
    let rounded = match value.abs() < 1_000.0 {
        true => (value * 1_000.0).round() / 1_000.0,
        false => value.round(),
    };
    Some(rounded as f32)
}

fn millis_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Api {
    /// `GET /v1/stats`: the history, for callers with the right to metrics or to administration.
    pub(super) fn show_stats(&self, head: &Parts) -> Result<ApiResponse, Problem> {
        if !caller(&head.extensions)?.sees(Right::Metrics, Object::Service) {
            require(&head.extensions, Right::Admin, Object::Service)?;
        }
        let Some(history) = &self.stats else {
            let text = "no figures are kept here; they need metrics.enabled = true, and a process without \
                        another recorder of metrics";
            return Err(ProblemKind::NotFound.because(text));
        };
        let newest = history.newest();
        Ok(json(&StatsItem {
            now: newest.now,
            step_ms: millis(STEP),
            version: env!("CARGO_PKG_VERSION"),
            series: &newest.series,
            limits: &newest.limits,
            store: store_item(&self.bus.store_state()),
        }))
    }
}

fn store_item(state: &StoreState) -> StoreItem {
    let (name, since, reason) = match state {
        StoreState::Failing { reason, since, .. } => ("failing", Some(since), Some(reason.to_string())),
        StoreState::Slow { since } => ("slow", Some(since), None),
        _ => ("ok", None, None),
    };
    StoreItem {
        state: name,
        for_ms: since.map(|since| millis(since.elapsed())),
        reason,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A text whose counters grow by 50 from look to look.
    fn counting() -> Render {
        let looks = AtomicU64::new(0);
        Arc::new(move || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            let count = look * 50;
            format!(
                "tidings_sessions{{revision=\"2025-11-25\",transport=\"http\"}} {look}\n\
                 tidings_sessions{{revision=\"none\",transport=\"local\"}} 1\n\
                 tidings_changes_total{{outcome=\"changed\"}} {count}\n\
                 tidings_changes_total{{outcome=\"refused\"}} 7\n\
                 tidings_limit_reached_total{{limit=\"session.max\"}} {look}\n\
                 tidings_limit_reached_total{{limit=\"http.batch_max\"}} 3\n\
                 tidings_delivery_seconds_bucket{{transport=\"http\",le=\"0.001\"}} {count}\n\
                 tidings_delivery_seconds_bucket{{transport=\"http\",le=\"+Inf\"}} {count}\n"
            )
        })
    }

    async fn json_of(history: &StatsHistory) -> (Value, Value) {
        let newest = history.newest();
        let read = |text: &RawValue| serde_json::from_str(text.get()).unwrap();
        (read(&newest.series), read(&newest.limits))
    }

    #[tokio::test(start_paused = true)]
    async fn first_sample_has_numbers_and_no_rates() {
        let (series, limits) = json_of(&StatsHistory::start(counting())).await;
        assert_eq!(series["sessions"], serde_json::json!([1.0]));
        assert_eq!(series["changes_per_s"], serde_json::json!([null]));
        assert_eq!(series["delivery_ms"]["p99"], serde_json::json!([null]));
        assert_eq!(limits, serde_json::json!({}));
    }

    #[tokio::test(start_paused = true)]
    async fn sample_of_every_step_has_rates() {
        let history = StatsHistory::start(counting());
        tokio::time::sleep(STEP + Duration::from_millis(1)).await;
        let (series, limits) = json_of(&history).await;
        assert_eq!(series["sessions"], serde_json::json!([1.0, 2.0]));
        assert_eq!(series["changes_per_s"], serde_json::json!([null, 10.0]));
        assert_eq!(series["limits_per_s"], serde_json::json!([null, 0.2]));
        assert_eq!(series["delivery_ms"]["p50"], serde_json::json!([null, 0.5]));
        assert_eq!(limits, serde_json::json!({ "session.max": 1.0 }));
    }

    #[tokio::test(start_paused = true)]
    async fn history_is_bounded() {
        let history = StatsHistory::start(counting());
        tokio::time::sleep(STEP * 400).await;
        let newest = history.newest();
        let (series, limits) = json_of(&history).await;
        assert_eq!(series["sessions"].as_array().unwrap().len(), SAMPLES_MAX);
        assert_eq!(limits["session.max"], 180.0);
        // The text and the numbers that it was made of.
        let kept = SAMPLES_MAX * size_of::<Sample>() + newest.series.get().len() + newest.limits.get().len();
        assert!(kept <= 64 << 10, "{kept} bytes");
    }

    #[tokio::test(start_paused = true)]
    async fn timer_ends_with_the_history() {
        let render = counting();
        let history = StatsHistory::start(render.clone());
        assert_eq!(Arc::strong_count(&render), 2);
        drop(history);
        tokio::time::sleep(STEP * 2).await;
        assert_eq!(Arc::strong_count(&render), 1);
    }
}
