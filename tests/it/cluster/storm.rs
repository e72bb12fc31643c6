//! Storms: publishers change resources at all nodes and clients of all kinds follow them, while servers and
//! nodes are killed, stopped and cut off in a disorder that a seed repeats. At rest every client must know
//! the newest versions, the nodes must be equal, and every answered change must be there.
//!
//! The short form runs with all tests. The long one runs by command:
//! `CLUSTER_SECONDS=600 cargo test --all-features --test it long_cluster -- --ignored --nocapture`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::disturbance::Disturbance;
use super::observer::{Observed, Observer};
use super::publishers::{LANES, Publisher, Work};
use super::rest::{finals, settle, until_told};
use super::rig::{PATIENCE, Rig};
use super::watcher::{Watcher, WatcherKind};
use crate::durability::Connection;
use crate::support::number;

/// The time within which the nodes must be equal at rest.
const EQUAL_MAX: Duration = Duration::from_secs(2);

/// The size of a storm.
#[derive(Debug, Clone, Copy)]
struct Size {
    changes: u64,
    uris: usize,
    clients: usize,
    /// The resources that each client follows.
    each: usize,
    time: Duration,
    /// The time from one fault to the next.
    every: Duration,
}

/// The figures of a storm.
#[derive(Debug, Default)]
struct Report {
    answered: u64,
    refused: u64,
    unknown: u64,
    /// Records of the log, and the sum of the newest versions.
    records: (u64, u64),
    longest_change: Duration,
    /// The time until the nodes were equal, and until each client knew all finals.
    equal_after: Duration,
    finals_after: Duration,
    /// Finals that clients did not get.
    missing: Vec<String>,
    connections: u64,
    notices: u64,
    /// Notices of the etag of the notice before, by the kind of the client.
    repeats: BTreeMap<WatcherKind, u64>,
    /// Notices of an older version than that of a notice before.
    older: Vec<String>,
    /// The times that clients read everything, since they were told that notices are missing.
    readings: u64,
    observed: u64,
    faults: Vec<String>,
}

async fn run(namespace: &str, seed: u64, size: Size) -> Option<Report> {
    let mut rig = Rig::start(namespace).await?;
    let uris: Vec<String> = (0..size.uris).map(|number| format!("storm://{number}")).collect();
    let work = Work::new(rig.targets(), uris.clone(), size.changes, size.time);
    settle(&work, "at the start").await;
    let watchers = Watcher::start_all(&rig.targets(), &uris, (size.clients, size.each), seed);
    let observed = Arc::new(Mutex::new(Observed::default()));
    let mut observers = Vec::new();
    for target in rig.targets() {
        observers.push(Observer::start(target, observed.clone()));
    }
    let mut publishers = JoinSet::new();
    for number in 0..LANES {
        publishers.spawn(Publisher::new(&work, number, seed).run());
    }
    let mut disturbance = Disturbance::new(seed, size.every);
    let began = Instant::now();
    while began.elapsed() + size.every <= size.time {
        disturbance.disturb(&mut rig).await;
    }
    while let Some(ended) = publishers.join_next().await {
        ended.unwrap();
    }
    rig.until_ready().await;
    let again = Work::new(rig.targets(), uris.clone(), 0, Duration::ZERO);
    std::mem::swap(&mut *again.account(), &mut *work.account());
    settle(&again, "at rest").await;
    let rest = Instant::now();
    let (table, equal_after) = rig.until_equal().await;
    let mut report = Report {
        equal_after,
        longest_change: work.longest(),
        ..Report::default()
    };
    let told = until_told(&watchers, &finals(&table)).await;
    report.finals_after = rest.elapsed();
    report.missing = told;
    report.count(&watchers);
    judge(&rig, &again, &table, &mut report).await;
    let mut account = again.account();
    let mut observed = observed.lock().unwrap();
    observed.judge(&mut account);
    report.observed = observed.notices;
    report.faults = std::mem::take(&mut account.faults);
    for fault in &disturbance.done {
        eprintln!("{fault}");
    }
    Some(report)
}

