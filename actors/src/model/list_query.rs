//! A question for one page of a list.

use std::sync::Arc;

use super::viewer::Audience;

/// A question for one page of a list: of [`Bus::resources_page`](crate::Bus::resources_page) and the like.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// The name after which the page begins; none for the first page.
    pub after: Option<String>,
    /// The most items of the page, at least 1.
    pub limit: usize,
    /// The audience for which the list is made; none for a list of everything.
    pub audience: Option<Arc<dyn Audience>>,
}

impl ListQuery {
    /// Asks for a page of everything.
    pub fn of_all(after: Option<String>, limit: usize) -> ListQuery {
        let audience = None;
        ListQuery {
            after,
            limit,
            audience,
        }
    }

    /// Returns true if the page has an item of which the audience says `shows`.
    pub(crate) fn has(&self, shows: impl FnOnce(&dyn Audience) -> bool) -> bool {
        match &self.audience {
            Some(audience) => shows(audience.as_ref()),
            None => true,
        }
    }
}
