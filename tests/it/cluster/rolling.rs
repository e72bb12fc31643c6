//! Nodes that are restarted one after the other while they are used.

use std::time::Duration;

use tokio::task::JoinSet;

use super::publishers::{LANES, Publisher, Work};
use super::rest::{finals, settle, until_told};
use super::rig::{COUNT, Rig};
use super::watcher::Watcher;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_loses_no_final_and_repeats_no_list() {
    let Some(mut rig) = Rig::start("rolling").await else {
        return;
    };
    let uris: Vec<String> = (0..60).map(|number| format!("rolling://{number}")).collect();
    // Enough for as long as three restarts take.
    let work = Work::new(rig.targets(), uris.clone(), 1_500, Duration::from_secs(15));
    settle(&work, "at the start").await;
    let watchers = Watcher::start_all(&rig.targets(), &uris, (15, 8), 1);
    let (table, _) = rig.until_equal().await;
    assert!(until_told(&watchers, &finals(&table)).await.is_empty());
    let mut publishers = JoinSet::new();
    for number in 0..LANES {
        publishers.spawn(Publisher::new(&work, number, 1).run_puts());
    }
    for number in 0..COUNT {
        rig.nodes[number].end();
        rig.nodes[number].run();
        rig.nodes[number].until_ready().await;
    }
    assert!(!publishers.is_empty(), "the load ended before the restarts");
    while let Some(ended) = publishers.join_next().await {
        ended.unwrap();
    }
    settle(&work, "at rest").await;
    let (table, equal_after) = rig.until_equal().await;
    let missing = until_told(&watchers, &finals(&table)).await;
    assert!(missing.is_empty(), "{missing:#?}");
    work.account().assert_kept();
    let lists_max = watchers.iter().map(|watcher| watcher.seen().lists_max).max();
    println!(
        "equal after {equal_after:?}; the longest change took {:?}; at most {lists_max:?} notices of a list",
        work.longest()
    );
    // A session is told once that there is a list; no list changed since.
    assert_eq!(lists_max, Some(1));
}
