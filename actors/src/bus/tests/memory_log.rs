//! A log in memory that several buses of one process share, with the faults of a real one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::model::ResourceUri;
use crate::shared_log::{Heard, LogEntry, LogHealth, LogHistory, OperationId, Proposal, SharedLog, Verdict};

struct Records {
    history: LogHistory,
    sequence: u64,
    records: BTreeMap<u64, (OperationId, LogEntry)>,
    newest: HashMap<ResourceUri, u64>,
    operations: HashSet<OperationId>,
    floor: u64,
    /// Grows when nodes must read everything again.
    reread: u64,
    /// The proposals that came after another record of their URI.
    refused: usize,
}

/// The log. Clones share their records; each run of one is a node.
#[derive(Clone)]
pub(super) struct MemoryLog {
    records: Arc<Mutex<Records>>,
    changed: watch::Sender<u64>,
}

/// A node's way to the log, with its faults.
#[derive(Clone)]
pub(super) struct Line {
    log: MemoryLog,
    /// Tells nothing while true.
    pub(super) is_deaf: watch::Sender<bool>,
    /// Ends the thread of the log once true.
    pub(super) dies: watch::Sender<bool>,
    /// Takes no proposals while true.
    pub(super) is_cut: watch::Sender<bool>,
    timeout: Duration,
}

impl MemoryLog {
    pub(super) fn new() -> MemoryLog {
        let records = Records {
            history: LogHistory {
                epoch: 1,
                began: 1_000,
            },
            sequence: 0,
            records: BTreeMap::new(),
            newest: HashMap::new(),
            operations: HashSet::new(),
            floor: 0,
            reread: 0,
            refused: 0,
        };
        MemoryLog {
            records: Arc::new(Mutex::new(records)),
            changed: watch::channel(0).0,
        }
    }

