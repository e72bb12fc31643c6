//! The rest at the end of a run: every resource has a last content, and every client must learn of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::publishers::{LANES, Publisher, Work};
use super::rig::PATIENCE;
use super::watcher::Watcher;

/// Gives every resource a content that it did not have.
pub(super) async fn settle(work: &Arc<Work>, body: &str) {
    let mut tasks = JoinSet::new();
    for number in 0..LANES {
        let publisher = Publisher::new(work, number, 0);
        tasks.spawn(publisher.settle((number, LANES), body.to_owned()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// The etags of a table by their resources.
pub(super) fn finals(table: &str) -> BTreeMap<String, String> {
    let lines = table.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(uri, etag)| (uri.to_owned(), etag.to_owned()))
        .collect()
}

/// Waits until every client is connected and knows these etags; returns the etags that are missing at last.
pub(super) async fn until_told(watchers: &[Watcher], finals: &BTreeMap<String, String>) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let missing: Vec<String> = watchers
            .iter()
            .flat_map(|watcher| watcher.missing(finals))
            .collect();
        if missing.is_empty() || begin.elapsed() > PATIENCE {
            return missing;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
