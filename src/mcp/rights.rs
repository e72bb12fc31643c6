//! Requests as a caller may make them: what it has no right to is to it as if it did not exist.

use crate::auth::{Caller, Object, Right};
use crate::{Bus, ReadError, ResourceUri, Snapshot};

/// A URI that no resource has; the look-up of it takes as long as that of any other that is not there.
const ABSENT: &str = "absent://resource";

/// Reads a resource for a caller.
///
/// # Errors
/// Those of [`Bus::read`]; that of an unknown URI, after the same look-up, without the right.
pub(crate) async fn read(bus: &Bus, caller: &Caller, uri: &str) -> Result<Snapshot, ReadError> {
    if caller.may(Right::Read, Object::Resource(uri)).is_ok() {
        return bus.read(uri).await;
    }
    let uri = ResourceUri::new(uri)?;
    match bus.read(ABSENT).await {
        Err(ReadError::Closed(closed)) => Err(closed.into()),
        _ => Err(ReadError::NotFound(uri)),
    }
}
