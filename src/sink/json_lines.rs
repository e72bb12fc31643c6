//! A JSON-lines file that every notice is written to: one object per line.
//!
//! Owns: the numbering of the lines, which goes on from the last line of the file. Never: drops a line that could not
//! be written; the bus keeps it and hands it over again. Receives deliveries from the bus; writes an [`AppendFile`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tidings_actors::attach::{Delivery, Subscriber, SubscriberError};

use super::append_file::{AppendFile, FileOptions, Fsync};
use super::record::Record;

/// A journal: a [`FileOptions`] under the name that says what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonLinesOptions {
    /// The file, its rotation, and when it is brought to the disk.
    pub file: FileOptions,
}

impl JsonLinesOptions {
    /// The file at `path`, with the defaults.
    pub fn new(path: impl Into<PathBuf>) -> JsonLinesOptions {
        JsonLinesOptions {
            file: FileOptions::new(path),
        }
    }

    /// How often [`Subscriber::idle`] must be called for lines to reach the disk in time, for
    /// [`AttachOptions::idle_every`](tidings_actors::attach::AttachOptions::idle_every).
    pub fn idle_every(&self) -> Duration {
        let most = Duration::from_secs(1);
        match self.file.fsync {
            Fsync::Interval(every) => every.min(most),
            _ => most,
        }
    }
}

/// Writes each delivery to a file.
#[derive(Debug)]
pub struct JsonLines {
    file: AppendFile,
    seq: u64,
    /// The line that is handed over again.
    held: Option<Vec<u8>>,
}

/// What is read back of a line.
#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

impl JsonLines {
    /// Opens the file. A line that a crash left half written is cut off; the numbers go on from the last line.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] when the file cannot be opened, so that the bus tries again.
    pub fn open(options: &JsonLinesOptions) -> Result<JsonLines, SubscriberError> {
        let path = &options.file.path;
        let file = AppendFile::open(options.file.clone()).map_err(|error| failed(path, "opened", &error))?;
        let last = file.last_line().map_err(|error| failed(path, "read", &error))?;
        let last = last.and_then(|line| serde_json::from_slice::<Numbered>(&line).ok());
        Ok(JsonLines {
            file,
            seq: last.map_or(0, |line| line.seq),
            held: None,
        })
    }
}

pub(super) fn failed(path: &Path, what: &str, error: &std::io::Error) -> SubscriberError {
    SubscriberError::Again(format!("{} cannot be {what}: {error}", path.display()))
}

impl Subscriber for JsonLines {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        let line = match self.held.take() {
            Some(line) => line,
            None => match Record::of(delivery, self.seq + 1) {
                Some(record) => record.line(),
                None => return Ok(()),
            },
        };
        if let Err(error) = self.file.append(&line) {
            // Its time is that of the change, not that of the last try.
            self.held = Some(line);
            return Err(failed(self.file.path(), "written", &error));
        }
        self.seq += 1;
        Ok(())
    }

    fn idle(&mut self) -> Result<(), SubscriberError> {
        let synced = self.file.sync_if_due();
        synced.map_err(|error| failed(self.file.path(), "brought to the disk", &error))
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        let synced = self.file.sync();
        synced.map_err(|error| failed(self.file.path(), "brought to the disk", &error))
    }
}
