//! A sink that writes each notice as a JSON object on a line of a file.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tidings_actors::attach::{Delivery, Subscriber, SubscriberError};

use super::append_file::{AppendFile, FileOptions, Fsync};
use super::record::Record;

/// The options of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonLinesOptions {
    /// The file, its rotation and its fsync policy.
    pub file: FileOptions,
}

impl JsonLinesOptions {
    /// Returns the defaults for the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> JsonLinesOptions {
        JsonLinesOptions {
            file: FileOptions::new(path),
        }
    }

    /// Returns the value for [`AttachOptions::idle_every`](tidings_actors::attach::AttachOptions::idle_every)
    /// with which lines are flushed in time although no further line comes.
    pub fn idle_every(&self) -> Duration {
        let most = Duration::from_secs(1);
        match self.file.fsync {
            Fsync::Interval(every) => every.min(most),
            _ => most,
        }
    }
}

/// A sink that writes each delivery to a file.
#[derive(Debug)]
pub struct JsonLines {
    file: AppendFile,
    /// The number of the last line.
    seq: u64,
    /// The line that could not be written; the bus hands its delivery over again.
    unwritten: Option<Vec<u8>>,
}

/// The part of a line that is read back.
#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

impl JsonLines {
    /// Opens the file. A line that a crash left half written is removed, and numbering continues from the
    /// last line.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] if the file cannot be opened, so that the bus tries again.
    pub fn open(options: &JsonLinesOptions) -> Result<JsonLines, SubscriberError> {
        let file = AppendFile::open(options.file.clone())?;
        let last = file.last_line()?.unwrap_or_default();
        let seq = match serde_json::from_slice::<Numbered>(&last) {
            Ok(line) => line.seq,
            // The file is new, or was written by another program.
            Err(_) => 0,
        };
        Ok(JsonLines {
            file,
            seq,
            unwritten: None,
        })
    }
}

impl Subscriber for JsonLines {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        // A line is formatted once: its time is that of the change, not that of the last attempt.
        let line = match self.unwritten.take() {
            Some(line) => line,
            None => match Record::of(delivery, self.seq + 1) {
                Some(record) => record.line(),
                None => return Ok(()),
            },
        };
        if let Err(error) = self.file.append(&line) {
            self.unwritten = Some(line);
            return Err(error.into());
        }
        self.seq += 1;
        Ok(())
    }

    fn idle(&mut self) -> Result<(), SubscriberError> {
        Ok(self.file.sync_if_due()?)
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        Ok(self.file.sync()?)
    }
}
