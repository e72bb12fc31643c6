//! The sums of the resources that an audience sees, for the hash of its list.
//!
//! A sum over many resources is made in parts, and what is to happen between two parts is the business of the
//! audiences.

use super::{Resources, share_of};
use crate::model::{Audience, ListHash, ResourceUri};

/// A part of the resources, as an audience sees it.
pub(in crate::registry) struct ShownPart {
    pub(in crate::registry) sum: ListHash,
    /// The last resource of the part; none if no further one follows.
    pub(in crate::registry) last: Option<ResourceUri>,
}

impl Resources {
    /// The sum of the listed resources that an audience sees, among the next `max` after `last`.
    pub(in crate::registry) fn shown_part(
        &self,
        audience: &dyn Audience,
        last: Option<&ResourceUri>,
        max: usize,
    ) -> ShownPart {
        let mut sum = ListHash::EMPTY;
        let mut looked_at = 0;
        for uri in self.after(last.map(ResourceUri::as_str)) {
            // Some are listed only as long as their removal is not durable.
            if let Some(share) = share_of(self.entries.get(uri))
                && audience.shows_resource(uri)
            {
                sum = sum.with(share);
            }
            looked_at += 1;
            if looked_at >= max {
                let last = Some(uri.clone());
                return ShownPart { sum, last };
            }
        }
        ShownPart { sum, last: None }
    }

    /// The sum of the listed resources that an audience sees.
    #[cfg(test)]
    pub(in crate::registry) fn shown(&self, audience: &dyn Audience) -> ListHash {
        let mut sum = ListHash::EMPTY;
        for entry in self.entries.values() {
            if let Some(share) = entry.share()
                && audience.shows_resource(entry.uri())
            {
                sum = sum.with(share);
            }
        }
        sum
    }

    /// Returns the sum that an audience sees without the changes that are not durable, where it sees `now`
    /// with them.
    pub(in crate::registry) fn durable_sum(&self, audience: &dyn Audience, now: ListHash) -> ListHash {
        let mut visible = now;
        for (uri, before) in self.durable.iter().flat_map(|durable| &durable.entries) {
            if !audience.shows_resource(uri) {
                continue;
            }
            if let Some(share) = share_of(self.entries.get(uri)) {
                visible = visible.without(share);
            }
            if let Some(share) = share_of(before.as_ref()) {
                visible = visible.with(share);
            }
        }
        visible
    }
}
