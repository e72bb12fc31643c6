//! Reads a body from its chunks.

use async_nats::jetstream::stream::{DirectGetErrorKind, LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sha2::{Digest as _, Sha256};

use super::{CHUNK_LEN, CHUNKS_AT_ONCE};
use crate::cluster::names::LogNames;
use crate::store::encoding::BodyHash;

/// Reads the body with this hash and length; none if a part of it is not there.
///
/// # Errors
/// A server that does not answer, and a body that is not the one of its hash.
pub(in crate::cluster) async fn fetch(
    context: &Context,
    names: &LogNames,
    hash: &BodyHash,
    len: u64,
) -> Result<Option<Vec<u8>>, String> {
    let chunks = context.get_stream_no_info(&names.bodies).await;
    let chunks = chunks.map_err(|error| error.to_string())?;
    let subjects = (0..len.div_ceil(CHUNK_LEN as u64)).map(|index| names.chunk(hash, index));
    let mut found =
        stream::iter(subjects.map(|subject| fetch_chunk(&chunks, subject))).buffered(CHUNKS_AT_ONCE);
    let mut body = Vec::new();
    while let Some(chunk) = found.next().await {
        match chunk? {
            Some(chunk) => body.extend_from_slice(&chunk),
            None => return Ok(None),
        }
    }
    // Compared, since another client of the servers may have written a chunk.
    let found: BodyHash = Sha256::digest(&body).into();
    match found == *hash && body.len() as u64 == len {
        true => Ok(Some(body)),
        false => Err(format!(
            "the chunks at {} are not those of their hash",
            names.chunk(hash, 0)
        )),
    }
}

async fn fetch_chunk(chunks: &Stream<()>, subject: String) -> Result<Option<Bytes>, String> {
    match chunks.direct_get_last_for_subject(subject.as_str()).await {
        Ok(message) => return Ok(Some(message.payload)),
        // Any server answers, also one that has not heard of the chunk yet.
        Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
        Err(error) => tracing::debug!(%error, "a chunk is asked from the leader"),
    }
    match chunks.get_last_raw_message_by_subject(&subject).await {
        Ok(message) => Ok(Some(message.payload)),
        Err(error) => match error.kind() {
            LastRawMessageErrorKind::NoMessageFound => Ok(None),
            LastRawMessageErrorKind::JetStream(missing)
                if missing.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Ok(None)
            }
            _ => Err(format!("a chunk of a body cannot be read: {error}")),
        },
    }
}
