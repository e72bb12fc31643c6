//! The text of a backup: one JSON object per line, so that it survives every change of the file's format and
//! can be read, compared and filtered with common tools.
//!
//! The first line is the header, the last has the counts and the SHA-256 of all lines before it; a backup
//! without it was cut off.

use std::io::{self, BufRead, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidings_actors::{
    Body, Cause, ChangeKind, Content, Descriptor, Digest, Etag, KeptContent, KeptLine, Life, Line, LineState,
    ListHash, ListKind, LoggedChange, Owner, Record, Resource, ResourceUri, StoreError,
};

use super::error::Fault;
use super::snapshot::Snapshot;

/// The format of the text.
const FORMAT: u64 = 1;

/// The reason for which a backup was not made, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backup cannot be read or written.
    #[error("the backup cannot be read or written: {0}")]
    Text(#[from] io::Error),
    /// The text is not a whole backup.
    #[error("line {line} of the backup {problem}")]
    Invalid {
        /// The number of the line, from 1.
        line: usize,
        /// The problem, as the rest of a sentence about the line.
        problem: String,
    },
}

/// An error of a backup that names no file yet.
#[derive(Debug)]
pub(super) enum Failure {
    Store(Fault),
    Text(io::Error),
}

impl Failure {
    pub(super) fn of(self, file: &std::path::Path) -> BackupError {
        match self {
            Failure::Store(fault) => BackupError::Store(fault.of(file)),
            Failure::Text(error) => BackupError::Text(error),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Store(fault)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Text(error)
    }
}

/// The numbers of entries in a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Lines of URIs.
    pub lines: u64,
    /// Lists.
    pub lists: u64,
    /// Changes in the change log.
    pub changes: u64,
    /// Cursors of attached subscribers.
    pub cursors: u64,
    /// Former lives.
    pub lives: u64,
}

/// One line of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Entry {
    Header {
        format: u64,
        /// Seconds since 1970.
        time: u64,
        offset: u64,
        floor: u64,
    },
    Life {
        epoch: u64,
        end: u64,
    },
    Resource(Box<ResourceEntry>),
    List {
        kind: String,
        hash: String,
        offset: u64,
    },
    Change {
        offset: u64,
        #[serde(flatten)]
        change: ChangeEntry,
    },
    Cursor {
        name: String,
        offset: u64,
    },
    End {
        #[serde(flatten)]
        counts: Counts,
        sha256: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum ChangeEntry {
    List(String),
    Updated { uri: String, etag: EtagEntry },
    Removed { uri: String, etag: EtagEntry },
}

/// An etag as numbers: its text would leave out a tag of zero.
#[derive(Debug, Serialize, Deserialize)]
struct EtagEntry {
    version: u64,
    time: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    life: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceEntry {
    uri: String,
    etag: EtagEntry,
    offset: u64,
    state: StateEntry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unclaimed_since: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<ContentEntry>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StateEntry {
    Live,
    Removed,
    Touched,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentEntry {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    subscribable: bool,
    listed: bool,
    #[serde(flatten)]
    body: BodyEntry,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum BodyEntry {
    Text(String),
    Base64(String),
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Writes a state of the store to `out`.
pub(super) fn write(snapshot: &Snapshot, out: &mut dyn Write) -> Result<Counts, Failure> {
    let mut out = Lines {
        out,
        hash: Sha256::new(),
    };
    let mut counts = Counts::default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    out.write(&Entry::Header {
        format: FORMAT,
        time: now.unwrap_or_default().as_secs(),
        offset: snapshot.number("offset")?,
        floor: snapshot.number("floor")?,
    })?;
    for Life { epoch, end } in snapshot.lives()? {
        counts.lives += 1;
        out.write(&Entry::Life { epoch, end })?;
    }
    snapshot.each_line(|kept, _| {
        counts.lines += 1;
        out.write(&Entry::Resource(Box::new(ResourceEntry::of(kept))))
    })?;
    for (kind, ListHash(hash), offset) in snapshot.lists()? {
        counts.lists += 1;
        out.write(&Entry::List {
            kind: kind.name().to_owned(),
            hash: hex128(hash),
            offset,
        })?;
    }
    snapshot.each_change(|logged| {
        counts.changes += 1;
        out.write(&Entry::Change {
            offset: logged.offset,
            change: ChangeEntry::of(logged.change),
        })
    })?;
    for (name, offset) in snapshot.cursors()? {
        counts.cursors += 1;
        let name = name.to_string();
        out.write(&Entry::Cursor { name, offset })?;
    }
    let sha256 = hex(&out.hash.clone().finalize());
    out.write(&Entry::End { counts, sha256 })?;
    out.out.flush()?;
    Ok(counts)
}

/// Writes lines, and hashes them.
struct Lines<'w> {
    out: &'w mut dyn Write,
    hash: Sha256,
}

impl Lines<'_> {
    fn write(&mut self, entry: &Entry) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(entry).map_err(io::Error::from)?;
        line.push(b'\n');
        self.hash.update(&line);
        self.out.write_all(&line)?;
        Ok(())
    }
}

/// The numbers of the first line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) offset: u64,
    pub(super) floor: u64,
}

/// One entry between the first line and the last.
#[derive(Debug)]
pub(super) enum Restored {
    Life(Life),
    Record(Record),
}

/// Reads a backup line by line.
pub(super) struct Reader<'r> {
    input: &'r mut dyn BufRead,
    hash: Sha256,
    line: usize,
    counts: Counts,
}

impl<'r> Reader<'r> {
    /// Begins to read, and returns the header.
    pub(super) fn begin(input: &'r mut dyn BufRead) -> Result<(Reader<'r>, Header), BackupError> {
        let mut reader = Reader {
            input,
            hash: Sha256::new(),
            line: 0,
            counts: Counts::default(),
        };
        match reader.entry()? {
            Entry::Header { format, .. } if format > FORMAT => Err(reader.invalid(format!(
                "has format {format}, which is newer than this version knows"
            ))),
            Entry::Header { offset, floor, .. } => Ok((reader, Header { offset, floor })),
            _ => Err(reader.invalid("is not the header of a backup")),
        }
    }

    /// Returns the next entry; none at the last line, if all lines before it are as they were written.
    pub(super) fn next(&mut self) -> Result<Option<Restored>, BackupError> {
        let before = hex(&self.hash.clone().finalize());
        let entry = self.entry()?;
        let record = match entry {
            Entry::Header { .. } => return Err(self.invalid("is a second header")),
            Entry::Life { epoch, end } => {
                self.counts.lives += 1;
                return Ok(Some(Restored::Life(Life { epoch, end })));
            }
            Entry::Resource(entry) => {
                self.counts.lines += 1;
                entry.into_record()
            }
            Entry::List { kind, hash, offset } => {
                self.counts.lists += 1;
                list_record(&kind, &hash, offset)
            }
            Entry::Change { offset, change } => {
                self.counts.changes += 1;
                change.into_record(offset)
            }
            Entry::Cursor { name, offset } => {
                self.counts.cursors += 1;
                Ok(Record::Cursor(name.into(), Some(offset)))
            }
            Entry::End { counts, sha256 } => {
                if counts != self.counts || sha256 != before {
                    return Err(self.invalid("has another checksum: lines before it were altered or lost"));
                }
                return Ok(None);
            }
        };
        match record {
            Ok(record) => Ok(Some(Restored::Record(record))),
            Err(problem) => Err(self.invalid(problem)),
        }
    }

    /// The numbers of entries that were read.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    fn entry(&mut self) -> Result<Entry, BackupError> {
        let mut line = Vec::new();
        self.line += 1;
        self.input.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(self.invalid("is missing: the backup was cut off"));
        }
        self.hash.update(&line);
        match serde_json::from_slice(&line) {
            Ok(entry) => Ok(entry),
            Err(error) => Err(self.invalid(format!("cannot be read: {error}"))),
        }
    }

    fn invalid(&self, problem: impl Into<String>) -> BackupError {
        BackupError::Invalid {
            line: self.line,
            problem: problem.into(),
        }
    }
}

