//! The encoding of a record of the log, which every later version must be able to read.
//!
//! Numbers are little-endian, and a text is its length in 4 bytes and its UTF-8. A record is one byte of
//! format (1), one of kind, and the operation as two numbers of 8 bytes. For a resource, one byte of flags,
//! one with the number of former operations, those operations, the URI, and the line with its content as the
//! store has it follow; for a floor, the version, the newest record that its proposer had applied, the floor
//! before, the number of URIs in 4 bytes, and the URIs.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tidings_actors::shared_log::{LogEntry, LoggedResource, OperationId};

use crate::store::encoding::{BodyHash, Input, StoredBody, StoredContent, StoredLine, write_text};
use crate::store::error::Fault;
use crate::{Body, Content, Descriptor, Resource, ResourceUri};

const FORMAT: u8 = 1;

/// The kinds of records.
mod kind {
    pub(super) const RESOURCE: u8 = 0;
    pub(super) const RESOURCE_LIST: u8 = 1;
    pub(super) const FLOOR: u8 = 2;
}

/// The flag of a resource that is announced at once.
const ANNOUNCES: u8 = 1;

/// The largest body that a record may name, in bytes. The limits of every node are below.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// The reason for which a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnreadableRecord {
    #[error("it has format {0}, which this version does not know; update this node")]
    Newer(u64),
    #[error("it is damaged, or was not written by this program: {0}; remove its subject from the stream")]
    Damaged(String),
}

impl From<Fault> for UnreadableRecord {
    fn from(fault: Fault) -> UnreadableRecord {
        match fault {
            Fault::Newer(format) => UnreadableRecord::Newer(format),
            Fault::Damaged(reason) => UnreadableRecord::Damaged(reason),
            other => UnreadableRecord::Damaged(format!("{other:?}")),
        }
    }
}

/// A record for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedRecord {
    pub(super) bytes: Vec<u8>,
    /// The hash of the body, if it is kept apart.
    pub(super) body: Option<BodyHash>,
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogRecord {
    pub(super) operation: OperationId,
    /// The entry. A resource whose body is kept apart has no content yet.
    pub(super) entry: LogEntry,
    /// The content whose body is kept apart.
    pub(super) detached: Option<DetachedContent>,
}

/// A content without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DetachedContent {
    descriptor: Descriptor,
    is_blob: bool,
    /// The SHA-256 of the body.
    pub(super) hash: BodyHash,
    /// The length of the body in bytes.
    pub(super) len: u64,
}

/// Encodes a record; a body larger than `inline_max` bytes is left to be kept apart.
pub(super) fn encode(operation: OperationId, entry: &LogEntry, inline_max: usize) -> EncodedRecord {
    let mut bytes = Vec::with_capacity(256);
    let kind = match entry {
        LogEntry::Resource(_) => kind::RESOURCE,
        LogEntry::ResourceList => kind::RESOURCE_LIST,
        LogEntry::Floor { .. } => kind::FLOOR,
    };
    bytes.extend_from_slice(&[FORMAT, kind]);
    write_operation(operation, &mut bytes);
    let mut body = None;
    match entry {
        LogEntry::Resource(logged) => body = encode_resource(logged, inline_max, &mut bytes),
        LogEntry::ResourceList => {}
        LogEntry::Floor {
            version,
            through,
            previous,
            uris,
        } => {
            for number in [version, through, previous] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            // More URIs than this do not fit into a message of any server.
            let count = u32::try_from(uris.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&count.to_le_bytes());
            for uri in uris {
                write_text(uri.as_str(), &mut bytes);
            }
        }
    }
    EncodedRecord { bytes, body }
}

fn encode_resource(logged: &LoggedResource, inline_max: usize, out: &mut Vec<u8>) -> Option<BodyHash> {
    // The node keeps to the limit; a longer list would not be read again.
    let former = &logged.former[..logged.former.len().min(LoggedResource::FORMER_MAX)];
    out.push(if logged.announces { ANNOUNCES } else { 0 });
    out.push(former.len() as u8);
    for operation in former {
        write_operation(*operation, out);
    }
    write_text(logged.uri.as_str(), out);
    let held = match &logged.resource {
        Some(resource) => match resource.content() {
            Content::Held(body) => Some((resource.descriptor(), body)),
            Content::Lazy(_) => None,
        },
        None => None,
    };
    StoredLine::encode(&logged.line, held.is_some(), out);
    let (descriptor, body) = held?;
    let bytes = body.as_bytes();
    let is_blob = body.as_text().is_none();
    if bytes.len() <= inline_max {
        StoredContent::encode(descriptor, is_blob, StoredBody::Inline(bytes), out);
        return None;
    }
    let hash: BodyHash = Sha256::digest(bytes).into();
    let place = StoredBody::File(hash, bytes.len() as u64);
    StoredContent::encode(descriptor, is_blob, place, out);
    Some(hash)
}

fn write_operation(operation: OperationId, out: &mut Vec<u8>) {
    out.extend_from_slice(&operation.node.to_le_bytes());
    out.extend_from_slice(&operation.number.to_le_bytes());
}

