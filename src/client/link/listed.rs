//! The lists of a server: their resources, and the stream that tells of their changes.

use rmcp::model::PaginatedRequestParams;

use super::{HeldEtags, Link, LinkError, Lost, unless_lost, within};

/// The listed resources that are taken in.
const LISTED_MAX: usize = 100_000;

impl Link {
    /// Opens a listen stream for the lists alone, if they are asked for and the revision has such streams.
    /// Subscriptions that follow replace it.
    pub(in crate::client) async fn listen_to_lists(&mut self) -> Result<(), Lost> {
        match self.lists && !self.session {
            true => unless_lost(self.listen(&HeldEtags::new()).await),
            false => Ok(()),
        }
    }

    /// Returns the URIs of the listed resources, at most [`LISTED_MAX`].
    pub(in crate::client) async fn list(&self) -> Result<Vec<String>, LinkError> {
        let mut uris = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let request = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let page = within(self.peer.list_resources(Some(request))).await?;
            uris.extend(page.resources.iter().map(|resource| resource.uri.clone()));
            match page.next_cursor {
                // A server that repeats itself would be asked for ever.
                Some(next) if uris.len() < LISTED_MAX && cursor.as_ref() != Some(&next) => {
                    cursor = Some(next);
                }
                _ => break,
            }
        }
        uris.truncate(LISTED_MAX);
        Ok(uris)
    }
}
