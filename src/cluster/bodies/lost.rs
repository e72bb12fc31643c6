//! Bodies that are gone from their stream, such as one that was deleted or restored from an older copy. A
//! node that misses one asks the others, and those that hold it store it again.

use async_nats::jetstream::Context;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tidings_actors::{Body, Bus, Content, ResourceUri};

use super::upload;
use crate::cluster::names::LogNames;
use crate::cluster::servers::REQUEST_TIMEOUT;
use crate::cluster::shared_state::SharedState;
use crate::store::encoding::BodyHash;

/// The answer of a node that has stored a body again.
pub(in crate::cluster) const STORED: Bytes = Bytes::from_static(b"stored");

/// A body that a node misses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) struct LostBody {
    hash: BodyHash,
    /// The resource whose newest record names it.
    pub(in crate::cluster) uri: ResourceUri,
}

impl LostBody {
    /// Returns the body with this hash, of the resource `uri`.
    pub(in crate::cluster) fn new(hash: BodyHash, uri: ResourceUri) -> LostBody {
        LostBody { hash, uri }
    }

    fn encode(&self) -> Bytes {
        [&self.hash, self.uri.as_str().as_bytes()].concat().into()
    }

    /// Reads the question of another node; none if it is not one.
    pub(in crate::cluster) fn read(text: &[u8]) -> Option<LostBody> {
        let (hash, uri) = text.split_first_chunk()?;
        let uri = ResourceUri::new(std::str::from_utf8(uri).ok()?).ok()?;
        Some(LostBody { hash: *hash, uri })
    }

    /// Asks the other nodes for the body. Returns true if one has stored it again.
    pub(in crate::cluster) async fn ask(&self, context: &Context, names: &LogNames) -> bool {
        let client = context.client();
        let asked = client.request(names.lost_bodies(), self.encode());
        // Nodes that do not hold it are silent.
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(answer)) => answer.payload == STORED,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Stores the body again, if this node holds it. Returns false if it does not.
    ///
    /// # Errors
    /// The servers do not take it.
    pub(in crate::cluster) async fn put_back(&self, state: &SharedState, bus: &Bus) -> Result<bool, String> {
        let Some(body) = self.held(bus).await else {
            return Ok(false);
        };
        let context = state.context().await.map_err(|error| error.to_string())?;
        upload::put_back(&context, state.settings(), &self.hash, &body).await?;
        Ok(true)
    }

    /// Returns the body, if it is that of the resource at this node.
    async fn held(&self, bus: &Bus) -> Option<Body> {
        let (resource, _) = bus.cached_resource(self.uri.as_str()).ok()??;
        let Content::Held(body) = resource.content().clone() else {
            return None;
        };
        let hash = self.hash;
        // A body may have many megabytes, whose hash takes its time.
        let hashed = tokio::task::spawn_blocking(move || {
            let found: BodyHash = Sha256::digest(body.as_bytes()).into();
            (found == hash).then_some(body)
        });
        hashed.await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_is_read_as_it_was_written() {
        let lost = LostBody::new([7; 32], ResourceUri::new("demo://large").unwrap());
        assert_eq!(LostBody::read(&lost.encode()), Some(lost));
        for other in [
            &b""[..],
            &[7; 31],
            &[7; 32],
            b"no question, but longer than a hash is",
            &[0xff; 40],
        ] {
            assert_eq!(LostBody::read(other), None, "{other:?}");
        }
    }
}
