//! The bus of Tidings: what exists, which version of it is current, and who wants to know.
//!
//! This crate knows no protocol, no sockets and no files. A change walks one way through its actors,
//! Registry → Etag → Publisher → outbox, and each of them owns one kind of truth. Publishers and subscribers hold one
//! handle, [`Bus`]; no type of the actor framework is part of the public interface.
//!
//! The modules below are listed from top to bottom: each imports only modules below it.

mod bus;
mod session;
mod registry;
mod versions;
mod publisher;
mod messages;
mod sink;
mod outbox;
mod runtime;
mod metrics;
mod model;

pub use self::bus::{Builder, Bus, Clock, DrainReport, Page, Snapshot, Stats, WeakBus};
pub use self::model::*;
pub use self::outbox::{
    Drained, MarkResult, Outbox, OutboxEntry, OutboxReader, OutboxSet, SlotId, WriteProgress,
};
pub use self::publisher::{Member, SubscriptionTable};
pub use self::runtime::Shard;
pub use self::session::{Session, WATCHED_MAX};
pub use self::sink::{
    AttachError, AttachOptions, AttachedInfo, Attachment, Delivery, DeliveryClass, Gap, Health, Overflow,
    Subscriber, SubscriberError,
};
pub use self::versions::{Checkpoint, Line, Record, Store};
