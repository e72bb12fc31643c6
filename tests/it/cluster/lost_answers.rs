//! Acknowledgements that are lost between a server and a node: a change is made once all the same.

use std::time::Duration;

use tokio::task::JoinSet;

use super::link::AckLoss;
use super::publishers::{LANES, Publisher, Work};
use super::rest::settle;
use super::rig::Rig;
use super::watcher::version;
use crate::support::number;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_acknowledgements_make_no_version_twice() {
    let changes = number("CLUSTER_CHANGES", 2_000);
    let loss = AckLoss::new(5, 1);
    let Some(rig) = Rig::with("lost", "", Some(loss.clone())).await else {
        return;
    };
    let uris: Vec<String> = (0..50).map(|number| format!("lost://{number}")).collect();
    let work = Work::new(rig.targets(), uris, changes, Duration::ZERO);
    let mut publishers = JoinSet::new();
    for number in 0..LANES {
        publishers.spawn(Publisher::new(&work, number, 1).run_puts());
    }
    while let Some(ended) = publishers.join_next().await {
        ended.unwrap();
    }
    settle(&work, "at rest").await;
    let (table, _) = rig.until_equal().await;
    let versions: u64 = table
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, etag)| version(etag))
        .sum();
    let records = rig.last_sequence().await;
    let (passed, dropped) = loss.counts();
    let account = work.account();
    account.assert_kept();
    println!(
        "{dropped} of {} acknowledgements dropped, {records} records, {versions} versions, {} changes answered",
        passed + dropped,
        account.answered
    );
    assert!(dropped * 40 > passed, "{dropped} of {passed} were dropped");
    // Each change that was asked for made one version, and each version has one record.
    assert_eq!(account.unknown_count(), 0);
    assert_eq!((records, versions), (account.answered, account.answered));
}
