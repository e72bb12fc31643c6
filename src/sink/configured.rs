//! The sinks that the configuration names, attached to a bus.
//!
//! Owns: the mapping from configuration to options, the names, and which of them are attached. Never: runs one (the bus
//! does) or reads the configuration. Called by the service when it starts and when it is told to read again.

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
    DebugLog, DebugLogOptions, DebugLogTarget, FileOptions, Fsync, JsonLines, JsonLinesOptions, SecretSource,
    Webhook, WebhookOptions,
};
use crate::config::{
    Config, DebugLogConfig, FsyncPolicy, JournalConfig, SinkClass, SinkOverflow, WebhookConfig,
};

/// A webhook's call takes as long as its receiver; one that hangs is to be seen soon.
const WEBHOOK_STALL: Duration = Duration::from_secs(3);

/// A disk that has room again is to be found soon, and looking costs nothing.
const FILE_BACKOFF: Duration = Duration::from_secs(5);

/// Why the sinks of a configuration cannot be attached. Nothing was attached or detached then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} cannot be used: {reason}")]
pub struct SinkError {
    name: Arc<str>,
    reason: String,
}

/// What following a configuration came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SinkChanges {
    /// Those that are attached now and were not before, or have changed.
    pub attached: Vec<Arc<str>>,
    /// Those that were attached before and are not now, or have changed.
    pub detached: Vec<Arc<str>>,
    /// Those that could not be attached, and why.
    pub failed: Vec<(Arc<str>, AttachError)>,
}

/// A sink as a configuration has it.
trait ConfiguredSink: Send + Sync {
    /// The value of `name`.
    fn name(&self) -> &str;

    /// Refuses what is wrong whatever happens, before anything is attached.
    fn check(&self) -> Result<(), String>;

    /// Attaches it under `name`.
    fn attach<'a>(&'a self, bus: &'a Bus, name: &Arc<str>) -> BoxFuture<'a, Result<Attachment, AttachError>>;
}

/// Every sink that `config` names, by its full name.
fn plans(config: &Config) -> BTreeMap<Arc<str>, Plan> {
    let mut plans = BTreeMap::new();
    // A further sort of sink is one more line here.
    add(&mut plans, "journal", &config.journal);
    add(&mut plans, "webhook", &config.webhook);
    add(&mut plans, "debug_log", &config.debug_log);
    plans
}

fn add<S>(plans: &mut BTreeMap<Arc<str>, Plan>, sort: &str, sinks: &[S])
where
    S: ConfiguredSink + Clone + Serialize + 'static,
{
    for sink in sinks {
        let written = serde_json::to_value(sink).expect("a section holds plain values, which JSON can carry");
        let plan = Plan {
            written,
            sink: Box::new(sink.clone()),
        };
        plans.insert(format!("{sort}/{}", sink.name()).into(), plan);
    }
}

/// One sink to attach.
struct Plan {
    /// Every value of it, by which a sink that has not changed is known.
    written: Value,
    sink: Box<dyn ConfiguredSink>,
}

/// The sinks of a configuration. Dropping it detaches them without waiting.
#[derive(Debug)]
pub struct Sinks {
    bus: Bus,
    /// Each with the values that it was attached with.
    attached: BTreeMap<Arc<str>, (Value, Attachment)>,
}

impl Sinks {
    /// Attaches the sinks of `config`. What is published after this answers reaches them.
    ///
    /// # Errors
    /// [`SinkError`] for one that cannot be used whatever happens, such as a webhook without its secret. One whose file
    /// or receiver is out of reach is attached, and tried until it is there.
    pub async fn attach(bus: &Bus, config: &Config) -> Result<Sinks, SinkError> {
        let mut sinks = Sinks {
            bus: bus.clone(),
            attached: BTreeMap::new(),
        };
        let changes = sinks.follow(config, Duration::ZERO).await?;
        match changes.failed.into_iter().next() {
            None => Ok(sinks),
            Some((name, error)) => Err(SinkError {
                name,
                reason: error.to_string(),
            }),
        }
    }

    /// Attaches and detaches until the sinks are those of `config`; one that is as it was goes on undisturbed. One
    /// that changed is detached, which waits for what it has not taken yet, at most `patience`, and attached anew;
    /// what is published in between does not reach it.
    ///
    /// # Errors
    /// [`SinkError`], and nothing has changed.
    pub async fn follow(&mut self, config: &Config, patience: Duration) -> Result<SinkChanges, SinkError> {
        let wanted = plans(config);
        for (name, plan) in &wanted {
            plan.sink.check().map_err(|reason| SinkError {
                name: name.clone(),
                reason,
            })?;
        }
        let mut changes = SinkChanges::default();
        let mut stale = Vec::new();
        for (name, (written, _)) in &self.attached {
            let is_as_it_was = matches!(wanted.get(name), Some(plan) if plan.written == *written);
            if !is_as_it_was {
                stale.push(name.clone());
            }
        }
        let ending = stale.iter().filter_map(|name| self.attached.remove(name));
        join_all(ending.map(|(_, attachment)| attachment.detach(patience))).await;
        changes.detached = stale;
        for (name, plan) in wanted {
            if self.attached.contains_key(&name) {
                continue;
            }
            match plan.sink.attach(&self.bus, &name).await {
                Ok(attachment) => {
                    self.attached.insert(name.clone(), (plan.written, attachment));
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
        filter(&self.uris).map(drop)
    }

    fn attach<'a>(&'a self, bus: &'a Bus, name: &Arc<str>) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        let options = JsonLinesOptions {
            file: journal_file(self),
        };
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
        filter(&self.uris).map(drop)
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
        filter(&self.uris).map(drop)
    }

    fn attach<'a>(&'a self, bus: &'a Bus, name: &Arc<str>) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        let options = debug_log(self);
        bus.attach(traced(name, self), move || DebugLog::open(&options))
            .boxed()
    }
}

/// The filter of these patterns.
fn filter(uris: &[String]) -> Result<Filter, String> {
    let mut patterns = Vec::new();
    for text in uris {
        patterns.push(text.parse::<UriPattern>().map_err(|error| error.to_string())?);
    }
    Filter::of(patterns).map_err(|error| error.to_string())
}

/// The notices that a sink is handed, and those kept for it while it is behind.
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

fn traced(name: &Arc<str>, config: &DebugLogConfig) -> AttachOptions {
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
    let file = |path| FileOptions {
        bytes_max: config.bytes_max,
        files_max: config.files_max,
        fsync: Fsync::Never,
        ..FileOptions::new(path)
    };
    DebugLogOptions {
        format: config.format,
        target: match &config.file {
            Some(path) => DebugLogTarget::File(file(path)),
            None => DebugLogTarget::Stderr,
        },
    }
}
