//! Loss of power: the writes and syncs of a run are recorded, and for many moments of it the disk is made as
//! it may have been left. The service must start on each and have everything that was acknowledged before.

mod image;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::disk::DiskLayer;
use super::home::Home;
use super::kill::{Shared, URIS, Writer, uri};
use super::ledger::{State, version_of};
use super::{assert_kept, rounds, seed};
use crate::stress::Random;
use image::{Disk, Operation};

/// Requests of each writer in the recorded run.
const REQUESTS: usize = 60;
const WRITERS: u64 = 3;

/// A run whose writes were recorded.
struct Recording {
    operations: Vec<Operation>,
    /// The versions that were acknowledged, by URI, in the order of the marks in the log.
    acknowledged: Vec<BTreeMap<String, u64>>,
    versions: BTreeMap<(String, u64), State>,
    root: std::path::PathBuf,
    _folder: TempDir,
}

impl Recording {
    /// Writes to a service, and marks each answer in the log of its disk.
    async fn make() -> Recording {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut home = Home::new("");
        let root = home.data().to_owned();
        home.layer = Some(DiskLayer::over(&root, folder.path()).recording(&log));
        let life = home.start().await;
        let shared = Shared::default();
        let marks = Arc::new(Mutex::new(Marks {
            log: File::options().append(true).open(&log).unwrap(),
            acknowledged: Vec::new(),
        }));
        let mut random = Random::new(seed());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..WRITERS {
            let mut writer = Writer::new(&life, random.next(), &shared);
            let shared = shared.clone();
            let marks = marks.clone();
            tasks.spawn(async move {
                for _ in 0..REQUESTS {
                    writer.step().await.unwrap();
                    marks.lock().unwrap().mark(&shared);
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        life.end().await;
        let operations = image::read(&log);
        let versions = shared.lock().unwrap().versions();
        let violations = std::mem::take(&mut shared.lock().unwrap().violations);
        assert_kept(&violations);
        let acknowledged = std::mem::take(&mut marks.lock().unwrap().acknowledged);
        Recording {
            operations,
            acknowledged,
            versions,
            root,
            _folder: folder,
        }
    }

    /// Starts the service on the disk as it is left when the power fails at some moments.
    async fn fail_power(&self, moments: usize) -> Vec<String> {
        let mut random = Random::new(seed());
        let mut cuts: Vec<usize> = (0..moments)
            .map(|_| 1 + random.below(self.operations.len()))
            .collect();
        cuts.sort_unstable();
        let mut disk = Disk::new(&self.root);
        let mut done = 0;
        let mut acknowledged = BTreeMap::new();
        let mut violations = Vec::new();
        for cut in cuts {
            for operation in &self.operations[done..cut] {
                match operation {
                    Operation::Mark(number) => acknowledged = self.acknowledged[*number].clone(),
                    other => disk.apply(other),
                }
            }
            done = cut;
            let folder = tempfile::tempdir().unwrap();
            disk.write_image(folder.path(), &mut random);
            for fault in self.judge(folder.path(), &acknowledged).await {
                violations.push(format!("power lost after operation {cut}: {fault}"));
            }
        }
        violations
    }

    /// Starts the service on a disk that should have these versions or later ones.
    async fn judge(&self, data: &Path, acknowledged: &BTreeMap<String, u64>) -> Vec<String> {
        let mut home = Home::without_store("");
        home.set_data(data.to_owned());
        let life = match home.try_start().await {
            Ok(life) => life,
            Err(refusal) => return vec![format!("it does not start: {refusal}")],
        };
        let mut connection = life.connect();
        let mut faults = Vec::new();
        for number in 0..URIS {
            let uri = uri(number);
            let newest = acknowledged.get(&uri).copied().unwrap_or(0);
            let answer = connection.get(&uri).await.unwrap();
            let fault = match answer.head.etag().map(version_of) {
                Some(Ok(version)) if version >= newest => match self.versions.get(&(uri.clone(), version)) {
                    Some(State::Content(content)) => content.difference(&answer),
                    other => Some(format!("version {version}, which was {other:?}")),
                },
                Some(version) => Some(format!("version {version:?}")),
                None if self.may_be_absent(&uri, newest) => None,
                None => Some(format!("status {}", answer.head.status)),
            };
            if let Some(fault) = fault {
                faults.push(format!(
                    "{uri} was acknowledged at version {newest} and is now {fault}"
                ));
            }
        }
        life.kill().await;
        faults
    }

    /// Returns true if this version of a resource, or a later one, is a removal.
    fn may_be_absent(&self, uri: &str, newest: u64) -> bool {
        let from = (uri.to_owned(), newest);
        let to = (uri.to_owned(), u64::MAX);
        newest == 0
            || self
                .versions
                .range(from..=to)
                .any(|(_, state)| *state == State::Removed)
    }
}

/// The acknowledgements in the log of the disk.
struct Marks {
    log: File,
    acknowledged: Vec<BTreeMap<String, u64>>,
}

impl Marks {
    /// Adds what is acknowledged by now.
    fn mark(&mut self, shared: &Shared) {
        let newest = shared.lock().unwrap().newest();
        let record = image::mark(self.acknowledged.len());
        self.acknowledged.push(newest);
        self.log.write_all(&record).unwrap();
    }
}

#[tokio::test]
async fn power_loss_takes_nothing_acknowledged() {
    let recording = Recording::make().await;
    assert_kept(&recording.fail_power(20).await);
}

/// The model itself is put to the test: a service that never syncs loses what it acknowledged. Not at every
/// moment, since the disk may have kept by chance what it was not made to keep.
#[tokio::test]
async fn power_loss_without_syncs_is_found() {
    let mut recording = Recording::make().await;
    recording
        .operations
        .retain(|operation| !matches!(operation, Operation::Sync(_)));
    assert!(!recording.fail_power(20).await.is_empty());
}

#[tokio::test]
#[ignore = "1,000 moments, or DURABILITY_ROUNDS"]
async fn long() {
    let recording = Recording::make().await;
    let violations = recording.fail_power(rounds(1_000)).await;
    let operations = recording.operations.len();
    println!("{operations} operations, {} violations", violations.len());
    assert_kept(&violations);
}