fn list_record(kind: &str, hash: &str, offset: u64) -> Result<Record, String> {
    let kind = list_of(kind)?;
    Ok(Record::List(kind, ListHash(parse_hex128(hash)?), offset))
}

fn list_of(name: &str) -> Result<ListKind, String> {
    let found = ListKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("names no list: {name:?}"))
}

fn parse_uri(text: &str) -> Result<ResourceUri, String> {
    ResourceUri::new(text).map_err(|error| format!("has no URI: {error}"))
}

impl EtagEntry {
    fn of(etag: Etag) -> EtagEntry {
        EtagEntry {
            version: etag.version,
            time: etag.updated_at,
            life: etag.life,
        }
    }

    fn into_etag(self) -> Etag {
        Etag {
            version: self.version,
            updated_at: self.time,
            life: self.life,
        }
    }
}

impl ChangeEntry {
    fn of(change: ChangeKind) -> ChangeEntry {
        match change {
            ChangeKind::List(kind) => ChangeEntry::List(kind.name().to_owned()),
            ChangeKind::Resource(uri, etag, cause) => {
                let uri = uri.as_str().to_owned();
                let etag = EtagEntry::of(etag);
                match cause {
                    Cause::Updated => ChangeEntry::Updated { uri, etag },
                    Cause::Removed => ChangeEntry::Removed { uri, etag },
                }
            }
        }
    }

