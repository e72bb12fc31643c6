//! What callers hold at all nodes of a cluster, so that quotas hold over nodes.
//!
//! Each node tells its counts with its report, so another one knows of them some seconds later.

use std::collections::HashMap;
use std::time::Duration;

use crate::cluster::{CallerUsage, SharedState, present_nodes};
use crate::http::{HeldCounts, SharedLimits};
use crate::{Bus, Content};

/// The callers that a node tells of: those that are nearest to a quota.
const CALLERS_MAX: usize = 200;

/// The time between two looks at the reports of the other nodes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The looks after which the resources are looked at that callers published at this node.
const LOOKS_PER_SWEEP: u32 = 10;

/// Returns what callers hold at this node.
pub(super) fn of_this_node(limits: &SharedLimits) -> Vec<CallerUsage> {
    // Bounded, because every node hears the report of every other one each 2 s.
    let held = limits.held(CALLERS_MAX).into_iter();
    held.map(|(key, held)| CallerUsage {
        key,
        sessions: held.sessions,
        subscriptions: held.subscriptions,
        bytes: held.bytes,
        tool_calls: held.tool_calls,
    })
    .collect()
}

/// Counts what callers hold at other nodes, until the bus stops.
pub(super) fn follow(state: &SharedState, bus: &Bus, limits: &SharedLimits) {
    let state = state.clone();
    let bus = bus.downgrade();
    let limits = limits.clone();
    tokio::spawn(async move {
        let mut looks = 0_u32;
        while let Ok(bus) = bus.upgrade() {
            limits.set_elsewhere(of_other_nodes(&state));
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_SWEEP) {
                give_back(&bus, &limits);
            }
            // The handle would keep the bus running.
            drop(bus);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
}

fn of_other_nodes(state: &SharedState) -> HashMap<u64, HeldCounts> {
    let mut counts: HashMap<u64, HeldCounts> = HashMap::new();
    for node in present_nodes(state) {
        if node.report.node == state.node() {
            continue;
        }
        // Another version of the program may tell of more.
        for usage in node.report.usage.iter().take(CALLERS_MAX) {
            counts.entry(usage.key).or_default().add(HeldCounts {
                sessions: usage.sessions,
                subscriptions: usage.subscriptions,
                bytes: usage.bytes,
                tool_calls: usage.tool_calls,
            });
        }
    }
    counts
}

/// Gives the bytes back of resources that were removed or replaced at other nodes.
fn give_back(bus: &Bus, limits: &SharedLimits) {
    limits.keep_published(|uri, len| match bus.cached_resource(uri.as_str()) {
        Ok(Some((resource, _))) => match resource.content() {
            Content::Held(body) => body.as_bytes().len() + uri.as_str().len() == len,
            Content::Lazy(_) => false,
        },
        Ok(None) => false,
        // The bus has stopped.
        Err(_closed) => true,
    });
}
