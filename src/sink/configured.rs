//! The sinks that the configuration names, attached to a bus.
//!
//! Owns: the mapping from configuration to options, the names, and which of them are attached. Never: runs one (the bus
//! does) or reads the configuration. Called by the service when it starts and when it is told to read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidings_actors::{
    AttachError, AttachOptions, Attachment, Bus, DeliveryClass, Filter, NoticeKind, Overflow, UriPattern,
};

use super::{
    DebugLog, DebugLogOptions, DebugLogTarget, FileOptions, Fsync, JsonLines, JsonLinesOptions, SecretSource,
    Webhook, WebhookOptions,
};
use crate::config::{
    Config, DebugLogConfig, FeedConfig, FsyncPolicy, JournalConfig, SinkClass, SinkOverflow, WebhookConfig,
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

/// One sink as configured.
#[derive(Debug, Clone, PartialEq)]
enum Plan {
    Journal(JournalConfig),
    Webhook(WebhookConfig),
    DebugLog(DebugLogConfig),
}

/// The sinks of a configuration. Dropping it detaches them without waiting.
#[derive(Debug)]
pub struct Sinks {
    bus: Bus,
    attached: BTreeMap<Arc<str>, (Plan, Attachment)>,
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
        let wanted: BTreeMap<Arc<str>, Plan> = plans(config).collect();
        for (name, plan) in &wanted {
            plan.check().map_err(|reason| SinkError {
                name: name.clone(),
                reason,
            })?;
        }
        let mut changes = SinkChanges::default();
        let stale = |(name, (plan, _)): &(&Arc<str>, &(Plan, Attachment))| wanted.get(*name) != Some(plan);
        let stale: Vec<Arc<str>> = self
            .attached
            .iter()
            .filter(stale)
            .map(|(name, _)| name.clone())
            .collect();
        let ending = stale.iter().filter_map(|name| self.attached.remove(name));
        join_all(ending.map(|(_, attachment)| attachment.detach(patience))).await;
        changes.detached = stale;
        for (name, plan) in wanted {
            if self.attached.contains_key(&name) {
                continue;
            }
            match plan.attach(&self.bus, &name).await {
                Ok(attachment) => {
                    self.attached.insert(name.clone(), (plan, attachment));
                    changes.attached.push(name);
                }
                Err(error) => changes.failed.push((name, error)),
            }
        }
        Ok(changes)
    }
}

fn plans(config: &Config) -> impl Iterator<Item = (Arc<str>, Plan)> {
    let journals = config.journal.iter().cloned().map(Plan::Journal);
    let webhooks = config.webhook.iter().cloned().map(Plan::Webhook);
    let logs = config.debug_log.iter().cloned().map(Plan::DebugLog);
    let all = journals.chain(webhooks).chain(logs);
    all.map(|plan| (Arc::from(plan.name()), plan))
}

impl Plan {
    fn name(&self) -> String {
        match self {
            Plan::Journal(config) => format!("journal/{}", config.name),
            Plan::Webhook(config) => format!("webhook/{}", config.name),
            Plan::DebugLog(config) => format!("debug_log/{}", config.name),
        }
    }

    /// What can be known to be wrong before anything is attached.
    fn check(&self) -> Result<(), String> {
        let filtered = match self {
            Plan::Journal(config) => filter(&config.feed.uris).map(drop),
            Plan::Webhook(config) => {
                webhook(config).check()?;
                filter(&config.feed.uris).map(drop)
            }
            Plan::DebugLog(config) => filter(&config.uris).map(drop),
        };
        filtered.map_err(|error| error.to_string())
    }

    async fn attach(&self, bus: &Bus, name: &Arc<str>) -> Result<Attachment, AttachError> {
        match self {
            Plan::Journal(config) => {
                let options = JsonLinesOptions {
                    file: journal_file(config),
                };
                let mut attach = fed(name, &config.feed);
                attach.idle_every = options.idle_every();
                attach.backoff_max = FILE_BACKOFF;
                bus.attach(attach, move || JsonLines::open(&options)).await
            }
            Plan::Webhook(config) => {
                let options = webhook(config);
                let mut attach = fed(name, &config.feed);
                attach.stall_timeout = WEBHOOK_STALL;
                bus.attach(attach, move || Webhook::open(&options)).await
            }
            Plan::DebugLog(config) => {
                let options = debug_log(config);
                bus.attach(traced(name, config), move || DebugLog::open(&options))
                    .await
            }
        }
    }
}

fn filter(uris: &[String]) -> Result<Filter, tidings_actors::InvalidPattern> {
    let patterns = uris.iter().map(|text| text.parse::<UriPattern>());
    Filter::of(patterns.collect::<Result<_, _>>()?)
}

fn fed(name: &Arc<str>, feed: &FeedConfig) -> AttachOptions {
    let mut wanted = filter(&feed.uris).expect("the patterns were checked");
    if !feed.kinds.is_empty() {
        wanted = wanted.kinds(feed.kinds.iter().filter_map(|kind| NoticeKind::from_name(kind)));
    }
    let overflow = match feed.overflow {
        SinkOverflow::DropOldest => Overflow::DropOldest,
        SinkOverflow::DropNewest => Overflow::DropNewest,
    };
    let class = match feed.class {
        SinkClass::Every => DeliveryClass::Every {
            capacity: feed.queue,
            overflow,
        },
        SinkClass::Latest => DeliveryClass::Latest {
            pending_max: feed.queue,
        },
    };
    AttachOptions::new(name.clone()).filter(wanted).class(class)
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
