//! The debug log: what became of each notice, for whom, by which road, and why not.
//!
//! Owns: the words and the JSON of a step. Never: decides what is traced; the bus does, by the filter and the sample it
//! was attached with. Receives traces from the bus; writes standard error or an [`AppendFile`].

use std::io::{self, Write};
use std::time::SystemTime;

use serde::Serialize;
use tidings_actors::attach::{AttachOptions, Delivery, Subscriber, SubscriberError};
use tidings_actors::trace::{SkipReason, SubscriberRef, Trace, TraceStep, TraceSubject};

use super::append_file::{AppendFile, FileOptions};
use super::json_lines::failed;
use super::record::{GAP, line};
use crate::config::LogFormat;
use crate::timestamp;

/// Where a debug log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DebugLogTarget {
    /// Standard error.
    Stderr,
    /// A file.
    File(FileOptions),
}

/// What a debug log looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugLogOptions {
    /// One line of text, or one JSON object, per step.
    pub format: LogFormat,
    /// Where they go.
    pub target: DebugLogTarget,
}

impl DebugLogOptions {
    /// How it is attached: it is handed what becomes of every `sample`-th notice.
    pub fn attach(name: impl Into<std::sync::Arc<str>>, sample: u64) -> AttachOptions {
        let mut options = AttachOptions::new(name);
        options.trace = Some(sample.max(1));
        options
    }
}

/// Writes what becomes of notices. To be attached with [`DebugLogOptions::attach`].
#[derive(Debug)]
pub struct DebugLog {
    format: LogFormat,
    out: Out,
    held: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Out {
    Stderr,
    File(AppendFile),
}

impl DebugLog {
    /// Opens what it writes to.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] when the file cannot be opened, so that the bus tries again.
    pub fn open(options: &DebugLogOptions) -> Result<DebugLog, SubscriberError> {
        let out = match &options.target {
            DebugLogTarget::Stderr => Out::Stderr,
            DebugLogTarget::File(file) => Out::File(
                AppendFile::open(file.clone()).map_err(|error| failed(&file.path, "opened", &error))?,
            ),
        };
        Ok(DebugLog {
            format: options.format,
            out,
            held: None,
        })
    }

    fn line(&self, delivery: &Delivery) -> Option<Vec<u8>> {
        let entry = Entry::of(delivery, timestamp::utc_millis(SystemTime::now()))?;
        Some(match self.format {
            LogFormat::Text => format!("{}\n", entry.text()).into_bytes(),
            LogFormat::Json => line(&entry),
        })
    }
}

impl Out {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Out::Stderr => io::stderr().lock().write_all(line),
            Out::File(file) => file.append(line),
        }
    }

    fn failed(&self, error: &io::Error) -> SubscriberError {
        match self {
            Out::Stderr => SubscriberError::Again(format!("standard error cannot be written: {error}")),
            Out::File(file) => failed(file.path(), "written", error),
        }
    }

    fn sync(&mut self, all: bool) -> Result<(), SubscriberError> {
        let synced = match self {
            Out::Stderr => Ok(()),
            Out::File(file) if all => file.sync(),
            Out::File(file) => file.sync_if_due(),
        };
        synced.map_err(|error| self.failed(&error))
    }
}

impl Subscriber for DebugLog {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        let Some(line) = self.held.take().or_else(|| self.line(delivery)) else {
            return Ok(());
        };
        if let Err(error) = self.out.write(&line) {
            self.held = Some(line);
            return Err(self.out.failed(&error));
        }
        Ok(())
    }

    fn idle(&mut self) -> Result<(), SubscriberError> {
        self.out.sync(false)
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        self.out.sync(true)
    }
}

/// One line of the log.
#[derive(Debug, Default, Serialize)]
struct Entry<'a> {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

