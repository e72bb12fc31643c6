//! Changes that a shared log takes until their deadline only, such as those of the holder of a lease.

use std::time::{Duration, Instant};

use super::{MemoryLog, Node, until};
use crate::model::{Change, Condition, Owner, PublishError, Resource};

const SOON: Duration = Duration::from_millis(200);

/// Puts a text by a burst, until `deadline`.
async fn put_until(node: &Node, text: &str, deadline: Instant) -> Result<u64, PublishError> {
    let burst = node.bus.owned_by(Owner::Api).burst();
    let change = Change::Upsert(Resource::text("demo://x", text).unwrap());
    let mut results = burst
        .update_many_until(vec![(change, Condition::Always)], deadline)
        .await?;
    results.remove(0).map(|outcome| outcome.etag.version)
}

fn is_refused(result: &Result<u64, PublishError>) -> bool {
    matches!(result, Err(PublishError::LogUnavailable { .. }))
}

#[tokio::test]
async fn change_is_made_before_its_deadline_and_not_after() {
    let log = MemoryLog::new();
    let node = Node::start(&log);
    let now = Instant::now();
    let hour = Duration::from_secs(3_600);
    assert_eq!(put_until(&node, "1", now + hour).await.unwrap(), 1);
    let late = put_until(&node, "2", now).await;
    assert!(is_refused(&late), "{late:?}");
    // Each burst tells the list when it is dropped, unless it hears before that another one has.
    until(|| log.len() >= 2).await;
    assert_eq!(node.text("demo://x").as_deref(), Some("1"));
    assert_eq!(node.etag("demo://x").unwrap().version, 1);
}

#[tokio::test]
async fn lost_change_is_not_made_again_after_its_deadline() {
    let log = MemoryLog::new();
    let [former, next] = [Node::start(&log), Node::start(&log)];
    let first = former.put("demo://x", "1").await.unwrap();
    next.until_etag("demo://x", first).await;
    // The former node does not hear that its turn is over, nor what the next one makes of the resource.
    former.line.is_deaf.send_replace(true);
    next.put("demo://x", "of the next").await.unwrap();
    let deadline = Instant::now() + SOON;
    let change = put_until(&former, "of the former", deadline);
    let wakes = async {
        until(|| Instant::now() > deadline).await;
        former.line.is_deaf.send_replace(false);
    };
    let (result, ()) = tokio::join!(change, wakes);
    assert!(is_refused(&result), "{result:?}");
    let etag = next.etag("demo://x").unwrap();
    assert_eq!(etag.version, 2);
    former.until_etag("demo://x", etag).await;
    assert_eq!(former.text("demo://x").as_deref(), Some("of the next"));
}

#[tokio::test]
async fn log_is_not_waited_for_after_the_deadline() {
    let log = MemoryLog::new();
    let node = Node::start(&log);
    node.put("demo://x", "1").await.unwrap();
    node.line.is_cut.send_replace(true);
    let begin = Instant::now();
    let result = put_until(&node, "2", begin + SOON).await;
    assert!(is_refused(&result), "{result:?}");
    // The log itself would be waited for for 20 s.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}
