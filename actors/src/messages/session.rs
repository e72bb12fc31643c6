//! The messages to a session beside those of its subscriptions; all but the last come from its handle.

use std::sync::Arc;

use crate::model::{EndReason, Filter};
use crate::runtime::Reply;

/// The client accepts notifications from here on.
pub(crate) struct ClientReady(pub(crate) Reply<()>);

/// Watches every resource that the filter accepts.
pub(crate) struct WatchFiltered(pub(crate) Arc<Filter>, pub(crate) usize, pub(crate) Reply<()>);

/// Another shard carries the stream from here on.
pub(crate) struct StreamMoved;

/// The outbox was judged by other rights; from the outbox.
pub(crate) struct RightsJudged;

/// Ends the session; from its handle, the drop of the handle, or its evicted outbox.
pub(crate) struct EndSession(pub(crate) EndReason);
