//! Whether an answered change survives a loss of power of all servers, and the loss of one: from the stream
//! of the log, and from what the servers' monitoring reports.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::{Client, Response, redirect};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::cluster::SharedState;
use crate::http_client;
use crate::metrics::ClusterNodeMetrics;

/// The time between two looks, and between those until it is known.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The looks without a result after which a start says that it is not known.
const LOOKS_MAX: u32 = 3;

/// The time for which a server is waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest report of a server in bytes.
const REPORT_BYTES_MAX: usize = 256 << 10;

/// The copies of each record that survive the loss of one server.
const REPLICAS: usize = 3;

/// The first version that keeps its word with `sync_interval: always` on replicated streams.
const VERSION: (u32, u32) = (2, 15);

/// The answer, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Durability {
    Durable,
    NotDurable(String),
    Unknown(String),
}

impl Durability {
    /// Returns it as the API shows it.
    pub(super) fn shown(&self) -> Option<bool> {
        match self {
            Durability::Durable => Some(true),
            Durability::NotDurable(_) => Some(false),
            Durability::Unknown(_) => None,
        }
    }
}

/// The part of a server's report that matters.
#[derive(Debug, Clone, Deserialize)]
struct ServerReport {
    #[serde(default)]
    server_id: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    jetstream: JetStreamReport,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct JetStreamReport {
    #[serde(default)]
    config: Option<JetStreamConfig>,
}

#[derive(Debug, Clone, Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
}

/// Looks from now on, and warns once if the log is not known to be durable.
pub(super) fn follow(state: &SharedState, monitoring: Vec<String>) -> watch::Receiver<Durability> {
    let unknown = Durability::Unknown("the servers were not asked yet".to_owned());
    let (told, durability) = watch::channel(unknown);
    let state = state.clone();
    tokio::spawn(async move {
        let metrics = ClusterNodeMetrics::new();
        let mut looks = 0;
        let mut warned = None;
        while !told.is_closed() {
            let found = look(&state, &monitoring).await;
            metrics.durable.set(match found.shown() {
                Some(true) => 1.0,
                Some(false) => 0.0,
                None => -1.0,
            });
            looks += 1;
            // Servers that have just started may not answer yet.
            let is_early = found.shown().is_none() && looks < LOOKS_MAX && !monitoring.is_empty();
            if !is_early && warned.as_ref() != Some(&found) {
                tell(&found);
                warned = Some(found.clone());
            }
            let is_known = found.shown().is_some();
            told.send_replace(found);
            tokio::time::sleep(if is_known { LOOK_EVERY } else { LOOK_AGAIN }).await;
        }
    });
    durability
}

fn tell(found: &Durability) {
    match found {
        Durability::Durable => info!("the log of the cluster survives a loss of power of all servers"),
        Durability::NotDurable(reason) => warn!(
            %reason, "an answered change may be lost with the power of the servers, or with one of them"
        ),
        Durability::Unknown(reason) => warn!(
            %reason, "it is not known whether an answered change survives a loss of power of all servers"
        ),
    }
}

async fn look(state: &SharedState, monitoring: &[String]) -> Durability {
    let replicas = match state.log_replicas().await {
        Ok(Some(replicas)) => replicas,
        Ok(None) => return Durability::Unknown("the log is not made yet".to_owned()),
        Err(error) => return Durability::Unknown(error.to_string()),
    };
    // At once, since one that is down must not delay the others.
    let mut asked = JoinSet::new();
    for url in monitoring {
        let url = url.clone();
        asked.spawn(async move { ask(&url).await.map_err(|reason| format!("{url}: {reason}")) });
    }
    let mut reports = Vec::new();
    while let Some(report) = asked.join_next().await {
        reports.push(report.unwrap_or_else(|error| Err(error.to_string())));
    }
    judge(replicas, &reports)
}