    fn into_record(self, offset: u64) -> Result<Record, String> {
        let change = match self {
            ChangeEntry::List(kind) => ChangeKind::List(list_of(&kind)?),
            ChangeEntry::Updated { uri, etag } => {
                ChangeKind::Resource(parse_uri(&uri)?, etag.into_etag(), Cause::Updated)
            }
            ChangeEntry::Removed { uri, etag } => {
                ChangeKind::Resource(parse_uri(&uri)?, etag.into_etag(), Cause::Removed)
            }
        };
        Ok(Record::Change(LoggedChange { offset, change }))
    }
}

impl ResourceEntry {
    fn of(kept: KeptLine) -> ResourceEntry {
        let KeptLine { uri, line, resource } = kept;
        ResourceEntry {
            uri: uri.as_str().to_owned(),
            etag: EtagEntry::of(line.etag),
            offset: line.offset,
            state: match line.state {
                LineState::Live => StateEntry::Live,
                LineState::Removed => StateEntry::Removed,
                LineState::Touched => StateEntry::Touched,
            },
            digest: line.digest.map(|Digest(digest)| hex128(digest)),
            owner: line.owner.map(|owner| owner.to_string()),
            unclaimed_since: line.unclaimed_since,
            content: resource.as_ref().map(ContentEntry::of),
        }
    }

    fn into_record(self) -> Result<Record, String> {
        let uri = parse_uri(&self.uri)?;
        let digest = match &self.digest {
            Some(text) => Some(Digest(parse_hex128(text)?)),
            None => None,
        };
        let owner = match &self.owner {
            Some(text) => match text.parse::<Owner>() {
                Ok(owner) => Some(owner),
                Err(error) => return Err(format!("has an {error}")),
            },
            None => None,
        };
        let content = match self.content {
            Some(content) => content.into_content(&uri, digest)?,
            None => KeptContent::None,
        };
        let line = Line {
            etag: self.etag.into_etag(),
            digest,
            state: match self.state {
                StateEntry::Live => LineState::Live,
                StateEntry::Removed => LineState::Removed,
                StateEntry::Touched => LineState::Touched,
            },
            offset: self.offset,
            owner,
            unclaimed_since: self.unclaimed_since,
        };
        Ok(Record::Line { uri, line, content })
    }
}

impl ContentEntry {
    fn of(resource: &Resource) -> ContentEntry {
        let descriptor = resource.descriptor();
        let body = match resource.content() {
            Content::Held(Body::Text(text)) => BodyEntry::Text(text.to_string()),
            Content::Held(Body::Blob(bytes)) => BodyEntry::Base64(BASE64.encode(bytes)),
            // A store keeps held bodies alone.
            Content::Lazy(_) => BodyEntry::Text(String::new()),
        };
        ContentEntry {
            name: descriptor.name.clone(),
            title: descriptor.title.clone(),
            description: descriptor.description.clone(),
            media_type: descriptor.media_type.clone(),
            subscribable: descriptor.subscribable,
            listed: descriptor.listed,
            body,
        }
    }

    fn into_content(self, uri: &ResourceUri, digest: Option<Digest>) -> Result<KeptContent, String> {
        let body = match self.body {
            BodyEntry::Text(text) => Body::text(text),
            BodyEntry::Base64(text) => match BASE64.decode(text) {
                Ok(bytes) => Body::blob(bytes),
                Err(error) => return Err(format!("has a body that is not base64: {error}")),
            },
        };
        if digest != Some(body.digest(self.media_type.as_deref())) {
            return Err("has a body that differs from its digest".into());
        }
        let descriptor = Descriptor {
            uri: uri.clone(),
            name: self.name,
            title: self.title,
            description: self.description,
            media_type: self.media_type,
            subscribable: self.subscribable,
            listed: self.listed,
        };
        let resource = Resource::new(descriptor, Content::Held(body));
        Ok(KeptContent::Resource(resource.into()))
    }
}

fn hex128(number: u128) -> String {
    format!("{number:032x}")
}

fn parse_hex128(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16).map_err(|error| format!("has no hash: {error}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