    pub(super) fn line(&self, timeout: Duration) -> Line {
        Line {
            log: self.clone(),
            is_deaf: watch::channel(false).0,
            dies: watch::channel(false).0,
            is_cut: watch::channel(false).0,
            timeout,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap()
    }

    /// The number of records that were taken in this history.
    pub(super) fn len(&self) -> u64 {
        self.lock().sequence
    }

    /// The number of proposals that came after another record of their URI.
    pub(super) fn refused(&self) -> usize {
        self.lock().refused
    }

    /// Puts a copy of the log back that ends at this sequence number; at 0 it is made anew.
    pub(super) fn restore_to(&self, sequence: u64) {
        let mut records = self.lock();
        records.history.epoch += 1;
        records.history.began += 10;
        records.sequence = sequence;
        records.records.split_off(&(sequence + 1));
        let kept: HashMap<_, _> = records
            .records
            .iter()
            .filter_map(|(at, (_, entry))| match entry {
                LogEntry::Resource(logged) => Some((logged.uri.clone(), *at)),
                _ => None,
            })
            .collect();
        records.newest = kept;
        drop(records);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Removes the record at this place, if it is there.
    pub(super) fn purge(&self, uri: &ResourceUri, sequence: u64) -> bool {
        let mut records = self.lock();
        let is_newest = records.newest.get(uri) == Some(&sequence);
        if is_newest {
            records.newest.remove(uri);
            records.records.remove(&sequence);
        }
        is_newest
    }

    /// Lets every node read everything again, as one that has missed a floor does.
    pub(super) fn reread(&self) {
        self.lock().reread += 1;
        self.changed.send_modify(|count| *count += 1);
    }

    /// Takes a proposal, or returns the sequence number of the record that came first.
    fn take(&self, proposal: Proposal) -> Result<(), u64> {
        let mut records = self.lock();
        if !records.operations.insert(proposal.operation) {
            return Ok(());
        }
        if let LogEntry::Resource(logged) = &proposal.entry {
            let newest = records.newest.get(&logged.uri).copied().unwrap_or(0);
            if newest != proposal.expected {
                records.refused += 1;
                records.operations.remove(&proposal.operation);
                return Err(newest);
            }
            let next = records.sequence + 1;
            records.newest.insert(logged.uri.clone(), next);
            // Like a real log, it keeps the newest record of each URI.
            records.records.remove(&newest);
        }
        if let LogEntry::Floor { previous, .. } = &proposal.entry {
            let newest = records.floor;
            let expected = proposal.expected;
            assert_eq!(*previous, expected);
            if newest != expected {
                records.operations.remove(&proposal.operation);
                return Err(newest);
            }
            records.records.remove(&newest);
            records.floor = records.sequence + 1;
        }
        records.sequence += 1;
        let sequence = records.sequence;
        records
            .records
            .insert(sequence, (proposal.operation, proposal.entry));
        drop(records);
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }
}

/// One run of a node.
struct Run {
    line: Line,
    history: Option<LogHistory>,
    reread: u64,
    told: u64,
    lost: Vec<(OperationId, u64)>,
    unanswered: Vec<Proposal>,
    heard: mpsc::Sender<Heard>,
}

impl Run {
    async fn tell(&mut self) -> Result<(), mpsc::error::SendError<Heard>> {
        if *self.line.is_deaf.borrow() {
            return Ok(());
        }
        let (history, last, reread) = {
            let records = self.line.log.lock();
            (records.history, records.sequence, records.reread)
        };
        let opens = self.history != Some(history) || self.reread != reread;
        if opens {
            self.history = Some(history);
            self.reread = reread;
            self.told = 0;
            self.heard.send(Heard::Opened(history)).await?;
        }
        let news: Vec<_> = {
            let records = self.line.log.lock();
            let news = records
                .records
                .range((Bound::Excluded(self.told), Bound::Included(last)));
            news.map(|(sequence, (operation, entry))| (*sequence, *operation, entry.clone()))
                .collect()
        };
        for (sequence, operation, entry) in news {
            self.heard
                .send(Heard::Record {
                    sequence,
                    operation,
                    entry,
                })
                .await?;
        }
        self.told = last;
        if opens {
            self.heard.send(Heard::CaughtUp).await?;
        }
        let told = self.told;
        for (operation, _) in self.lost.extract_if(.., |(_, first)| *first <= told) {
            self.heard.send(Heard::Ended(operation, Verdict::Lost)).await?;
        }
        Ok(())
    }

    async fn expire(&mut self) -> Result<(), mpsc::error::SendError<Heard>> {
        let now = Instant::now();
        for proposal in self.unanswered.extract_if(.., |proposal| proposal.expires <= now) {
            let unknown = Heard::Ended(proposal.operation, Verdict::Unknown);
            self.heard.send(unknown).await?;
        }
        Ok(())
    }

    fn propose(&mut self, proposal: Proposal) {
        if *self.line.is_cut.borrow() {
            return self.unanswered.push(proposal);
        }
        let operation = proposal.operation;
        if let Err(first) = self.line.log.take(proposal) {
            self.lost.push((operation, first));
        }
    }

    async fn serve(
        mut self,
        mut proposals: mpsc::Receiver<Proposal>,
    ) -> Result<(), mpsc::error::SendError<Heard>> {
        let mut changed = self.line.log.changed.subscribe();
        let mut deaf = self.line.is_deaf.subscribe();
        self.heard.send(Heard::Health(LogHealth::Connected)).await?;
        loop {
            self.tell().await?;
            self.expire().await?;
            if *self.line.dies.borrow() {
                return Ok(());
            }
            tokio::select! {
                proposal = proposals.recv() => match proposal {
                    Some(proposal) => self.propose(proposal),
                    None => return Ok(()),
                },
                _ = changed.changed() => {}
                _ = deaf.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    }
}

impl SharedLog for Line {
    fn position_epoch(&self) -> u64 {
        77
    }

    fn publish_timeout(&self) -> Duration {
        self.timeout
    }

    fn run(self: Box<Self>, proposals: mpsc::Receiver<Proposal>, heard: mpsc::Sender<Heard>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let run = Run {
            line: *self,
            history: None,
            reread: 0,
            told: 0,
            lost: Vec::new(),
            unanswered: Vec::new(),
            heard,
        };
        if let Err(error) = runtime.block_on(run.serve(proposals)) {
            // The bus ended: nothing hears any more.
            tracing::debug!(%error, "the log ends");
        }
    }
}
