//! The time for which no change is taken: by the log itself, and by the nodes on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use serde_json::Value;
use tidings::wire::http1::HttpTarget;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::durability::Connection;

/// The time for which one answer is waited for.
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// The times at which something was answered.
#[derive(Debug)]
pub(super) struct Answers {
    at: Vec<Instant>,
    stopped: Instant,
}

impl Answers {
    /// The longest time without an answer since `begin`. A gap that lasts until the end counts, too.
    pub(super) fn longest_gap(&self, begin: Instant) -> Duration {
        let ends = self.at.iter().skip(1).chain([&self.stopped]);
        let gaps = self.at.iter().zip(ends).filter(|(_, end)| **end > begin);
        let longest = gaps.map(|(start, end)| *end - *start).max();
        longest.expect("an answer at the start")
    }

    /// The time from `begin` to the first answer after it.
    pub(super) fn first(&self, begin: Instant) -> Duration {
        let first = self.at.iter().find(|answer| **answer > begin);
        *first.expect("an answer") - begin
    }
}

/// Something that is tried again and again, until it is stopped.
pub(super) struct Tries {
    is_stopped: Arc<AtomicBool>,
    task: JoinHandle<Answers>,
}

impl Tries {
    fn start<F: Future<Output = bool> + Send + 'static>(
        mut attempt: impl FnMut() -> F + Send + 'static,
    ) -> Tries {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = is_stopped.clone();
        let task = tokio::spawn(async move {
            let mut at = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if attempt().await {
                    at.push(Instant::now());
                }
                sleep(PAUSE).await;
            }
            let stopped = Instant::now();
            Answers { at, stopped }
        });
        Tries { is_stopped, task }
    }

    /// Ends the tries, and returns their answers.
    pub(super) async fn stop(self) -> Answers {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Asks the leader of a log, at a server, to store a record under a condition that never holds, so that none
/// is stored. This is the compare-and-swap of JetStream without a node.
pub(super) async fn ask_log(url: String, namespace: &str) -> Tries {
    let client = async_nats::connect(url).await.unwrap();
    let subject = format!("tidings.{namespace}.r.{}", "f".repeat(32));
    Tries::start(move || {
        let client = client.clone();
        let subject = subject.clone();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, u32::MAX.to_string());
        async move {
            let request = client.request_with_headers(subject, headers, "".into());
            let Ok(Ok(answer)) = timeout(ANSWER_MAX, request).await else {
                return false;
            };
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            // The wrong last sequence, by its two codes: the leader has compared.
            matches!(answer["error"]["err_code"].as_u64(), Some(10071 | 10164))
        }
    })
}

/// Asks the leader of all streams, at a server, for the state of its account. Without this leader no consumer
/// can be made, so nothing can be read anew.
pub(super) async fn ask_streams(url: String) -> Tries {
    let client = async_nats::connect(url).await.unwrap();
    Tries::start(move || {
        let client = client.clone();
        async move {
            let request = client.request("$JS.API.INFO", "".into());
            let Ok(Ok(answer)) = timeout(ANSWER_MAX, request).await else {
                return false;
            };
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            answer["error"].is_null()
        }
    })
}

/// Changes a resource at one node again and again.
pub(super) fn put(target: HttpTarget, uri: String) -> Tries {
    let mut number = 0;
    Tries::start(move || {
        number += 1;
        let target = target.clone();
        let request = target.put_resource(&uri, &number.to_string());
        async move {
            match Connection::new(&target).ask(&request).await {
                Ok(answer) => answer.head.is_success(),
                Err(_) => false,
            }
        }
    })
}
