//! The sinks that the configuration names, attached to a bus, and replaced when it is read again.
//!
//! A new kind of sink implements [`ConfiguredSink`] for its section and gets one line in [`configured`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use serde::Serialize;
use serde_json::Value;
use tidings_actors::attach::{AttachError, AttachOptions, Attachment, DeliveryClass, Overflow};
use tidings_actors::{Bus, Filter, NoticeKind, UriPattern};

use super::{
    DebugLog, DebugLogOptions, DebugLogTarget, FileOptions, Fsync, JsonLines, SecretSource, Webhook,
    WebhookOptions,
};
use crate::config::{
    Config, DebugLogConfig, FsyncPolicy, JournalConfig, SinkClass, SinkOverflow, WebhookConfig,
};

/// Time after which a webhook that handles one notice counts as stalled. A request takes as long as its
/// receiver, and one that hangs should show soon.
const WEBHOOK_STALL: Duration = Duration::from_secs(3);

/// Longest pause before a file is opened again. A try is cheap, and a disk with free space again should be
/// used soon.
const FILE_BACKOFF: Duration = Duration::from_secs(5);

/// A sink that cannot be used at all, such as a webhook without its secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} cannot be used: {reason}")]
pub struct SinkError {
    name: Arc<str>,
    reason: String,
}

/// The sinks that changed with a configuration, by their full names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SinkChanges {
    /// Attached now: new ones, and those that changed.
    pub attached: Vec<Arc<str>>,
    /// Detached now: those that are gone, and those that changed.
    pub detached: Vec<Arc<str>>,
    /// Refused by the bus.
    pub failed: Vec<(Arc<str>, AttachError)>,
}

/// A table of the configuration that describes a sink.
trait ConfiguredSink: Send + Sync {
    /// The value of its key `name`.
    fn name(&self) -> &str;

    /// Checks everything that can be checked before anything is attached.
    fn check(&self) -> Result<(), String>;

    /// Attaches the sink under its full name.
    fn attach<'a>(&'a self, bus: &'a Bus, name: &Arc<str>) -> BoxFuture<'a, Result<Attachment, AttachError>>;
}

/// A sink that is to be attached.
struct WantedSink {
    /// All its values. A sink whose values are the same stays attached.
    values: Value,
    sink: Box<dyn ConfiguredSink>,
}

/// Returns every sink of `config` under its full name. A new kind of sink is one more line.
fn configured(config: &Config) -> BTreeMap<Arc<str>, WantedSink> {
    let mut wanted = BTreeMap::new();
    add(&mut wanted, "journal", &config.journal);
    add(&mut wanted, "webhook", &config.webhook);
    add(&mut wanted, "debug_log", &config.debug_log);
    wanted
}

fn add<S>(wanted: &mut BTreeMap<Arc<str>, WantedSink>, kind: &str, sinks: &[S])
where
    S: ConfiguredSink + Clone + Serialize + 'static,
{
    for sink in sinks {
        let values = serde_json::to_value(sink).expect("a section holds plain values, which JSON can carry");
        let name = format!("{kind}/{}", sink.name()).into();
        let sink = Box::new(sink.clone());
        wanted.insert(name, WantedSink { values, sink });
    }
}

/// The attached sinks of a configuration. Dropping it detaches them without waiting.
#[derive(Debug)]
pub struct Sinks {
    bus: Bus,
    /// Each with the values that it was attached with.
    attached: BTreeMap<Arc<str>, (Value, Attachment)>,
}

impl Sinks {
    /// Attaches the sinks of `config`. They get everything that is published after this has returned.
    ///
    /// # Errors
    /// [`SinkError`] for a sink that cannot be used at all. A file or receiver that is out of reach is no
    /// error: the bus tries it again until it is there.
    pub async fn attach(bus: &Bus, config: &Config) -> Result<Sinks, SinkError> {
        let mut sinks = Sinks {
            bus: bus.clone(),
            attached: BTreeMap::new(),
        };
        let changes = sinks.follow(config, Duration::ZERO).await?;
        match changes.failed.into_iter().next() {
            None => Ok(sinks),
            Some((name, error)) => {
                let reason = error.to_string();
                Err(SinkError { name, reason })
            }
        }
    }

    /// Attaches and detaches until the sinks are those of `config`. A sink with the same values stays
    /// attached.
    ///
    /// One that changed is detached, for which it gets at most `timeout` to take the rest of its queue, and
    /// attached again; it misses the notices in between.
    ///
    /// # Errors
    /// [`SinkError`] for a sink that cannot be used at all; nothing has changed then.
    pub async fn follow(&mut self, config: &Config, timeout: Duration) -> Result<SinkChanges, SinkError> {
        let wanted = configured(config);
        for (name, WantedSink { sink, .. }) in &wanted {
            if let Err(reason) = sink.check() {
                let name = name.clone();
                return Err(SinkError { name, reason });
            }
        }
        let mut changes = SinkChanges::default();
        let mut detaching = Vec::new();
        for (name, (values, attachment)) in std::mem::take(&mut self.attached) {
            match wanted.get(&name) {
                Some(sink) if sink.values == values => {
                    self.attached.insert(name, (values, attachment));
                }
                _ => {
                    detaching.push(attachment.detach(timeout));
                    changes.detached.push(name);
                }
            }
        }
        // All at once, so that slow ones share the timeout. Two of one name cannot be attached, so this comes
        // first.
        join_all(detaching).await;
        for (name, WantedSink { values, sink }) in wanted {
            if self.attached.contains_key(&name) {
                continue;
            }
            match sink.attach(&self.bus, &name).await {
                Ok(attachment) => {
                    self.attached.insert(name.clone(), (values, attachment));
                    changes.attached.push(name);
                }
                Err(error) => changes.failed.push((name, error)),
            }
        }
        Ok(changes)
    }
}

