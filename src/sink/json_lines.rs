//! A sink that writes each notice as a JSON object on a line of a file.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tidings_actors::Bus;
use tidings_actors::attach::{AttachError, AttachOptions, Attachment, Delivery, Subscriber, SubscriberError};

use super::append_file::{AppendFile, FileOptions, Fsync};
use super::configured::{ConfiguredSink, FILE_BACKOFF, delivery_class, restrict_kinds};
use super::record::Record;
use crate::config::{FsyncPolicy, JournalConfig};

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
    pub fn open(options: &FileOptions) -> Result<JsonLines, SubscriberError> {
        let file = AppendFile::open(options.clone())?;
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

impl ConfiguredSink for JournalConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn uris(&self) -> &[String] {
        &self.uris
    }

    fn attach<'a>(
        &'a self,
        bus: &'a Bus,
        mut options: AttachOptions,
    ) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        let file = FileOptions {
            path: self.file.clone(),
            bytes_max: self.bytes_max,
            files_max: self.files_max,
            fsync: match self.fsync {
                FsyncPolicy::Never => Fsync::Never,
                FsyncPolicy::Rotate => Fsync::Rotate,
                FsyncPolicy::Interval => Fsync::Interval(self.fsync_every),
                FsyncPolicy::Always => Fsync::Always,
            },
        };
        options.filter = restrict_kinds(options.filter, &self.kinds);
        options.class = delivery_class(self.class, self.overflow, self.queue);
        options.idle_every = file.idle_every();
        options.backoff_max = FILE_BACKOFF;
        bus.attach(options, move || JsonLines::open(&file)).boxed()
    }
}