/// Judges the copies of each record, and the reports of the servers.
fn judge(replicas: usize, reports: &[Result<ServerReport, String>]) -> Durability {
    let not = Durability::NotDurable;
    if replicas < REPLICAS {
        return not(format!(
            "the stream of the log has {replicas} replicas and needs {REPLICAS}"
        ));
    }
    let mut known = BTreeSet::new();
    for report in reports.iter().flatten() {
        let id = &report.server_id;
        let version = &report.version;
        match &report.jetstream.config {
            None => return not(format!("the server {id} has no JetStream")),
            Some(config) if !config.sync_always => {
                return not(format!("the server {id} has no sync_interval: always"));
            }
            Some(_) if !is_new_enough(version) => {
                return not(format!("the server {id} has version {version} and needs 2.15"));
            }
            Some(_) => known.insert(id),
        };
    }
    match reports.iter().find_map(|report| report.as_ref().err()) {
        Some(problem) => Durability::Unknown(format!("a server does not report: {problem}")),
        // Each copy may be on any of the servers, of which the others are not known.
        None if known.len() < replicas => Durability::Unknown(format!(
            "cluster.monitoring names {} servers, and each record has {replicas} copies",
            known.len()
        )),
        None => Durability::Durable,
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= VERSION,
        _ => false,
    }
}

async fn ask(url: &str) -> Result<ServerReport, String> {
    let client: Client = http_client::builder(url)
        .redirect(redirect::Policy::none())
        .timeout(REQUEST_TIMEOUT)
        .build()
        .map_err(|error| error.to_string())?;
    let sent = client
        .get(format!("{}/varz", url.trim_end_matches('/')))
        .send()
        .await;
    let answer = sent.map_err(|error| error.without_url().to_string())?;
    if !answer.status().is_success() {
        return Err(format!("it answers {}", answer.status()));
    }
    let text = body(answer).await?;
    serde_json::from_slice(&text).map_err(|error| format!("its report cannot be read: {error}"))
}

async fn body(mut answer: Response) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if text.len() + chunk.len() > REPORT_BYTES_MAX => {
                return Err(format!("its report has more than {REPORT_BYTES_MAX} bytes"));
            }
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) => return Ok(text),
            Err(error) => return Err(error.without_url().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(id: &str, version: &str, sync_always: bool) -> Result<ServerReport, String> {
        let config = json!({ "sync_interval": 120_000_000_000_u64, "sync_always": sync_always });
        let text = json!({ "server_id": id, "version": version, "jetstream": { "config": config } });
        Ok(serde_json::from_value(text).unwrap())
    }

    #[test]
    fn log_is_durable_if_every_server_is_known_to_sync() {
        let three = ["a", "b", "c"].map(|id| report(id, "2.15.0", true));
        assert_eq!(judge(3, &three), Durability::Durable);
        let newer = ["a", "b", "c"].map(|id| report(id, "3.0.1-rc.1", true));
        assert_eq!(judge(3, &newer), Durability::Durable);
        // Two addresses of one server say nothing of the others.
        let twice = ["a", "b", "b"].map(|id| report(id, "2.15.0", true));
        for unknown in [
            judge(3, &three[..2]),
            judge(3, &twice),
            judge(5, &three),
            judge(3, &[]),
        ] {
            assert_eq!(unknown.shown(), None, "{unknown:?}");
        }
        let silent = [report("a", "2.15.0", true), Err("it answers 404".to_owned())];
        assert!(matches!(judge(3, &silent), Durability::Unknown(reason) if reason.contains("404")));
    }

    #[test]
    fn one_weak_server_makes_the_log_weak() {
        let strong = || report("a", "2.15.0", true);
        for (weak, part) in [
            (report("b", "2.15.0", false), "sync_interval"),
            (report("b", "2.14.9", true), "2.14.9"),
            (report("b", "", true), "needs 2.15"),
            (
                Ok(serde_json::from_value(json!({ "server_id": "b" })).unwrap()),
                "JetStream",
            ),
        ] {
            let judged = judge(3, &[strong(), weak, Err("silent".to_owned())]);
            assert!(
                matches!(&judged, Durability::NotDurable(reason) if reason.contains(part)),
                "{judged:?}"
            );
        }
        let judged = judge(1, &[strong()]);
        assert!(matches!(&judged, Durability::NotDurable(reason) if reason.contains("1 replicas")));
    }
}