impl ConfiguredSink for JournalConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        filter(&self.uris)?;
        Ok(())
    }

    fn attach<'a>(&'a self, bus: &'a Bus, name: &Arc<str>) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        let options = journal_file(self);
        let feed = Feed {
            uris: &self.uris,
            kinds: &self.kinds,
            class: self.class,
            queue: self.queue,
            overflow: self.overflow,
        };
        let mut attach = feed.attach_options(name);
        attach.idle_every = options.idle_every();
        attach.backoff_max = FILE_BACKOFF;
        bus.attach(attach, move || JsonLines::open(&options)).boxed()
    }
}

impl ConfiguredSink for WebhookConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        webhook(self).check()?;
        filter(&self.uris)?;
        Ok(())
    }

    fn attach<'a>(&'a self, bus: &'a Bus, name: &Arc<str>) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        let options = webhook(self);
        let feed = Feed {
            uris: &self.uris,
            kinds: &self.kinds,
            class: self.class,
            queue: self.queue,
            overflow: self.overflow,
        };
        let mut attach = feed.attach_options(name);
        attach.stall_timeout = WEBHOOK_STALL;
        bus.attach(attach, move || Webhook::open(&options)).boxed()
    }
}

impl ConfiguredSink for DebugLogConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        filter(&self.uris)?;
        Ok(())
    }

    fn attach<'a>(&'a self, bus: &'a Bus, name: &Arc<str>) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        let options = debug_log(self);
        bus.attach(traces(name, self), move || DebugLog::open(&options))
            .boxed()
    }
}

/// Makes a filter of patterns of URIs.
fn filter(uris: &[String]) -> Result<Filter, String> {
    let mut patterns = Vec::new();
    for text in uris {
        patterns.push(text.parse::<UriPattern>().map_err(|error| error.to_string())?);
    }
    Filter::of(patterns).map_err(|error| error.to_string())
}

/// The keys that journals and webhooks share: the notices that they get, and those kept while they are
/// behind.
struct Feed<'a> {
    uris: &'a [String],
    kinds: &'a [String],
    class: SinkClass,
    queue: usize,
    overflow: SinkOverflow,
}

impl Feed<'_> {
    fn attach_options(&self, name: &Arc<str>) -> AttachOptions {
        let mut wanted = filter(self.uris).expect("the patterns were checked");
        if !self.kinds.is_empty() {
            wanted = wanted.kinds(self.kinds.iter().filter_map(|kind| NoticeKind::from_name(kind)));
        }
        let class = match (self.class, self.overflow) {
            (SinkClass::Every, SinkOverflow::DropOldest) => DeliveryClass::Every {
                capacity: self.queue,
                overflow: Overflow::DropOldest,
            },
            (SinkClass::Every, SinkOverflow::DropNewest) => DeliveryClass::Every {
                capacity: self.queue,
                overflow: Overflow::DropNewest,
            },
            (SinkClass::Latest, _) => DeliveryClass::Latest {
                pending_max: self.queue,
            },
        };
        AttachOptions::new(name.clone()).filter(wanted).class(class)
    }
}

/// The traces that a debug log gets.
fn traces(name: &Arc<str>, config: &DebugLogConfig) -> AttachOptions {
    let mut wanted = filter(&config.uris).expect("the patterns were checked");
    if !config.lists {
        wanted = wanted.kinds([NoticeKind::Updated, NoticeKind::Removed]);
    }
    let class = DeliveryClass::Every {
        capacity: config.queue,
        overflow: Overflow::DropOldest,
    };
    let mut attach = DebugLogOptions::attach(name.clone(), config.sample as u64);
    attach.backoff_max = FILE_BACKOFF;
    attach.filter(wanted).class(class)
}

fn journal_file(config: &JournalConfig) -> FileOptions {
    FileOptions {
        path: config.file.clone(),
        bytes_max: config.bytes_max,
        files_max: config.files_max,
        fsync: match config.fsync {
            FsyncPolicy::Never => Fsync::Never,
            FsyncPolicy::Rotate => Fsync::Rotate,
            FsyncPolicy::Interval => Fsync::Interval(config.fsync_every),
            FsyncPolicy::Always => Fsync::Always,
        },
    }
}

fn webhook(config: &WebhookConfig) -> WebhookOptions {
    let secret = match (&config.secret_file, &config.secret_variable) {
        (Some(file), _) => SecretSource::File(file.clone()),
        // Loading refuses a webhook without either; the empty name of a program's own fails in the check.
        (None, variable) => SecretSource::Variable(variable.clone().unwrap_or_default()),
    };
    WebhookOptions {
        timeout: config.timeout,
        attempts: config.attempts,
        retry_for: config.retry_for,
        backoff_max: config.backoff_max,
        dead_letters: config.dead_letters.as_ref().map(|path| FileOptions {
            bytes_max: config.dead_letter_bytes_max,
            files_max: 1,
            ..FileOptions::new(path)
        }),
        allow_private: config.allow_private,
        ..WebhookOptions::new(&config.url, secret)
    }
}

fn debug_log(config: &DebugLogConfig) -> DebugLogOptions {
    DebugLogOptions {
        format: config.format,
        target: match &config.file {
            Some(path) => DebugLogTarget::File(FileOptions {
                path: path.clone(),
                bytes_max: config.bytes_max,
                files_max: config.files_max,
                // A trace is read while the system runs; after a crash of the machine its last lines matter
                // little.
                fsync: Fsync::Never,
            }),
            None => DebugLogTarget::Stderr,
        },
    }
}
