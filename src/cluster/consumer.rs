//! Makes the consumers through which a node reads the log.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::ConsumerError;

use super::asking::first_end;
use super::node_state::NodeState;

/// The time after which the server forgets a consumer that asks for nothing.
const INACTIVE: Duration = Duration::from_secs(10);

/// The time after which another consumer is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(150);

/// Makes a consumer that goes on after the place up to which a node has all records. The servers may put it
/// on one that has just died, and then never answer, so another one is asked for beside it; those that are
/// not used end by themselves.
pub(super) async fn make(node: &NodeState, context: &Context) -> Result<PullConsumer, ConsumerError> {
    let stream = &node.names.records;
    first_end(ASK_AGAIN, || {
        context.create_consumer_on_stream(config(node), stream)
    })
    .await
}

/// The place up to which a node has all records. Own records may be told before they are delivered, and what
/// was delivered may not be told yet.
pub(super) fn heard(node: &NodeState) -> u64 {
    let told = node.in_flight.borrow().told_sequence();
    told.min(node.delivered.get())
}

fn config(node: &NodeState) -> pull::Config {
    pull::Config {
        name: Some(node.next_consumer()),
        deliver_policy: match heard(node) {
            0 => DeliverPolicy::All,
            heard => DeliverPolicy::ByStartSequence {
                start_sequence: heard + 1,
            },
        },
        // The place is known here; the server need not remember it.
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: INACTIVE.max(4 * node.settings.heartbeat),
        ..pull::Config::default()
    }
}
