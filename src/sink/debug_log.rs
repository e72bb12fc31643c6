//! A sink that writes the trace of each notice: every step from the change to the subscribers, with the
//! reasons.
//!
//! The bus decides which notices are traced, by the filter and the sample rate that the sink was attached
//! with.

use std::io::{self, Write};
use std::time::SystemTime;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use tidings_actors::attach::{
    AttachError, AttachOptions, Attachment, Delivery, DeliveryClass, Overflow, Subscriber, SubscriberError,
};
use tidings_actors::trace::{SkipReason, Trace, TraceStep, TraceSubject};
use tidings_actors::{Bus, NoticeKind};

use super::append_file::{AppendFile, FileOptions, Fsync};
use super::configured::{ConfiguredSink, FILE_BACKOFF};
use super::in_turn::SinkTurn;
use super::record::{GAP, line};
use crate::config::{DebugLogConfig, LogFormat};
use crate::timestamp;

/// A sink that writes traces. Attach it with [`AttachOptions::trace`] set; otherwise it gets none.
#[derive(Debug)]
pub struct DebugLog {
    format: LogFormat,
    output: Output,
    /// The line that could not be written; the bus hands its delivery over again.
    unwritten: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Output {
    Stderr,
    File(AppendFile),
}

impl DebugLog {
    /// Opens the destination.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] if the file cannot be opened, so that the bus tries again.
    pub fn open(config: &DebugLogConfig) -> Result<DebugLog, SubscriberError> {
        let output = match &config.file {
            None => Output::Stderr,
            Some(path) => Output::File(AppendFile::open(FileOptions {
                path: path.clone(),
                bytes_max: config.bytes_max,
                files_max: config.files_max,
                // Traces are read while the system runs; after a crash of the machine the last lines matter
                // little.
                fsync: Fsync::Never,
            })?),
        };
        Ok(DebugLog {
            format: config.format,
            output,
            unwritten: None,
        })
    }

    fn line(&self, delivery: &Delivery) -> Option<Vec<u8>> {
        let entry = TraceEntry::of(delivery, timestamp::utc_millis(SystemTime::now()))?;
        Some(match self.format {
            LogFormat::Text => format!("{}\n", entry.text()).into_bytes(),
            LogFormat::Json => line(&entry),
        })
    }
}

impl Output {
    fn write(&mut self, line: &[u8]) -> Result<(), SubscriberError> {
        match self {
            Output::File(file) => Ok(file.append(line)?),
            // One lock for the whole line, so that no other thread writes into it.
            Output::Stderr => match io::stderr().lock().write_all(line) {
                Ok(()) => Ok(()),
                Err(error) => {
                    let reason = format!("standard error cannot be written: {error}");
                    Err(SubscriberError::Again(reason))
                }
            },
        }
    }
}

impl Subscriber for DebugLog {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        // A line is formatted once, so a retry does not change its time.
        let Some(line) = self.unwritten.take().or_else(|| self.line(delivery)) else {
            return Ok(());
        };
        let written = self.output.write(&line);
        if written.is_err() {
            self.unwritten = Some(line);
        }
        written
    }

    fn idle(&mut self) -> Result<(), SubscriberError> {
        match &mut self.output {
            Output::Stderr => Ok(()),
            Output::File(file) => Ok(file.sync_if_due()?),
        }
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        match &mut self.output {
            Output::Stderr => Ok(()),
            Output::File(file) => Ok(file.sync()?),
        }
    }
}

/// One line of the log. The order of the fields is that in JSON output.
#[derive(Debug, Default, Serialize)]
struct TraceEntry<'a> {
    time: String,
    step: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    #[serde(rename = "why", skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(rename = "told", skip_serializing_if = "Option::is_none")]
    notified: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

