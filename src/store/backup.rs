//! The text of a backup: one JSON object per line, so that it survives every change of the file's format and
//! can be read, compared and filtered with common tools.
//!
//! The first line is the header, the last has the counts and the SHA-256 of all lines before it; a backup
//! without it was cut off.

mod entry;

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidings_actors::{Life, ListHash, Record, StoreError};

use super::error::Fault;
use super::snapshot::Snapshot;
use entry::{ChangeEntry, Entry, ResourceEntry, hex128, list_record};

/// The format of the text.
const FORMAT: u64 = 1;

/// The reason for which a backup was not made, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backup cannot be read or written.
    #[error("the backup cannot be read or written: {0}")]
    Text(#[from] io::Error),
    /// The text is not a whole backup.
    #[error("line {line} of the backup {problem}")]
    Invalid {
        /// The number of the line, from 1.
        line: usize,
        /// The problem, as the rest of a sentence about the line.
        problem: String,
    },
}

/// An error of a backup that names no file yet.
#[derive(Debug)]
pub(super) enum Failure {
    Store(Fault),
    Text(io::Error),
}

impl Failure {
    pub(super) fn of(self, file: &std::path::Path) -> BackupError {
        match self {
            Failure::Store(fault) => BackupError::Store(fault.of(file)),
            Failure::Text(error) => BackupError::Text(error),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Store(fault)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Text(error)
    }
}

/// The numbers of entries in a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Lines of URIs.
    pub lines: u64,
    /// Lists.
    pub lists: u64,
    /// Changes in the change log.
    pub changes: u64,
    /// Cursors of attached subscribers.
    pub cursors: u64,
    /// Former lives.
    pub lives: u64,
}

/// Writes a state of the store to `out`.
pub(super) fn write(snapshot: &Snapshot, out: &mut dyn Write) -> Result<Counts, Failure> {
    let mut out = Lines {
        out,
        hash: Sha256::new(),
    };
    let mut counts = Counts::default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    out.write(&Entry::Header {
        format: FORMAT,
        time: now.unwrap_or_default().as_secs(),
        offset: snapshot.number("offset")?,
        floor: snapshot.number("floor")?,
    })?;
    for Life { epoch, end } in snapshot.lives()? {
        counts.lives += 1;
        out.write(&Entry::Life { epoch, end })?;
    }
    snapshot.each_line(|kept, _| {
        counts.lines += 1;
        out.write(&Entry::Resource(Box::new(ResourceEntry::of(kept))))
    })?;
    for (kind, ListHash(hash), offset) in snapshot.lists()? {
        counts.lists += 1;
        out.write(&Entry::List {
            kind: kind.name().to_owned(),
            hash: hex128(hash),
            offset,
        })?;
    }
    snapshot.each_change(|logged| {
        counts.changes += 1;
        out.write(&Entry::Change {
            offset: logged.offset,
            change: ChangeEntry::of(logged.change),
        })
    })?;
    for (name, offset) in snapshot.cursors()? {
        counts.cursors += 1;
        let name = name.to_string();
        out.write(&Entry::Cursor { name, offset })?;
    }
    let sha256 = hex(&out.hash.clone().finalize());
    out.write(&Entry::End { counts, sha256 })?;
    // A backup counts as made only if its last line has left the buffer.
    out.out.flush()?;
    Ok(counts)
}

/// Writes lines, and hashes them.
struct Lines<'w> {
    out: &'w mut dyn Write,
    hash: Sha256,
}

impl Lines<'_> {
    fn write(&mut self, entry: &Entry) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(entry).map_err(io::Error::from)?;
        line.push(b'\n');
        self.hash.update(&line);
        self.out.write_all(&line)?;
        Ok(())
    }
}

/// The numbers of the first line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) offset: u64,
    pub(super) floor: u64,
}

/// One entry between the first line and the last.
#[derive(Debug)]
pub(super) enum Restored {
    Life(Life),
    Record(Record),
}

/// Reads a backup line by line.
pub(super) struct Reader<'r> {
    input: &'r mut dyn BufRead,
    hash: Sha256,
    line: usize,
    counts: Counts,
}

impl<'r> Reader<'r> {
    /// Begins to read, and returns the header.
    pub(super) fn begin(input: &'r mut dyn BufRead) -> Result<(Reader<'r>, Header), BackupError> {
        let mut reader = Reader {
            input,
            hash: Sha256::new(),
            line: 0,
            counts: Counts::default(),
        };
        match reader.entry()? {
            // An older format can be read; a newer one may have entries whose meaning is lost.
            Entry::Header { format, .. } if format > FORMAT => Err(reader.invalid(format!(
                "has format {format}, which is newer than this version knows"
            ))),
            Entry::Header { offset, floor, .. } => Ok((reader, Header { offset, floor })),
            _ => Err(reader.invalid("is not the header of a backup")),
        }
    }

    /// Returns the next entry; none at the last line, if all lines before it are as they were written.
    pub(super) fn next(&mut self) -> Result<Option<Restored>, BackupError> {
        // Taken before the line is read, as the last line has the hash of all lines before it.
        let before = hex(&self.hash.clone().finalize());
        let entry = self.entry()?;
        let record = match entry {
            Entry::Header { .. } => return Err(self.invalid("is a second header")),
            Entry::Life { epoch, end } => {
                self.counts.lives += 1;
                return Ok(Some(Restored::Life(Life { epoch, end })));
            }
            Entry::Resource(entry) => {
                self.counts.lines += 1;
                entry.into_record()
            }
            Entry::List { kind, hash, offset } => {
                self.counts.lists += 1;
                list_record(&kind, &hash, offset)
            }
            Entry::Change { offset, change } => {
                self.counts.changes += 1;
                change.into_record(offset)
            }
            Entry::Cursor { name, offset } => {
                self.counts.cursors += 1;
                Ok(Record::Cursor(name.into(), Some(offset)))
            }
            Entry::End { counts, sha256 } => {
                if counts != self.counts || sha256 != before {
                    return Err(self.invalid("has another checksum: lines before it were altered or lost"));
                }
                return Ok(None);
            }
        };
        match record {
            Ok(record) => Ok(Some(Restored::Record(record))),
            Err(problem) => Err(self.invalid(problem)),
        }
    }

    /// The numbers of entries that were read.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    fn entry(&mut self) -> Result<Entry, BackupError> {
        let mut line = Vec::new();
        self.line += 1;
        self.input.read_until(b'\n', &mut line)?;
        // Every backup has a last line, so the end of the input comes too early here.
        if line.is_empty() {
            return Err(self.invalid("is missing: the backup was cut off"));
        }
        self.hash.update(&line);
        match serde_json::from_slice(&line) {
            Ok(entry) => Ok(entry),
            Err(error) => Err(self.invalid(format!("cannot be read: {error}"))),
        }
    }

    fn invalid(&self, problem: impl Into<String>) -> BackupError {
        BackupError::Invalid {
            line: self.line,
            problem: problem.into(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
