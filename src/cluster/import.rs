//! Takes the content of a single node's store into an empty cluster: resources, versions and etags.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidings_actors::shared_log::{
    Heard, LogEntry, LoggedResource, OperationId, Proposal, SharedLog, Verdict,
};
use tidings_actors::{Checkpoint, KeptLine, Line, LineState, ResourceUri};
use tokio::sync::mpsc;

use super::NatsLog;

/// The time for which the log is waited for.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The time for which one entry is tried.
const ENTRY_TIMEOUT: Duration = Duration::from_secs(60);

/// The entries that are under way at a time.
const IN_FLIGHT: usize = 256;

/// The reason for which an import stopped. What it has written stays, and it can be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The log has something that the store has not.
    #[error("the cluster is not empty: {0} differs from the store; import into another cluster.namespace")]
    NotEmpty(String),
    /// No server answered.
    #[error("the log of the cluster was not read within {} s; check cluster.urls and the log of this command", OPEN_TIMEOUT.as_secs())]
    Unreachable,
    /// The log refuses an entry.
    #[error("{uri} was not imported: {reason}; repeat the import when that is mended")]
    Refused {
        /// The URI, or the part of the log.
        uri: String,
        /// The reason.
        reason: String,
    },
    /// The thread of the log cannot begin.
    #[error("the thread of the log cannot begin: {0}; check the limits of the process")]
    Thread(std::io::Error),
}

/// The numbers of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Resources with their content.
    pub resources: usize,
    /// Resources whose source publishes them again; their versions go on.
    pub of_sources: usize,
    /// Removed URIs, whose versions go on.
    pub removed: usize,
    /// Entries that an import before has written.
    pub known: usize,
}

/// Writes what a store kept into the empty log of a cluster. It must be called within a tokio runtime.
///
/// # Errors
/// [`ImportError`].
pub async fn import(log: NatsLog, kept: Checkpoint) -> Result<ImportReport, ImportError> {
    let (propose, proposals) = mpsc::channel(IN_FLIGHT);
    let (told, heard) = mpsc::channel(IN_FLIGHT);
    let thread = std::thread::Builder::new().name("tidings-import".to_owned());
    let running = thread.spawn(move || Box::new(log).run(proposals, told));
    let running = running.map_err(ImportError::Thread)?;
    let mut import = Import {
        propose,
        heard,
        boot: getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id())),
        next: 0,
        waiting: HashMap::new(),
    };
    let done = import.run(kept).await;
    // The log ends with its channels.
    drop(import);
    if tokio::task::spawn_blocking(move || running.join()).await.is_err() {
        tracing::debug!("the log did not end in order");
    }
    done
}

struct Import {
    propose: mpsc::Sender<Proposal>,
    heard: mpsc::Receiver<Heard>,
    boot: u64,
    /// The number of the next proposal.
    next: u64,
    /// The entries under way, with their names for messages.
    waiting: HashMap<OperationId, String>,
}

impl Import {
    async fn run(&mut self, kept: Checkpoint) -> Result<ImportReport, ImportError> {
        let (mut there, floor) = self.read().await?;
        let mut report = ImportReport::default();
        let mut missing = Vec::new();
        for line in kept.lines {
            let logged = logged(line, &mut report);
            match there.remove(&logged.uri) {
                None => missing.push(logged),
                Some(found) if found == logged.line => report.known += 1,
                Some(_) => return Err(ImportError::NotEmpty(logged.uri.to_string())),
            }
        }
        if let Some(uri) = there.keys().next() {
            return Err(ImportError::NotEmpty(uri.to_string()));
        }
        for logged in missing {
            let name = logged.uri.to_string();
            self.put(name, LogEntry::Resource(Box::new(logged))).await?;
        }
        if kept.floor > 0 {
            let entry = LogEntry::Floor {
                version: kept.floor,
                through: 0,
                previous: floor,
                uris: Vec::new(),
            };
            self.put_after(floor, "the floor of versions".to_owned(), entry)
                .await?;
        }
        // One change of the resource list, at the end of all.
        self.settle(0).await?;
        self.put("the resource list".to_owned(), LogEntry::ResourceList)
            .await?;
        self.settle(0).await?;
        Ok(report)
    }

