//! An observer of every record that one node tells, with its content. All observers must see the same etag
//! and content of a version, those that were answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tidings::wire::http1::HttpTarget;
use tidings::wire::sse::EventReader;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::account::Account;
use super::watcher::version;

/// Etag and content of each version of each resource, as far as they were told.
type Versions = BTreeMap<(String, u64), (String, Option<String>)>;

/// The versions that the observers of a run have seen.
#[derive(Debug, Default)]
pub(super) struct Observed {
    versions: Versions,
    /// The notices that were read.
    pub(super) notices: u64,
    faults: Vec<String>,
}

impl Observed {
    fn note(&mut self, event: &Value) {
        let (Some(uri), Some(etag)) = (event["uri"].as_str(), event["etag"].as_str()) else {
            return;
        };
        self.notices += 1;
        let text = event["text"].as_str().map(str::to_owned);
        let key = (uri.to_owned(), version(etag));
        match self.versions.get_mut(&key) {
            None => {
                self.versions.insert(key, (etag.to_owned(), text));
            }
            Some((before, content)) => {
                let differs = matches!((&text, &*content), (Some(text), Some(content)) if text != content);
                if before != etag || differs {
                    self.faults.push(format!(
                        "{uri}: {etag} with {text:?}, and {before} with {content:?}"
                    ));
                }
                *content = content.take().or(text);
            }
        }
    }

    /// Compares the notices with the answers.
    pub(super) fn judge(&mut self, account: &mut Account) {
        account.faults.append(&mut self.faults);
        for ((uri, _), (etag, content)) in &self.versions {
            account.observed(uri, etag, content.as_deref());
        }
    }
}

/// Observes a node, and comes back to it whenever it is lost.
pub(super) struct Observer(JoinHandle<()>);

impl Observer {
    pub(super) fn start(target: HttpTarget, observed: Arc<Mutex<Observed>>) -> Observer {
        Observer(tokio::spawn(async move {
            let mut last_id = None;
            loop {
                if let Err(error) = observe(&target, &mut last_id, &observed).await {
                    tracing::debug!(%error, "an observer lost its node");
                }
                sleep(Duration::from_millis(50)).await;
            }
        }))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn observe(
    target: &HttpTarget,
    last_id: &mut Option<String>,
    observed: &Mutex<Observed>,
) -> Result<(), reqwest::Error> {
    // The clients of these tests speak no TLS, but make their provider all the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    let url = format!(
        "http://{}/v1/events?body=1&kind=updated&kind=removed",
        target.address
    );
    let mut request = reqwest::Client::new().get(url);
    if let Some(id) = last_id {
        request = request.header("last-event-id", &*id);
    }
    let answer = request.send().await?.error_for_status()?;
    let mut parts = answer.bytes_stream();
    let mut events = EventReader::default();
    while let Some(part) = parts.next().await {
        let split = events.read(&part?, |event| {
            *last_id = event.id.map(str::to_owned).or(last_id.take());
            if let Ok(data) = serde_json::from_slice(event.data) {
                observed.lock().unwrap().note(&data);
            }
        });
        split.unwrap();
    }
    Ok(())
}
