//! Bodies that are too large for a record. They stand in a stream of their own, in chunks under the hash of
//! the whole body, and are stored before the record that names them.

mod named;
mod queue;
mod upload;
mod fetch;
mod lost;

pub(super) use fetch::fetch;
pub(super) use lost::{LostBody, STORED};
pub use named::NamedBodies;
pub(super) use queue::{BodyQueue, WaitingBody};
pub(super) use upload::run as upload;

/// The bytes of a chunk; the last one of a body may have fewer. Fixed, since a reader counts with it.
const CHUNK_LEN: usize = 256 << 10;

/// The chunks of one body that are under way at a time.
const CHUNKS_AT_ONCE: usize = 8;
