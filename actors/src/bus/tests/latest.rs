//! Reads of the latest state.

use super::memory_log::MemoryLog;
use super::{Node, Questions, TIMEOUT, until};

#[tokio::test]
async fn read_waits_until_this_node_has_what_the_log_has() {
    let log = MemoryLog::new();
    let a = Node::start(&log);
    let questions = Questions::default();
    let b = Node::with(&log, TIMEOUT, |builder| {
        builder.ask_newest(questions.of(&log)).read_latest()
    });
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
    questions.fail(true);
    let error = b.bus.until_latest().await.unwrap_err().to_string();
    assert!(error.contains("nobody leads"), "{error}");
    assert!(a.bus.until_latest().await.is_ok());
}
