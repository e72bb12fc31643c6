//! Runtime parts that all actors share: admission, mailboxes, shard threads and traces.

mod admission;
mod inbox;
pub(crate) mod mailbox;
mod many;
mod shard;
mod trace;

pub(crate) use admission::{Admission, Permit, Reply};
pub(crate) use inbox::{Inbox, InboxReady, InboxSender};
pub(crate) use mailbox::{BusState, CoreGuard};
pub use many::ForMany;
pub use shard::Shard;
pub(crate) use shard::{current_shard, enter_shard};
pub(crate) use trace::{TraceTarget, Tracer};
