//! The change of the rights of subscribers.

use super::Bus;
use crate::messages::RightsChanged;
use crate::model::Closed;

impl Bus {
    /// Says that the rights of many subscribers may have changed, such as by a new policy. The bus looks at
    /// every subscriber with a [`Viewer`](crate::rights::Viewer) in small steps: it drops what one may not be
    /// told of any more, ends streams without a valid credential, and compares the lists with what the
    /// audience of each subscriber sees now. Returns when all of that is done.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn rights_changed(&self) -> Result<(), Closed> {
        for publisher in &self.inner.actors.publishers {
            self.ask_at(publisher, RightsChanged).await?;
        }
        Ok(())
    }
}
