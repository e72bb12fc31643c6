//! The versions of template members that were never touched.
//!
//! All untouched members of a family share one etag, which is fixed when the template is registered. So it
//! does not depend on the resources that come and go beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::FamilyId;
use crate::model::{Etag, Line, ResourceTemplate, ResourceUri};

#[derive(Debug)]
struct Family {
    template: Arc<ResourceTemplate>,
    untouched: Etag,
    /// The offset of the bus when the family began.
    since: u64,
    /// True once the etag of a member was asked for.
    seen: bool,
}

impl Family {
    /// Returns the etag of a member whose URI has this line.
    fn etag(&self, line: &Line) -> Etag {
        // A live line is that of a resource of a former life, which its owner may claim as it is.
        if line.is_live() || line.offset > self.since {
            return line.etag;
        }
        // The line is from before the family: of another reader, or of a former life. The content may be
        // another one now.
        Etag {
            version: self.untouched.version.max(line.etag.version + 1),
            ..self.untouched
        }
    }
}

/// The families of the registered templates.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<FamilyId, Family>);

impl Families {
    /// Begins a family at the offset `since`.
    pub(super) fn begin(
        &mut self,
        id: FamilyId,
        template: Arc<ResourceTemplate>,
        untouched: Etag,
        since: u64,
    ) {
        let family = Family {
            template,
            untouched,
            since,
            seen: false,
        };
        self.0.insert(id, family);
    }

    /// Ends a family. Returns the version of its untouched members, if a client may know it.
    pub(super) fn end(&mut self, id: FamilyId) -> Option<u64> {
        let family = self.0.remove(&id)?;
        family.seen.then_some(family.untouched.version)
    }

    /// Gives back the offsets after this one: families cannot have begun after it.
    pub(super) fn go_back(&mut self, offset: u64) {
        for family in self.0.values_mut() {
            family.since = family.since.min(offset);
        }
    }

    /// Returns the etag of a member whose URI has this line, or none.
    pub(super) fn etag(&mut self, id: FamilyId, line: Option<&Line>) -> Option<Etag> {
        let family = self.0.get_mut(&id)?;
        family.seen = true;
        Some(match line {
            Some(line) => family.etag(line),
            None => family.untouched,
        })
    }

    /// Raises the untouched versions of the families that `uri` belongs to, because its line is forgotten:
    /// its version must not go backward.
    pub(super) fn forget(&mut self, uri: &ResourceUri, line: &Line) {
        for family in self.0.values_mut() {
            let version = family.etag(line).version;
            if version > family.untouched.version
                && family.template.uri_template().matches(uri.as_str()).is_some()
            {
                family.untouched.version = version;
            }
        }
    }
}