/// Compares the answers with the log and its resources.
async fn judge(rig: &Rig, work: &Work, table: &str, report: &mut Report) {
    let mut finals = BTreeMap::new();
    let mut versions = 0;
    let mut connection = Connection::new(&rig.nodes[0].target());
    for line in table.lines() {
        let Some((uri, etag)) = line.split_once(' ') else {
            continue;
        };
        let answer = connection.get(uri).await.unwrap();
        let body = String::from_utf8(answer.body).unwrap();
        versions += super::watcher::version(etag);
        finals.insert(uri.to_owned(), (etag.to_owned(), body));
    }
    report.records = (rig.last_sequence().await, versions);
    let mut account = work.account();
    account.judge(&finals);
    report.answered = account.answered;
    report.refused = account.refused;
    report.unknown = account.unknown_count();
}

impl Report {
    /// Adds the notices of the clients.
    fn count(&mut self, watchers: &[Watcher]) {
        for watcher in watchers {
            let seen = watcher.seen();
            self.connections += seen.opened;
            self.notices += seen.notices;
            *self.repeats.entry(watcher.kind).or_default() += seen.repeats;
            self.readings += seen.readings;
            let older = seen.older.iter();
            self.older
                .extend(older.map(|notice| format!("{:?} {notice}", watcher.kind)));
        }
    }

    #[track_caller]
    fn assert_kept(&self, seed: u64) {
        assert_none(seed, "faults", &self.faults);
        assert_none(seed, "finals missing", &self.missing);
        assert_none(seed, "older versions told after newer ones", &self.older);
        let repeated: u64 = self.repeats.values().sum();
        assert_eq!(repeated, 0, "seed {seed}: told again: {:?}", self.repeats);
        assert!(
            self.equal_after < EQUAL_MAX,
            "seed {seed}: equal after {:?}",
            self.equal_after
        );
        // A record makes one version; beside them there are those that tell the list after a batch.
        let (records, versions) = self.records;
        assert!(
            records >= versions && records - versions <= self.answered / 20 + self.unknown,
            "seed {seed}: {records} records made {versions} versions"
        );
        assert!(self.observed > 0 && self.notices > 0, "{self:?}");
        // No change is repeated for longer than a publisher has patience.
        assert!(
            self.longest_change < PATIENCE,
            "seed {seed}: {:?}",
            self.longest_change
        );
    }
}

/// Fails with the first of these findings, if there are any.
#[track_caller]
fn assert_none(seed: u64, what: &str, found: &[String]) {
    let count = found.len();
    let first = &found[..count.min(10)];
    assert!(count == 0, "seed {seed}: {count} {what}:\n{}", first.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_of_faults_loses_no_final_and_no_answer() {
    let size = Size {
        changes: 3_000,
        uris: 200,
        clients: 30,
        each: 10,
        time: Duration::from_secs(20),
        every: Duration::from_secs(5),
    };
    let seed = number("CLUSTER_SEED", 1);
    let Some(report) = run("storm", seed, size).await else {
        return;
    };
    println!("{report:#?}");
    report.assert_kept(seed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as long as CLUSTER_SECONDS says"]
async fn long_cluster_storm() {
    let size = Size {
        changes: number("CLUSTER_CHANGES", 100_000),
        uris: number("CLUSTER_URIS", 2_000) as usize,
        clients: number("CLUSTER_CLIENTS", 300) as usize,
        each: number("CLUSTER_EACH", 20) as usize,
        time: Duration::from_secs(number("CLUSTER_SECONDS", 600)),
        every: Duration::from_secs(number("CLUSTER_EVERY", 15)),
    };
    let seed = number("CLUSTER_SEED", 1);
    let Some(report) = run("long-storm", seed, size).await else {
        return;
    };
    println!("seed {seed}: {report:#?}");
    report.assert_kept(seed);
}