    /// Reads the whole log. Returns its lines, and the sequence number of its floor.
    async fn read(&mut self) -> Result<(HashMap<ResourceUri, Line>, u64), ImportError> {
        let until = tokio::time::Instant::now() + OPEN_TIMEOUT;
        let mut there = HashMap::new();
        let mut floor = 0;
        loop {
            match tokio::time::timeout_at(until, self.heard.recv()).await {
                Ok(Some(Heard::CaughtUp)) => return Ok((there, floor)),
                // Another history: what was told before is no part of it.
                Ok(Some(Heard::Opened(_))) => {
                    there.clear();
                    floor = 0;
                }
                Ok(Some(Heard::Record { entry, sequence, .. })) => match entry {
                    LogEntry::Resource(logged) => {
                        there.insert(logged.uri, logged.line);
                    }
                    LogEntry::Floor { .. } => floor = sequence,
                    LogEntry::ResourceList => {}
                },
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Err(ImportError::Unreachable),
            }
        }
    }

    /// Proposes an entry, as soon as there is room.
    async fn put(&mut self, name: String, entry: LogEntry) -> Result<(), ImportError> {
        self.put_after(0, name, entry).await
    }

    /// Proposes an entry under the condition that the newest one at its place is `expected`.
    async fn put_after(&mut self, expected: u64, name: String, entry: LogEntry) -> Result<(), ImportError> {
        self.settle(IN_FLIGHT - 1).await?;
        self.next += 1;
        let operation = OperationId {
            node: self.boot,
            number: self.next,
        };
        let proposal = Proposal {
            operation,
            expected,
            entry,
            expires: Instant::now() + ENTRY_TIMEOUT,
        };
        self.waiting.insert(operation, name);
        match self.propose.send(proposal).await {
            Ok(()) => Ok(()),
            // Its thread ends only when it cannot begin.
            Err(_ended) => Err(ImportError::Unreachable),
        }
    }

    /// Waits until at most `left` entries are under way.
    async fn settle(&mut self, left: usize) -> Result<(), ImportError> {
        while self.waiting.len() > left {
            match self.heard.recv().await {
                Some(Heard::Record { operation, entry, .. }) => {
                    // Each URI is proposed once, so a record of another writer is one too many.
                    if self.waiting.remove(&operation).is_none()
                        && let LogEntry::Resource(logged) = entry
                    {
                        return Err(ImportError::NotEmpty(logged.uri.to_string()));
                    }
                }
                Some(Heard::Ended(operation, verdict)) => self.end(operation, verdict)?,
                Some(_) => {}
                None => return Err(ImportError::Unreachable),
            }
        }
        Ok(())
    }

    fn end(&mut self, operation: OperationId, verdict: Verdict) -> Result<(), ImportError> {
        let Some(uri) = self.waiting.remove(&operation) else {
            return Ok(());
        };
        let reason = match verdict {
            Verdict::Lost => return Err(ImportError::NotEmpty(uri)),
            Verdict::Refused { reason, .. } => reason.to_string(),
            Verdict::Unknown => "the log did not answer in time".to_owned(),
        };
        Err(ImportError::Refused { uri, reason })
    }
}

/// Makes the record of a line that was kept.
fn logged(kept: KeptLine, report: &mut ImportReport) -> LoggedResource {
    let KeptLine { uri, line, resource } = kept;
    let mut line = Line {
        offset: 0,
        unclaimed_since: None,
        ..line
    };
    match &resource {
        Some(_) => report.resources += 1,
        None if line.is_live() => report.of_sources += 1,
        None => report.removed += 1,
    }
    if resource.is_none() {
        // Nodes would take a live one without content for one that a callback reads.
        line.state = LineState::Removed;
        line.digest = None;
        line.owner = None;
    }
    LoggedResource {
        uri,
        line,
        resource: resource.map(std::sync::Arc::new),
        former: Vec::new(),
        announces: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_actors::{Etag, Owner, Resource};

    fn kept(resource: Option<Resource>, state: LineState) -> KeptLine {
        KeptLine {
            uri: ResourceUri::new("demo://a").unwrap(),
            line: Line {
                etag: "v7-9".parse::<Etag>().unwrap(),
                digest: None,
                state,
                offset: 12,
                owner: Some(Owner::Workspace),
                unclaimed_since: Some(3),
            },
            resource,
        }
    }

    #[test]
    fn content_goes_with_its_version() {
        let mut report = ImportReport::default();
        let resource = Resource::text("demo://a", "x").unwrap();
        let with = logged(kept(Some(resource), LineState::Live), &mut report);
        assert_eq!((with.line.etag.version, with.line.offset), (7, 0));
        assert!(with.line.is_live() && with.resource.is_some());
        assert_eq!(with.line.unclaimed_since, None);
        let without = logged(kept(None, LineState::Live), &mut report);
        assert_eq!((without.line.etag.version, without.line.is_live()), (7, false));
        let removed = logged(kept(None, LineState::Removed), &mut report);
        assert_eq!(removed.line.owner, None);
        let expected = ImportReport {
            resources: 1,
            of_sources: 1,
            removed: 1,
            known: 0,
        };
        assert_eq!(report, expected);
    }
}
