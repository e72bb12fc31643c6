//! Reads as a caller may make them.

use tidings_actors::{Bus, ReadError, ResourceUri, Snapshot};

use super::caller::Caller;
use super::right::{Object, Right};

/// A URI that no resource has; the look-up of it takes as long as that of any other that is not there.
const ABSENT: &str = "absent://resource";

impl Caller {
    /// Reads a resource. One that the caller has no right to is to it as if it did not exist.
    ///
    /// # Errors
    /// Those of [`Bus::read`]; without the right that of an unknown URI, after the same look-up.
    pub(crate) async fn read(&self, bus: &Bus, uri: &str) -> Result<Snapshot, ReadError> {
        if self.may(Right::Read, Object::Resource(uri)).is_ok() {
            return bus.read(uri).await;
        }
        let uri = ResourceUri::new(uri)?;
        match bus.read(ABSENT).await {
            Err(ReadError::Closed(closed)) => Err(closed.into()),
            _ => Err(ReadError::NotFound(uri)),
        }
    }
}