impl<'a> TraceEntry<'a> {
    fn of(delivery: &'a Delivery, time: String) -> Option<TraceEntry<'a>> {
        let entry = TraceEntry {
            time,
            ..TraceEntry::default()
        };
        match delivery {
            Delivery::Trace(trace) => Some(entry.with_trace(trace)),
            Delivery::Gap(gap) => Some(TraceEntry {
                step: GAP,
                lost: Some(gap.lost),
                ..entry
            }),
            Delivery::Notice(_) | Delivery::List(..) => None,
        }
    }

    fn with_trace(mut self, trace: &'a Trace) -> TraceEntry<'a> {
        self.step = trace.step.name();
        self.position = trace.position.map(|position| position.to_string());
        match &trace.subject {
            TraceSubject::Resource(uri, etag) => {
                self.uri = Some(uri.as_str());
                self.etag = Some(etag.to_string());
            }
            TraceSubject::List(kind) => self.list = Some(kind.name()),
        }
        if let Some(subscriber) = trace.step.subscriber() {
            self.subscriber = Some(subscriber.id.to_string());
            self.subscriber_kind = Some(subscriber.kind.name());
            self.label = Some(&subscriber.label);
        }
        match &trace.step {
            TraceStep::Changed(kind) => self.kind = Some(kind.name()),
            TraceStep::Fanned { notified } => self.notified = Some(*notified),
            TraceStep::Skipped { reason, .. } => self.reason = Some(skip_reason(*reason)),
            TraceStep::Dropped { reason, .. } => self.reason = Some(reason.name()),
            TraceStep::HandedOut { after, .. } => {
                self.after_us = after.map(|after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
            }
            _ => {}
        }
        self
    }

    /// Formats the line for people: time, subject, version, position, step, subscriber, details.
    fn text(&self) -> String {
        let TraceEntry { time, step, .. } = self;
        if let Some(lost) = self.lost {
            return format!("{time} gap: {lost} steps are missing here");
        }
        let mut text = match (self.uri, self.list) {
            (Some(uri), _) => format!("{time} {uri}"),
            (None, list) => format!("{time} list of {}", list.unwrap_or("?")),
        };
        for part in [&self.etag, &self.position].into_iter().flatten() {
            text.push(' ');
            text.push_str(part);
        }
        text.push_str(": ");
        // The names of steps are made for programs.
        text.push_str(&step.replace('_', " "));
        if let (Some(id), Some(kind), Some(label)) = (&self.subscriber, self.subscriber_kind, self.label) {
            text.push_str(&format!(" {id} ({kind}, {label})"));
        }
        if let Some(after) = self.after_us {
            text.push_str(&format!(" after {:.3} ms", after as f64 / 1000.0));
        }
        if let Some(notified) = self.notified {
            text.push_str(&format!(" out to {notified}"));
        }
        for word in [self.kind, self.reason].into_iter().flatten() {
            text.push_str(&format!(", {}", word.replace('_', " ")));
        }
        text
    }
}

fn skip_reason(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Ended(reason) => reason.name(),
        SkipReason::Known => "known",
        _ => "other",
    }
}

impl ConfiguredSink for DebugLogConfig {
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
        // Each node logs its own steps.
        _turn: Option<SinkTurn>,
    ) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        if !self.lists {
            options.filter = options.filter.kinds([NoticeKind::Updated, NoticeKind::Removed]);
        }
        options.class = DeliveryClass::Every {
            capacity: self.queue,
            overflow: Overflow::DropOldest,
        };
        options.trace = Some(self.sample.max(1) as u64);
        options.backoff_max = FILE_BACKOFF;
        let config = self.clone();
        bus.attach(options, move || DebugLog::open(&config)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidings_actors::attach::Gap;
    use tidings_actors::{Etag, ListKind, NoticeKind, Position, ResourceUri};

    fn entries(delivery: &Delivery) -> (String, String) {
        let entry = TraceEntry::of(delivery, "T".to_owned()).unwrap();
        (entry.text(), serde_json::to_string(&entry).unwrap())
    }

    #[test]
    fn step_has_a_text_and_a_json_form() {
        let etag = Etag {
            version: 2,
            updated_at: 9,
            life: 0,
        };
        let mut trace = Trace {
            subject: TraceSubject::Resource(ResourceUri::new("demo://a").unwrap(), etag),
            position: Some(Position { epoch: 1, offset: 4 }),
            step: TraceStep::Changed(NoticeKind::Removed),
        };
        let (text, json) = entries(&Delivery::Trace(Arc::new(trace.clone())));
        assert_eq!(text, "T demo://a v2-9 1-4: changed, removed");
        assert_eq!(
            json,
            r#"{"time":"T","step":"changed","uri":"demo://a","etag":"v2-9","position":"1-4","kind":"removed"}"#
        );
        trace.step = TraceStep::Fanned { notified: 3 };
        let (text, json) = entries(&Delivery::Trace(Arc::new(trace)));
        assert_eq!(text, "T demo://a v2-9 1-4: fanned out to 3");
        assert!(json.ends_with(r#""position":"1-4","told":3}"#), "{json}");
    }

    #[test]
    fn lists_and_gaps_have_a_text() {
        let unchanged = Delivery::Trace(Arc::new(Trace {
            subject: TraceSubject::List(ListKind::Tools),
            position: None,
            step: TraceStep::Unchanged,
        }));
        assert_eq!(entries(&unchanged).0, "T list of tools: unchanged");
        let (text, json) = entries(&Delivery::Gap(Gap {
            lost: 2,
            position: None,
        }));
        assert_eq!(text, "T gap: 2 steps are missing here");
        assert_eq!(json, r#"{"time":"T","step":"gap","lost":2}"#);
    }
}
