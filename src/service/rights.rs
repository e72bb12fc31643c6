//! Tells the bus when rights have changed: by new rules, or by credentials that were removed.

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use crate::Bus;
use crate::auth::Border;

/// The time between two looks. Entries that a reader may not be told any more are judged when they are handed
/// out, so this bounds only the time for which a silent stream without a right stays open.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Follows the rights until the bus or the border is gone.
pub(super) fn follow(bus: &Bus, border: &Arc<Border>) {
    let bus = bus.downgrade();
    // Weak: the task would otherwise keep the files of the border open.
    let border = Arc::downgrade(border);
    tokio::spawn(async move {
        let mut known = None;
        loop {
            let (Ok(bus), Some(border)) = (bus.upgrade(), border.upgrade()) else {
                return;
            };
            let generation = border.generation();
            let before = known.replace(generation);
            // At the first look nothing has changed.
            if before.is_some() && before != known && bus.rights_changed().await.is_err() {
                return debug!("the bus has stopped; rights are not followed any more");
            }
            drop((bus, border));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
}
