//! Changes in several batches that change the resource list at most once.

use std::time::Instant;

use super::Bus;
use crate::messages::AnnounceList;
use crate::model::{Change, Closed, Condition, ListOutcome, Outcome, PublishError};

/// Changes that belong together although they may be more than one batch, such as those of one scan of a
/// folder. They are made and told as they come, but the resource list counts as changed only at the end, and
/// only if it then differs from before. A change by others that alters the list announces all of it.
///
/// ```
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use tidings_actors::{Bus, Change, Condition, Resource};
/// let bus = Bus::builder().start()?;
/// let burst = bus.burst();
/// for uri in ["demo://a", "demo://b"] {
///     let change = Change::Upsert(Resource::text(uri, "hello")?);
///     burst.update_many(vec![(change, Condition::Always)]).await?;
/// }
/// assert!(burst.finish().await?.changed);
/// assert_eq!(bus.stats().await?.list_changes, 1);
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a burst that is dropped ends at once"]
pub struct Burst {
    bus: Bus,
    is_open: bool,
}

impl Bus {
    /// Begins a burst. It ends with [`Burst::finish`], or when it is dropped.
    pub fn burst(&self) -> Burst {
        Burst {
            bus: self.clone(),
            is_open: true,
        }
    }
}

impl Burst {
    /// Makes changes like [`Bus::update_many`], but leaves the announcement of the resource list to the end
    /// of the burst.
    ///
    /// # Errors
    /// Those of `Bus::update_many`.
    pub async fn update_many(
        &self,
        changes: Vec<(Change, Condition)>,
    ) -> Result<Vec<Result<Outcome, PublishError>>, PublishError> {
        self.bus.send_many(changes, true, None).await
    }

    /// Makes changes like [`Burst::update_many`], as long as it is before `deadline`. A publisher that may
    /// change resources for a time only, such as the holder of a lease, thus makes no change after it,
    /// however long the process was stopped meanwhile. A bus without a shared log makes changes at once, and
    /// looks at no deadline.
    ///
    /// A change that the shared log has not taken at the deadline is refused with
    /// [`PublishError::LogUnavailable`].
    ///
    /// # Errors
    /// Those of `Bus::update_many`.
    pub async fn update_many_until(
        &self,
        changes: Vec<(Change, Condition)>,
        deadline: Instant,
    ) -> Result<Vec<Result<Outcome, PublishError>>, PublishError> {
        self.bus.send_many(changes, true, Some(deadline)).await
    }

    /// Ends the burst, and announces the resource list if it changed.
    ///
    /// # Errors
    /// [`PublishError::Closed`].
    pub async fn finish(mut self) -> Result<ListOutcome, PublishError> {
        let (reply, answer) = self.bus.inner.admission.enter_change().await?.reply();
        self.is_open = false;
        let announce = AnnounceList(Some(reply));
        self.bus.inner.actors.registry.push(announce.into());
        answer.await.map_err(|_dropped| Closed)?
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        if self.is_open {
            // Without a permit, since a drop cannot wait for one. The inbox has room for more requests than
            // there are permits.
            self.bus.inner.actors.registry.push(AnnounceList(None).into());
        }
    }
}