impl<'a> Entry<'a> {
    fn of(delivery: &'a Delivery, time: String) -> Option<Entry<'a>> {
        let entry = Entry {
            time,
            ..Entry::default()
        };
        match delivery {
            Delivery::Trace(trace) => Some(entry.trace(trace)),
            Delivery::Gap(gap) => Some(Entry {
                step: GAP,
                lost: Some(gap.lost),
                ..entry
            }),
            Delivery::Notice(_) | Delivery::List(..) => None,
        }
    }

    fn trace(mut self, trace: &'a Trace) -> Entry<'a> {
        self.step = trace.step.name();
        self.position = trace.position.map(|position| position.to_string());
        match &trace.subject {
            TraceSubject::Resource(uri, etag) => {
                self.uri = Some(uri.as_str());
                self.etag = Some(etag.to_string());
            }
            TraceSubject::List(kind) => self.list = Some(kind.name()),
        }
        if let Some(who) = trace.step.subscriber() {
            self.who(who);
        }
        match &trace.step {
            TraceStep::Changed(kind) => self.kind = Some(kind.name()),
            TraceStep::Fanned { notified } => self.told = Some(*notified),
            TraceStep::Skipped { reason, .. } => self.why = Some(skipped(*reason)),
            TraceStep::Dropped { reason, .. } => self.why = Some(reason.name()),
            TraceStep::HandedOut { after, .. } => {
                self.after_us = after.map(|after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
            }
            _ => {}
        }
        self
    }

    fn who(&mut self, who: &'a SubscriberRef) {
        self.subscriber = Some(who.id.to_string());
        self.subscriber_kind = Some(who.kind.name());
        self.label = Some(&who.label);
    }

    /// The line for people: when, what, which version, where in the order, what happened, to whom.
    fn text(&self) -> String {
        let Entry { time, step, .. } = self;
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
        text.push_str(&step.replace('_', " "));
        if let (Some(id), Some(kind), Some(label)) = (&self.subscriber, self.subscriber_kind, self.label) {
            text.push_str(&format!(" {id} ({kind}, {label})"));
        }
        if let Some(after) = self.after_us {
            text.push_str(&format!(" after {:.3} ms", after as f64 / 1000.0));
        }
        if let Some(told) = self.told {
            text.push_str(&format!(" out to {told}"));
        }
        for word in [self.kind, self.why].into_iter().flatten() {
            text.push_str(&format!(", {}", word.replace('_', " ")));
        }
        text
    }
}

fn skipped(why: SkipReason) -> &'static str {
    match why {
        SkipReason::Ended(reason) => reason.name(),
        SkipReason::Known => "known",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidings_actors::attach::Gap;
    use tidings_actors::{Etag, ListKind, NoticeKind, Position, ResourceUri};

    fn entries(delivery: &Delivery) -> (String, String) {
        let entry = Entry::of(delivery, "T".to_owned()).unwrap();
        (entry.text(), serde_json::to_string(&entry).unwrap())
    }

    #[test]
    fn a_step_is_a_sentence_and_an_object() {
        let etag = Etag {
            version: 2,
            updated_at: 9,
        };
        let trace = |step| {
            Delivery::Trace(Arc::new(Trace {
                subject: TraceSubject::Resource(ResourceUri::new("demo://a").unwrap(), etag),
                position: Some(Position { epoch: 1, offset: 4 }),
                step,
            }))
        };
        let (text, json) = entries(&trace(TraceStep::Changed(NoticeKind::Removed)));
        assert_eq!(text, "T demo://a v2-9 1-4: changed, removed");
        assert_eq!(
            json,
            r#"{"time":"T","step":"changed","uri":"demo://a","etag":"v2-9","position":"1-4","kind":"removed"}"#
        );
        let (text, json) = entries(&trace(TraceStep::Fanned { notified: 3 }));
        assert_eq!(text, "T demo://a v2-9 1-4: fanned out to 3");
        assert!(json.ends_with(r#""position":"1-4","told":3}"#), "{json}");
    }

    #[test]
    fn lists_and_gaps_have_words_too() {
        let unchanged = Delivery::Trace(Arc::new(Trace {
            subject: TraceSubject::List(ListKind::Tools),
            position: None,
            step: TraceStep::Unchanged,
        }));
        assert_eq!(entries(&unchanged).0, "T list of tools: unchanged");
        let (text, json) = entries(&Delivery::Gap(Gap { lost: 2 }));
        assert_eq!(text, "T gap: 2 steps are missing here");
        assert_eq!(json, r#"{"time":"T","step":"gap","lost":2}"#);
    }
}
