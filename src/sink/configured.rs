//! The sinks that the configuration names, attached to a bus, and replaced when it is read again.
//!
//! A new kind of sink implements [`ConfiguredSink`] for its section, in the file of the sink, and gets one
//! line in [`configured`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use serde::Serialize;
use serde_json::Value;
use tidings_actors::attach::{AttachError, AttachOptions, Attachment, DeliveryClass, Overflow};
use tidings_actors::{Bus, Filter, NoticeKind, UriPattern};
use tracing::debug;

use crate::config::{Config, SinkClass, SinkOverflow};

use super::in_turn::{MakeTurn, SinkTurn};

/// Longest pause before a file is opened again. A try is cheap, and a disk with free space again should be
/// used soon.
pub(super) const FILE_BACKOFF: Duration = Duration::from_secs(5);

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
pub(super) trait ConfiguredSink: Send + Sync {
    /// The value of its key `name`.
    fn name(&self) -> &str;

    /// The patterns of the resources whose notices it gets; none for all.
    fn uris(&self) -> &[String];

    /// Checks everything else that can be checked before anything is attached.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Attaches the sink; `options` have its full name and its patterns. With a turn it delivers in it alone.
    fn attach<'a>(
        &'a self,
        bus: &'a Bus,
        options: AttachOptions,
        turn: Option<SinkTurn>,
    ) -> BoxFuture<'a, Result<Attachment, AttachError>>;
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

fn faults(wanted: &BTreeMap<Arc<str>, WantedSink>) -> Vec<SinkError> {
    let mut faults = Vec::new();
    for (name, WantedSink { sink, .. }) in wanted {
        let checked = match filter(sink.uris()) {
            Ok(_) => sink.check(),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = checked {
            let name = name.clone();
            faults.push(SinkError { name, reason });
        }
    }
    faults
}

/// The attached sinks of a configuration. Dropping it detaches them without waiting.
pub struct Sinks {
    bus: Bus,
    /// Makes the turns of sinks that other nodes have too.
    turns: MakeTurn,
    /// Each with the values that it was attached with.
    attached: BTreeMap<Arc<str>, (Value, Attachment)>,
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sinks")
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

impl Sinks {
    /// Returns an error for each sink of `config` that cannot be used at all. Attaches nothing.
    pub fn check(config: &Config) -> Vec<SinkError> {
        faults(&configured(config))
    }

    /// Attaches the sinks of `config`. They get everything that is published after this has returned.
    ///
    /// # Errors
    /// [`SinkError`] for a sink that cannot be used at all. A file or receiver that is out of reach is no
    /// error: the bus tries it again until it is there.
    pub async fn attach(bus: &Bus, config: &Config) -> Result<Sinks, SinkError> {
        Sinks::attach_in_turn(bus, config, Arc::new(|_name| None)).await
    }

    /// [`attach`](Sinks::attach) for sinks that other nodes have too: each delivers in the turn that `turns`
    /// makes for its name.
    ///
    /// # Errors
    /// As of [`attach`](Sinks::attach).
    pub async fn attach_in_turn(bus: &Bus, config: &Config, turns: MakeTurn) -> Result<Sinks, SinkError> {
        let mut sinks = Sinks {
            bus: bus.clone(),
            turns,
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
    /// attached again; it goes on from its cursor. The cursor of one that is gone is forgotten.
    ///
    /// # Errors
    /// [`SinkError`] for a sink that cannot be used at all; nothing has changed then.
    pub async fn follow(&mut self, config: &Config, timeout: Duration) -> Result<SinkChanges, SinkError> {
        let wanted = configured(config);
        if let Some(error) = faults(&wanted).into_iter().next() {
            return Err(error);
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
        for name in &changes.detached {
            // A cursor that no sink moves would hold the change log for ever.
            if !wanted.contains_key(name)
                && let Err(error) = self.bus.forget_cursor(name).await
            {
                debug!(%error, "the cursor of a sink is kept until the next start");
            }
        }
        for (name, WantedSink { values, sink }) in wanted {
            if self.attached.contains_key(&name) {
                continue;
            }
            let filter = filter(sink.uris()).expect("the patterns of all sinks were checked");
            let options = AttachOptions::new(name.clone()).filter(filter);
            match sink.attach(&self.bus, options, (self.turns)(&name)).await {
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

/// Makes a filter of patterns of URIs.
fn filter(uris: &[String]) -> Result<Filter, String> {
    let mut patterns = Vec::new();
    for text in uris {
        patterns.push(text.parse::<UriPattern>().map_err(|error| error.to_string())?);
    }
    Filter::of(patterns).map_err(|error| error.to_string())
}

/// Restricts a filter to kinds of notices, of which none means all.
pub(super) fn restrict_kinds(filter: Filter, kinds: &[String]) -> Filter {
    if kinds.is_empty() {
        return filter;
    }
    filter.kinds(kinds.iter().filter_map(|kind| NoticeKind::from_name(kind)))
}

/// Converts the keys `class`, `overflow` and `queue`.
pub(super) fn delivery_class(class: SinkClass, overflow: SinkOverflow, queue: usize) -> DeliveryClass {
    let overflow = match overflow {
        SinkOverflow::DropOldest => Overflow::DropOldest,
        SinkOverflow::DropNewest => Overflow::DropNewest,
    };
    match class {
        SinkClass::Every => DeliveryClass::Every {
            capacity: queue,
            overflow,
        },
        // A queue of one entry per resource loses nothing, so there is no overflow.
        SinkClass::Latest => DeliveryClass::Latest { pending_max: queue },
    }
}