/// Decodes a record.
pub(super) fn decode(bytes: &[u8]) -> Result<LogRecord, UnreadableRecord> {
    match bytes.first() {
        Some(&FORMAT) => {}
        // An operator is told to update the node, rather than that the log is damaged.
        Some(&format) if format > FORMAT => return Err(UnreadableRecord::Newer(format.into())),
        _ => return Err(damaged("it has no format")),
    }
    let mut input = Input(&bytes[1..]);
    let (Some(kind), Some(operation)) = (input.byte(), read_operation(&mut input)) else {
        return Err(damaged("it is too short"));
    };
    let mut detached = None;
    let entry = match kind {
        kind::RESOURCE => {
            let (logged, apart) = decode_resource(input)?;
            detached = apart;
            LogEntry::Resource(Box::new(logged))
        }
        kind::RESOURCE_LIST => match input.end() {
            Some(()) => LogEntry::ResourceList,
            None => return Err(damaged("bytes follow its end")),
        },
        kind::FLOOR => match decode_floor(input) {
            Some(floor) => floor,
            None => return Err(damaged("its URIs cannot be decoded")),
        },
        // A later version of the same format has entries that this one cannot skip: their effect would be
        // missing from every etag that follows.
        unknown => {
            return Err(UnreadableRecord::Newer(
                u64::from(FORMAT) << 8 | u64::from(unknown),
            ));
        }
    };
    Ok(LogRecord {
        operation,
        entry,
        detached,
    })
}

fn decode_resource(
    mut input: Input<'_>,
) -> Result<(LoggedResource, Option<DetachedContent>), UnreadableRecord> {
    let Some((announces, former, uri)) = decode_head(&mut input) else {
        return Err(damaged("its URI or its former operations cannot be decoded"));
    };
    let stored = StoredLine::decode(input.0)?;
    let mut resource = None;
    let mut detached = None;
    if let Some(content) = stored.decode_content(&uri)? {
        match content.body {
            StoredBody::Inline(bytes) => {
                let Some(body) = content.to_body(bytes) else {
                    return Err(damaged("its text is not UTF-8"));
                };
                resource = Some(Arc::new(Resource::new(content.descriptor, Content::Held(body))));
            }
            StoredBody::File(_, len) if len > BODY_BYTES_MAX => {
                return Err(damaged("its body is longer than any node takes"));
            }
            StoredBody::File(hash, len) => {
                detached = Some(DetachedContent {
                    descriptor: content.descriptor,
                    is_blob: content.blob,
                    hash,
                    len,
                });
            }
        }
    }
    let logged = LoggedResource {
        uri,
        line: stored.line,
        resource,
        former,
        announces,
    };
    Ok((logged, detached))
}

fn decode_head(input: &mut Input<'_>) -> Option<(bool, Vec<OperationId>, ResourceUri)> {
    let announces = match input.byte()? {
        0 => false,
        ANNOUNCES => true,
        _ => return None,
    };
    let count = usize::from(input.byte()?);
    if count > LoggedResource::FORMER_MAX {
        return None;
    }
    let mut former = Vec::with_capacity(count);
    for _ in 0..count {
        former.push(read_operation(input)?);
    }
    let uri = ResourceUri::new(input.text()?).ok()?;
    Some((announces, former, uri))
}

fn decode_floor(mut input: Input<'_>) -> Option<LogEntry> {
    let version = input.number()?;
    let through = input.number()?;
    let previous = input.number()?;
    let count = u32::from_le_bytes(input.array()?);
    // Not reserved: the count may be that of a damaged record.
    let mut uris = Vec::new();
    for _ in 0..count {
        uris.push(ResourceUri::new(input.text()?).ok()?);
    }
    input.end()?;
    Some(LogEntry::Floor {
        version,
        through,
        previous,
        uris,
    })
}

fn read_operation(input: &mut Input<'_>) -> Option<OperationId> {
    Some(OperationId {
        node: input.number()?,
        number: input.number()?,
    })
}

fn damaged(reason: &str) -> UnreadableRecord {
    UnreadableRecord::Damaged(reason.to_owned())
}

impl LogRecord {
    /// Puts the body that was kept apart into the entry. The caller has compared its hash.
    pub(super) fn attach(mut self, body: Body) -> LogRecord {
        if let LogEntry::Resource(logged) = &mut self.entry
            && let Some(detached) = self.detached.take()
        {
            let resource = Resource::new(detached.descriptor, Content::Held(body));
            logged.resource = Some(Arc::new(resource));
        }
        self
    }
}

impl DetachedContent {
    /// Returns the body of these bytes; none if a text is not UTF-8.
    pub(super) fn to_body(&self, bytes: Vec<u8>) -> Option<Body> {
        match self.is_blob {
            true => Some(Body::blob(bytes)),
            false => Some(Body::text(String::from_utf8(bytes).ok()?)),
        }
    }
}

#[cfg(test)]
mod tests;
