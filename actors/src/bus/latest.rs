//! Reads of the latest state of a shared log, rather than of what this node has applied.

use std::time::Duration;

use super::Bus;
use crate::model::Position;

/// The time for which a read waits for the log, and for this node to apply what it has.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The error of a read of the latest state: this node cannot tell that it has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this node cannot tell whether it has the latest state: {0}; try again, or set cluster.read to applied"
)]
pub struct NotLatest(pub String);

impl Bus {
    /// True if reads are to be answered from the latest state of a shared log.
    pub fn reads_latest(&self) -> bool {
        self.inner.reads_latest
    }

    /// Returns true if a shared log has come as far as `position`, whether this node has applied that or not;
    /// none if it cannot tell, or if there is no log. A position beyond its end was given before the log was
    /// restored from an older copy.
    pub async fn log_has(&self, position: Position) -> Option<bool> {
        let ask = self.inner.newest.as_ref()?;
        let status = self.inner.log_status.as_ref()?;
        let newest = tokio::time::timeout(WAIT_MAX, ask()).await.ok()?.ok()?;
        let head = status.get().history?.offset(newest);
        Some(self.lineage().offset_of(position, head).is_some())
    }

    /// Waits until this node has applied everything that its log had when the call began, so that reads that
    /// follow find it. Returns at once for a bus whose reads are answered from what it has applied.
    ///
    /// # Errors
    /// [`NotLatest`] after 5 s.
    pub async fn until_latest(&self) -> Result<(), NotLatest> {
        let (Some(ask), Some(status)) = (&self.inner.newest, &self.inner.log_status) else {
            return Ok(());
        };
        if !self.reads_latest() {
            return Ok(());
        }
        let waited = tokio::time::timeout(WAIT_MAX, async {
            let newest = ask().await.map_err(NotLatest)?;
            status.until_applied(newest).await;
            // The state is told before the record is passed on. What is asked twice comes back behind it: the
            // second question is asked after the answer to all that came before the first.
            for _ in 0..2 {
                let asked = self.etags(Vec::new()).await;
                asked.map_err(|closed| NotLatest(closed.to_string()))?;
            }
            Ok(())
        });
        let result = match waited.await {
            Ok(result) => result,
            Err(_late) => {
                let applied = status.get().applied;
                let wait = WAIT_MAX.as_secs();
                Err(NotLatest(format!(
                    "{wait} s have passed, and it has applied {applied} records"
                )))
            }
        };
        if result.is_err() {
            self.inner.metrics.not_latest.add(1);
        }
        result
    }
}
