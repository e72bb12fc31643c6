//! Reads of the latest state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::memory_log::MemoryLog;
use super::{Node, TIMEOUT, until};
use crate::bus::Bus;
use crate::model::BoxFuture;

#[tokio::test]
async fn read_waits_until_this_node_has_what_the_log_has() {
    let log = MemoryLog::new();
    let a = Node::start(&log);
    let line = log.line(TIMEOUT);
    let fails = Arc::new(AtomicBool::new(false));
    let asked = log.clone();
    let is_failing = fails.clone();
    let bus = Bus::builder()
        .shared_log(line.clone())
        .read_latest(Arc::new(move || {
            let answer = match is_failing.load(Ordering::Relaxed) {
                true => Err("nobody leads".to_owned()),
                false => Ok(asked.len()),
            };
            Box::pin(std::future::ready(answer)) as BoxFuture<_>
        }))
        .start()
        .unwrap();
    let b = Node { bus, line };
    assert!(b.bus.reads_latest() && !a.bus.reads_latest());
    for text in ["1", "2", "3"] {
        let etag = a.put("demo://x", text).await.unwrap();
        b.bus.until_latest().await.unwrap();
        assert_eq!(b.etag("demo://x"), Some(etag));
    }
    b.line.is_deaf.send_replace(true);
    let etag = a.put("demo://x", "4").await.unwrap();
    let hearing = b.line.is_deaf.clone();
    let waiting = tokio::spawn({
        let bus = b.bus.clone();
        async move { bus.until_latest().await }
    });
    until(|| log.len() == 4).await;
    assert!(!waiting.is_finished(), "it does not have the record");
    hearing.send_replace(false);
    waiting.await.unwrap().unwrap();
    assert_eq!(b.etag("demo://x"), Some(etag));
    fails.store(true, Ordering::Relaxed);
    let error = b.bus.until_latest().await.unwrap_err().to_string();
    assert!(error.contains("nobody leads"), "{error}");
    assert!(a.bus.until_latest().await.is_ok());
}
