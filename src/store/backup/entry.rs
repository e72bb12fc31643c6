//! The lines of a backup, and their conversion from and to the records of the store.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use tidings_actors::{
    Body, Cause, ChangeKind, Content, Descriptor, Digest, Etag, KeptContent, KeptLine, Line, LineState,
    ListHash, ListKind, LoggedChange, Owner, Record, Resource, ResourceUri,
};

use super::Counts;

/// One line of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Entry {
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
    // Boxed, because it is several times as large as the other entries.
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
pub(super) enum ChangeEntry {
    List(String),
    Updated { uri: String, etag: EtagEntry },
    Removed { uri: String, etag: EtagEntry },
}

/// An etag as numbers: its text would leave out a tag of zero.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EtagEntry {
    version: u64,
    time: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    life: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceEntry {
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

pub(super) fn list_record(kind: &str, hash: &str, offset: u64) -> Result<Record, String> {
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
    pub(super) fn of(change: ChangeKind) -> ChangeEntry {
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

    pub(super) fn into_record(self, offset: u64) -> Result<Record, String> {
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
    pub(super) fn of(kept: KeptLine) -> ResourceEntry {
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

    pub(super) fn into_record(self) -> Result<Record, String> {
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
            media_type: descriptor.media_type.clone().map(Cow::into_owned),
            subscribable: descriptor.subscribable,
            listed: descriptor.listed,
            body,
        }
    }

    fn into_content(self, uri: &ResourceUri, digest: Option<Digest>) -> Result<KeptContent, String> {
        let body = match self.body {
            // Text stands in the backup as it is, so that common tools can search it.
            BodyEntry::Text(text) => Body::text(text),
            BodyEntry::Base64(text) => match BASE64.decode(text) {
                Ok(bytes) => Body::blob(bytes),
                Err(error) => return Err(format!("has a body that is not base64: {error}")),
            },
        };
        let descriptor = Descriptor {
            uri: uri.clone(),
            name: self.name,
            title: self.title,
            description: self.description,
            media_type: self.media_type.map(Cow::Owned),
            subscribable: self.subscribable,
            listed: self.listed,
        };
        let resource = Resource::new(descriptor, Content::Held(body));
        // A content that was altered by hand would keep its etag, and clients that hold the etag would never
        // read it.
        if digest != resource.digest() {
            return Err("has content that differs from its digest".into());
        }
        Ok(KeptContent::Resource(resource.into()))
    }
}

pub(super) fn hex128(number: u128) -> String {
    format!("{number:032x}")
}

fn parse_hex128(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16).map_err(|error| format!("has no hash: {error}"))
}
