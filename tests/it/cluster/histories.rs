//! All servers gone and back; a log that is deleted, or restored from an older copy, while it is used. No
//! client is disconnected, all are told soon, and no version goes backward.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::gaps;
use super::publishers::{LANES, Publisher, Work};
use super::rest::{finals, settle, until_told};
use super::rig::{COUNT, Rig};
use super::watcher::{Watcher, version};

const URIS: usize = 60;
const CLIENTS: usize = 15;
/// The resources that each client follows.
const EACH: usize = 8;

/// The time within which clients are told of another history.
const TOLD_MAX: Duration = Duration::from_secs(5);

/// The time for which servers that were all away may need until they take changes again: an election, and
/// some time for a busy machine.
const BACK_MAX: Duration = Duration::from_secs(20);

/// A cluster with contents and clients that know them.
struct Course {
    rig: Rig,
    uris: Vec<String>,
    watchers: Vec<Watcher>,
}

impl Course {
    async fn start(namespace: &str) -> Option<Course> {
        let rig = Rig::start(namespace).await?;
        let uris: Vec<String> = (0..URIS).map(|number| format!("history://{number}")).collect();
        let mut course = Course {
            rig,
            uris,
            watchers: Vec::new(),
        };
        course.change(200).await;
        let targets = course.rig.targets();
        course.watchers = Watcher::start_all(&targets, &course.uris, (CLIENTS, EACH), 1);
        course.told().await;
        Some(course)
    }

    /// Makes changes, and gives every resource a content.
    async fn change(&self, changes: u64) {
        let work = Work::new(self.rig.targets(), self.uris.clone(), changes, Duration::ZERO);
        let mut publishers = JoinSet::new();
        for number in 0..LANES {
            publishers.spawn(Publisher::new(&work, number, changes).run_puts());
        }
        while let Some(ended) = publishers.join_next().await {
            ended.unwrap();
        }
        settle(&work, &format!("after {changes} changes")).await;
    }

    /// Waits until the nodes are equal and all clients know it; returns the etags.
    async fn told(&self) -> BTreeMap<String, String> {
        let (table, _) = self.rig.until_equal().await;
        let finals = finals(&table);
        let missing = until_told(&self.watchers, &finals).await;
        assert!(missing.is_empty(), "{missing:#?}");
        finals
    }

    /// The number of connections that clients have opened.
    fn opened(&self) -> u64 {
        self.watchers.iter().map(|watcher| watcher.seen().opened).sum()
    }

    /// The epoch of the log's history at a node.
    async fn epoch(&self, node: usize) -> u64 {
        self.rig.nodes[node].cluster().await["epoch"]
            .as_u64()
            .unwrap_or(0)
    }

    /// Waits until all nodes read a history after this one, and have read it.
    async fn until_after(&self, epoch: u64) -> Duration {
        let begin = Instant::now();
        for node in &self.rig.nodes {
            node.until("it reads the new history", async |node| {
                let report = node.cluster().await;
                report["epoch"].as_u64() > Some(epoch) && report["caughtUp"] == true
            })
            .await;
        }
        begin.elapsed()
    }
}

/// Fails if a version went backward, or an etag names another version.
#[track_caller]
fn assert_not_back(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
    for (uri, etag) in before {
        let now = &after[uri];
        assert!(version(now) >= version(etag), "{uri} went from {etag} to {now}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn death_of_all_servers_disconnects_no_client() {
    let Some(mut course) = Course::start("all").await else {
        return;
    };
    let before = course.told().await;
    let opened = course.opened();
    for number in 0..COUNT {
        course.rig.brokers.kill(number);
    }
    // The applied state is served meanwhile, and a change is refused in time.
    let begin = Instant::now();
    let refused = course.rig.nodes[0].put("history://0", "meanwhile").await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    let read = course.rig.nodes[1].get("history://0").await;
    assert_eq!(read.status, 200, "{}", read.text);
    for number in 0..COUNT {
        course.rig.brokers.up(number);
    }
    let begin = Instant::now();
    course.rig.until_ready().await;
    let back = begin.elapsed();
    println!("ready {back:?} after the return of all servers");
    assert!(back < BACK_MAX, "{back:?}");
    course.change(100).await;
    assert_not_back(&before, &course.told().await);
    assert_eq!(course.opened(), opened, "a client was disconnected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_log_begins_anew_without_a_step_back() {
    let Some(course) = Course::start("deleted").await else {
        return;
    };
    let before = course.told().await;
    let opened = course.opened();
    let epoch = course.epoch(0).await;
    let begin = Instant::now();
    let context = course.rig.context(0).await;
    context.delete_stream(course.rig.stream()).await.unwrap();
    course.until_after(epoch).await;
    let told = begin.elapsed();
    println!("another history was told after {told:?}");
    assert!(told < TOLD_MAX, "{told:?}");
    let after = course.told().await;
    assert_eq!(after, before, "every node knew all of it");
    course.change(100).await;
    let last = course.told().await;
    assert_not_back(&before, &last);
    assert_eq!(course.opened(), opened, "a client was disconnected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_deleted_under_load_leaves_no_client_behind() {
    let Some(course) = Course::start("deleting").await else {
        return;
    };
    let before = course.told().await;
    let epoch = course.epoch(0).await;
    let context = course.rig.context(0).await;
    let stream = course.rig.stream();
    let deleted = async {
        sleep(Duration::from_secs(1)).await;
        context.delete_stream(stream).await.unwrap();
        course.until_after(epoch).await
    };
    let (told, ()) = tokio::join!(deleted, course.change(1_500));
    println!("another history was told after {told:?}");
    assert!(told < TOLD_MAX, "{told:?}");
    assert_not_back(&before, &course.told().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_copy_is_told_and_takes_no_version_back() {
    let Some(mut course) = Course::start("restored").await else {
        return;
    };
    for number in 0..COUNT {
        course.rig.brokers.kill(number);
    }
    course.rig.brokers.copy_stores("copy");
    for number in 0..COUNT {
        course.rig.brokers.up(number);
    }
    course.rig.until_ready().await;
    // The copy lacks these.
    course.change(300).await;
    let before = course.told().await;
    let opened = course.opened();
    let epoch = course.epoch(0).await;
    for number in 0..COUNT {
        course.rig.brokers.kill(number);
    }
    course.rig.brokers.restore_stores("copy");
    for number in 0..COUNT {
        course.rig.brokers.up(number);
    }
    let begin = Instant::now();
    let log = gaps::ask_log(course.rig.brokers.url(0), "restored").await;
    course.rig.until_ready().await;
    course.until_after(epoch).await;
    let told = begin.elapsed();
    // The servers elect a leader first, before which there is no log that could be compared.
    let elected = log.stop().await.first(begin);
    println!("the copy was told after {told:?}; the log was there after {elected:?}");
    assert!(told < BACK_MAX, "{told:?}");
    let beyond = told.saturating_sub(elected);
    assert!(beyond < TOLD_MAX, "{beyond:?}");
    let after = course.told().await;
    assert_eq!(after, before, "every node knew what the copy lacks");
    course.change(100).await;
    assert_not_back(&before, &course.told().await);
    assert_eq!(course.opened(), opened, "a client was disconnected");
}
