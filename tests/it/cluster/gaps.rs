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
#[derive(Debug, Default)]
pub(super) struct Answers(Vec<Instant>);

impl Answers {
    /// The longest time without an answer since `begin`, and its end.
    pub(super) fn longest_gap(&self, begin: Instant) -> Duration {
        let mut longest = Duration::ZERO;
        for pair in self.0.windows(2) {
            if pair[1] > begin {
                longest = longest.max(pair[1] - pair[0]);
            }
        }
        longest
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
            let mut answers = Answers::default();
            while !stopped.load(Ordering::Relaxed) {
                if attempt().await {
                    answers.0.push(Instant::now());
                }
                sleep(PAUSE).await;
            }
            answers
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
