//! One look at a service: its figures, as `GET /v1/stats` has them, and its slowest sessions.

use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::cli::CliError;
use crate::cli::server::{Service, items};
use crate::cli::table::age;
use crate::printable;

/// The limit on the size of the figures in bytes: a service keeps 15 minutes of them.
const STATS_BYTES_MAX: usize = 1 << 20;

/// One look.
pub(super) struct TopSample {
    /// The number of sessions.
    pub(super) total: u64,
    /// The slowest first.
    pub(super) sessions: Vec<Value>,
    /// None where the service keeps no figures, or this client has no right to them.
    stats: Option<Value>,
    /// None where the service is alone, or this client has no right to see it.
    pub(super) cluster: Option<Value>,
    /// The servers behind a gateway; none where the service is no gateway, or this client may not see them.
    pub(super) upstreams: Vec<Value>,
}

impl TopSample {
    pub(super) async fn take(service: &Service, limit: u16) -> Result<TopSample, CliError> {
        let page = service.json(&format!("/v1/sessions?limit={limit}")).await?;
        let upstreams = optional(service, "/v1/upstreams").await?;
        Ok(TopSample {
            total: page.get("total").and_then(Value::as_u64).unwrap_or(0),
            sessions: items(&page).to_vec(),
            stats: optional(service, "/v1/stats").await?,
            cluster: optional(service, "/v1/cluster").await?,
            upstreams: items(&upstreams.unwrap_or_default()).to_vec(),
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests(stats: Option<Value>, sessions: Vec<Value>) -> TopSample {
        TopSample {
            total: sessions.len() as u64,
            sessions,
            stats,
            cluster: None,
            upstreams: Vec::new(),
        }
    }

    /// Returns the look as one JSON object: of each series the newest value.
    pub(super) fn json(&self) -> Value {
        let mut look = json!({
            "total": self.total,
            "figures": newest(self.member("series")),
            "limits": self.member("limits"),
            "store": self.member("store"),
            "sessions": self.sessions,
        });
        if let Some(cluster) = &self.cluster {
            look["cluster"] = cluster.clone();
        }
        if !self.upstreams.is_empty() {
            look["upstreams"] = self.upstreams.clone().into();
        }
        look
    }

    fn member(&self, name: &str) -> &Value {
        let member = self.stats.as_ref().and_then(|stats| stats.get(name));
        member.unwrap_or(&Value::Null)
    }

    /// Returns the figures as lines.
    pub(super) fn figures(&self) -> Vec<String> {
        let Some(stats) = &self.stats else {
            let text = "no figures: they need metrics.enabled = true, and the right metrics or admin";
            return vec![format!("sessions {}", self.total), text.to_owned()];
        };
        let newest = newest(self.member("series"));
        let memory = number(&newest, "/rss").map(|bytes| bytes / f64::from(1 << 20));
        let cpu = number(&newest, "/cpu").map(|cores| cores * 100.0);
        let mut lines = vec![
            format!(
                "sessions {}   streams {}   subscriptions {}   stalled {}   memory {} MiB   CPU {} % of a core",
                self.total,
                shown(number(&newest, "/streams"), 0),
                shown(number(&newest, "/subscriptions"), 0),
                shown(number(&newest, "/stalled"), 0),
                shown(memory, 1),
                shown(cpu, 1),
            ),
            format!(
                "changes {}/s   told {}/s   conflated {}/s   delivery p50 {} ms p99 {} ms   fan-out p99 {} ms",
                shown(number(&newest, "/changes_per_s"), 1),
                shown(number(&newest, "/told_per_s"), 1),
                shown(number(&newest, "/conflated_per_s"), 1),
                shown(number(&newest, "/delivery_ms/p50"), 1),
                shown(number(&newest, "/delivery_ms/p99"), 1),
                shown(number(&newest, "/fan_out_ms/p99"), 1),
            ),
        ];
        lines.extend(store(stats));
        lines.extend(limits(stats));
        lines
    }
}

/// Returns the state of a server behind a gateway in a line.
pub(super) fn upstream(item: &Value) -> String {
    let text = |name| item.get(name).and_then(Value::as_str).unwrap_or("-");
    let count = |name| shown(item.get(name).and_then(Value::as_f64), 0);
    let is_down = text("state") == "down";
    let state = if is_down { "DOWN" } else { text("state") };
    let mut line = format!(
        "upstream {}   {state}   restarts {}   subscriptions {}   speakers {}   calls under way {}",
        text("name"),
        count("restarts"),
        count("subscriptions"),
        count("speakers"),
        count("inflight"),
    );
    if is_down {
        line += &format!("   {}", text("last_error"));
    }
    printable::line(&line).into_owned()
}

/// Says in a line that the store does not work.
fn store(stats: &Value) -> Option<String> {
    let store = stats.get("store")?;
    let state = store.get("state")?.as_str().filter(|state| *state != "ok")?;
    let mut line = format!("STORE {state}");
    if let Some(millis) = store.get("for_ms").and_then(Value::as_u64) {
        line += &format!(" for {}", age(millis));
    }
    if let Some(reason) = store.get("reason").and_then(Value::as_str) {
        line += &format!(": {reason}");
    }
    Some(printable::line(&line).into_owned())
}

/// Names the limits that were reached in the last 15 minutes.
fn limits(stats: &Value) -> Option<String> {
    let limits = stats.get("limits")?.as_object()?;
    let mut names = Vec::new();
    for (name, times) in limits {
        names.push(format!("{name} {} times", shown(times.as_f64(), 0)));
    }
    let line = format!("LIMITS reached within 15 minutes: {}", names.join(", "));
    (!names.is_empty()).then(|| printable::line(&line).into_owned())
}

/// Reads what a service may not have, or this client may have no right to; none then.
async fn optional(service: &Service, path: &str) -> Result<Option<Value>, CliError> {
    let answer = match service.send(service.request(Method::GET, path)).await {
        Ok(answer) if answer.status() == StatusCode::OK => answer,
        Ok(_) | Err(CliError::Denied(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let body = service.bytes(answer, STATS_BYTES_MAX).await?;
    // What is no JSON says nothing.
    Ok(serde_json::from_slice(&body).ok())
}

/// Returns the last value of each series.
fn newest(series: &Value) -> Value {
    match series {
        Value::Array(values) => values.last().cloned().unwrap_or_default(),
        Value::Object(members) => {
            let mut last = Map::new();
            for (name, values) in members {
                last.insert(name.clone(), newest(values));
            }
            Value::Object(last)
        }
        _ => Value::Null,
    }
}

fn number(newest: &Value, pointer: &str) -> Option<f64> {
    newest.pointer(pointer).and_then(Value::as_f64)
}

fn shown(value: Option<f64>, decimals: usize) -> String {
    match value {
        Some(value) => format!("{value:.decimals$}"),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_newest_of_each_series() {
        let stats = json!({
            "series": {"streams": [1.0, 2.0], "changes_per_s": [null, 4.25], "delivery_ms": {"p50": [null, 0.4], "p99": []}},
            "limits": {"session.max": 3.0},
            "store": {"state": "failing", "for_ms": 5_000, "reason": "full\u{1b}[2J\nFAKE"},
        });
        let sample = TopSample::for_tests(Some(stats), vec![json!({"id": "s1"})]);
        let lines = sample.figures();
        assert!(
            lines[0].starts_with("sessions 1   streams 2   subscriptions -   "),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("changes 4.2/s   told -/s"), "{lines:?}");
        assert!(lines[1].contains("delivery p50 0.4 ms p99 - ms"), "{lines:?}");
        assert_eq!(lines[2], "STORE failing for 5.0s: full [2J FAKE");
        assert_eq!(lines[3], "LIMITS reached within 15 minutes: session.max 3 times");
        let json = sample.json();
        assert_eq!(json["figures"]["delivery_ms"], json!({"p50": 0.4, "p99": null}));
        assert_eq!(json["sessions"][0]["id"], "s1");
    }

    #[test]
    fn missing_figures_are_named() {
        let sample = TopSample::for_tests(None, Vec::new());
        assert!(sample.figures()[1].starts_with("no figures: "));
        assert_eq!(sample.json()["figures"], Value::Null);
    }
}
