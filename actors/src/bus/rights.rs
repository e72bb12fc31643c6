//! The change of the rights of subscribers.

use super::Bus;
use crate::messages::RightsChanged;
use crate::model::Closed;
use crate::runtime::mailbox;

impl Bus {
    /// Says that the rights of many subscribers may have changed, such as by a new policy. The bus looks at
    /// every subscriber with a [`Viewer`](crate::rights::Viewer) in small steps: it drops what one may not be
    /// told of any more, and ends streams without a valid credential. Returns when that is done; the lists of
    /// the subscribers are compared right after it.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn rights_changed(&self) -> Result<(), Closed> {
        // All shards at once: none waits for the others.
        let mut walks = Vec::new();
        for publisher in &self.inner.actors.publishers {
            let (reply, answer) = self.inner.admission.enter().await?.reply();
            mailbox::send(publisher, RightsChanged(reply), &self.inner.metrics);
            walks.push(answer);
        }
        for walk in walks {
            walk.await.map_err(|_dropped| Closed)?;
        }
        Ok(())
    }
}
