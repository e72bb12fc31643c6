//! The rights with which a tool waits for a change.

use std::sync::Arc;
use std::time::SystemTime;

use crate::ResourceUri;
use crate::rights::{Audience, Standing, Viewer};

/// The rights of a caller that waits for versions, which it may do wherever it may read.
#[derive(Debug)]
pub(super) struct ReaderRights(pub(super) Arc<dyn Viewer>);

impl Viewer for ReaderRights {
    fn generation(&self) -> u64 {
        self.0.generation()
    }

    fn standing(&self) -> Standing {
        self.0.standing()
    }

    fn may_be_told(&self, uri: &ResourceUri) -> bool {
        self.0.may_read(uri)
    }

    fn expires(&self) -> Option<SystemTime> {
        self.0.expires()
    }

    fn audience(&self) -> Arc<dyn Audience> {
        self.0.audience()
    }
}
