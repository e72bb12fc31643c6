//! Stores large bodies again that another node finds gone. Every node does it, since the one with the lease
//! may be the one that misses them.

use tidings_actors::WeakBus;

use crate::cluster::bodies::{LostBody, STORED};
use crate::cluster::shared_state::SharedState;
use crate::metrics::JanitorMetrics;

/// Answers the questions of other nodes until the bus ends.
pub(super) async fn run(state: SharedState, bus: WeakBus, metrics: JanitorMetrics) {
    let Some(mut questions) = state.questions() else {
        tracing::warn!("the questions for lost bodies are answered elsewhere");
        return;
    };
    while let Some(question) = questions.recv().await {
        let Ok(bus) = bus.upgrade() else { return };
        let Some(lost) = LostBody::read(&question.text) else {
            tracing::debug!("a question of another node names no body");
            continue;
        };
        match lost.put_back(&state, &bus).await {
            Ok(true) => {
                tracing::warn!(uri = %lost.uri, "a body was gone from the shared log and is stored again");
                metrics.put_back.increment(1);
                // The node may have given up meanwhile, and then reads it at its next try.
                drop(question.answer.send(STORED));
            }
            Ok(false) => {}
            Err(problem) => {
                tracing::warn!(%problem, uri = %lost.uri, "a body that is gone is not stored again");
            }
        }
    }
}
