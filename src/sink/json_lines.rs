//! A sink that writes each notice as a JSON object on a line of a file.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tidings_actors::attach::{
    AttachError, AttachOptions, Attachment, Delivery, DeliveryClass, Subscriber, SubscriberError,
};
use tidings_actors::{Bus, Lineage, Position};

use super::append_file::{AppendFile, FileOptions, Fsync};
use super::configured::{ConfiguredSink, FILE_BACKOFF, delivery_class, restrict_kinds};
use super::in_turn::{InTurn, SinkTurn};
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
    /// The offset up to which deliveries are in the file already.
    written: u64,
}

/// The part of a line that is read back.
#[derive(Deserialize)]
struct ResumePoint {
    seq: u64,
    position: Option<String>,
}

impl JsonLines {
    /// Opens the file. A line that a crash left half written is removed, and numbering continues from the
    /// last line.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] if the file cannot be opened, so that the bus tries again.
    pub fn open(options: &FileOptions) -> Result<JsonLines, SubscriberError> {
        JsonLines::resume(options, &Lineage::default())
    }

    /// Opens the file like [`open`](Self::open), for a subscriber of the class *every* that resumes
    /// ([`AttachOptions::resume`]) at a bus of this lineage. Deliveries that are repeated after a crash, and
    /// are in the file as its last line shows, are not written again.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn resume(options: &FileOptions, lineage: &Lineage) -> Result<JsonLines, SubscriberError> {
        let file = AppendFile::open(options.clone())?;
        let last = file.last_line()?.unwrap_or_default();
        let mut lines = JsonLines {
            file,
            seq: 0,
            unwritten: None,
            written: 0,
        };
        // Otherwise the file is new, or was written by another program.
        if let Ok(last) = serde_json::from_slice::<ResumePoint>(&last) {
            lines.seq = last.seq;
            lines.written = offset_of(last.position.as_deref(), lineage);
        }
        Ok(lines)
    }
}

/// Returns the offset of the position of a line; 0 if it is of another history.
fn offset_of(position: Option<&str>, lineage: &Lineage) -> u64 {
    if let Some(text) = position
        && let Ok(position) = text.parse::<Position>()
    {
        // A line of the current life was written by it, so it needs no bound.
        return lineage.offset_of(position, u64::MAX).unwrap_or(0);
    }
    0
}

impl Subscriber for JsonLines {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        // The cursor reaches the store up to a second after the line, so a crash repeats what is written.
        if let Some(position) = delivery.position()
            && position.offset <= self.written
        {
            return Ok(());
        }
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
        turn: Option<SinkTurn>,
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
        options.resume = true;
        let lineage = match options.class {
            DeliveryClass::Every { .. } => bus.lineage().clone(),
            // Its positions do not grow from line to line, so the last one tells nothing of the others.
            DeliveryClass::Latest { .. } => Lineage::default(),
        };
        let class = options.class;
        bus.attach(options, move || {
            let inner = JsonLines::resume(&file, &lineage)?;
            Ok(InTurn::new(inner, turn.clone(), class))
        })
        .boxed()
    }
}
