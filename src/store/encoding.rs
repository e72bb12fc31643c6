//! The encodings of a line with its content and of a change, which every later version must be able to read.
//!
//! Numbers are little-endian, and a text is its length in 4 bytes and its UTF-8. A line is one byte of format
//! (2), one of flags, then version, time and offset as 8 bytes each, and the optional parts in the order of
//! their flags. Format 1 had the flags "live" (1) and "digest" (2) and no other part.

use std::borrow::Cow;

use bytes::Bytes;
use tidings_actors::{
    Body, Cause, ChangeKind, Descriptor, Digest, Etag, Line, LineState, ListKind, LoggedChange, Owner,
    ResourceUri,
};

use super::error::Fault;

const FORMAT: u8 = 2;

const FORMER_FORMAT: u8 = 1;
const FORMER_LIVE: u8 = 1;
const FORMER_DIGEST: u8 = 2;

/// The flags of a line; the state takes the lowest two bits.
mod line_flag {
    pub(super) const STATE: u8 = 3;
    pub(super) const LIFE: u8 = 4;
    pub(super) const DIGEST: u8 = 8;
    pub(super) const OWNER: u8 = 16;
    pub(super) const UNCLAIMED: u8 = 32;
    pub(super) const CONTENT: u8 = 64;
    pub(super) const ALL: u8 = 127;
}

/// The flags of a content.
mod content_flag {
    pub(super) const SUBSCRIBABLE: u8 = 1;
    pub(super) const LISTED: u8 = 2;
    pub(super) const TITLE: u8 = 4;
    pub(super) const DESCRIPTION: u8 = 8;
    pub(super) const MEDIA_TYPE: u8 = 16;
    pub(super) const BLOB: u8 = 32;
    pub(super) const FILE: u8 = 64;
    pub(super) const ALL: u8 = 127;
}

/// The SHA-256 of a body, which names its file.
pub(crate) type BodyHash = [u8; 32];

/// The place of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredBody<'a> {
    /// In the line itself.
    Inline(&'a [u8]),
    /// In the file of this name, with this length.
    File(BodyHash, u64),
}

/// The content of a resource in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredContent<'a> {
    pub(crate) descriptor: Descriptor,
    /// True for a binary body.
    pub(crate) blob: bool,
    pub(crate) body: StoredBody<'a>,
}

impl<'a> StoredContent<'a> {
    /// Appends the encoding of a resource whose body is stored in `body`.
    pub(crate) fn encode(descriptor: &Descriptor, blob: bool, body: StoredBody<'_>, out: &mut Vec<u8>) {
        let optional = [
            (content_flag::TITLE, descriptor.title.as_deref()),
            (content_flag::DESCRIPTION, descriptor.description.as_deref()),
            (content_flag::MEDIA_TYPE, descriptor.media_type.as_deref()),
        ];
        let mut flags = 0;
        for (flag, text) in optional {
            flags |= flag_if(text.is_some(), flag);
        }
        flags |= flag_if(descriptor.subscribable, content_flag::SUBSCRIBABLE);
        flags |= flag_if(descriptor.listed, content_flag::LISTED);
        flags |= flag_if(blob, content_flag::BLOB);
        flags |= flag_if(matches!(body, StoredBody::File(..)), content_flag::FILE);
        out.push(flags);
        write_text(&descriptor.name, out);
        for text in optional.iter().filter_map(|(_, text)| *text) {
            write_text(text, out);
        }
        match body {
            StoredBody::Inline(bytes) => out.extend_from_slice(bytes),
            StoredBody::File(hash, len) => {
                out.extend_from_slice(&hash);
                out.extend_from_slice(&len.to_le_bytes());
            }
        }
    }

    fn decode(uri: &ResourceUri, mut input: Input<'a>) -> Option<StoredContent<'a>> {
        let flags = input.byte()?;
        // A later version wrote parts here whose length this one cannot know.
        if flags & !content_flag::ALL != 0 {
            return None;
        }
        let descriptor = Descriptor {
            uri: uri.clone(),
            name: input.text()?.to_owned(),
            title: input.text_if(flags & content_flag::TITLE != 0)?,
            description: input.text_if(flags & content_flag::DESCRIPTION != 0)?,
            media_type: input
                .text_if(flags & content_flag::MEDIA_TYPE != 0)?
                .map(Cow::Owned),
            subscribable: flags & content_flag::SUBSCRIBABLE != 0,
            listed: flags & content_flag::LISTED != 0,
        };
        let body = match flags & content_flag::FILE != 0 {
            true => {
                let file = StoredBody::File(input.array()?, input.number()?);
                input.end()?;
                file
            }
            false => StoredBody::Inline(input.0),
        };
        Some(StoredContent {
            descriptor,
            blob: flags & content_flag::BLOB != 0,
            body,
        })
    }

    /// Returns the body of these bytes; none if a text is not UTF-8.
    pub(crate) fn to_body(&self, bytes: &[u8]) -> Option<Body> {
        match self.blob {
            true => Some(Body::blob(Bytes::copy_from_slice(bytes))),
            false => Some(Body::text(std::str::from_utf8(bytes).ok()?)),
        }
    }
}

/// A line as the table holds it, with its content not decoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredLine<'a> {
    pub(crate) line: Line,
    /// The encoded content, if the store keeps it.
    pub(crate) content: Option<&'a [u8]>,
}

impl<'a> StoredLine<'a> {
    /// Encodes `line`; the caller appends the encoded content if it says that there is one.
    pub(crate) fn encode(line: &Line, with_content: bool, out: &mut Vec<u8>) {
        let mut flags = match line.state {
            LineState::Live => 0,
            LineState::Removed => 1,
            LineState::Touched => 2,
        };
        flags |= flag_if(line.etag.life != 0, line_flag::LIFE);
        flags |= flag_if(line.digest.is_some(), line_flag::DIGEST);
        flags |= flag_if(line.owner.is_some(), line_flag::OWNER);
        flags |= flag_if(line.unclaimed_since.is_some(), line_flag::UNCLAIMED);
        flags |= flag_if(with_content, line_flag::CONTENT);
        out.extend_from_slice(&[FORMAT, flags]);
        write_numbers(&[line.etag.version, line.etag.updated_at, line.offset], out);
        if line.etag.life != 0 {
            out.extend_from_slice(&line.etag.life.to_le_bytes());
        }
        if let Some(Digest(digest)) = line.digest {
            out.extend_from_slice(&digest.to_le_bytes());
        }
        if let Some(owner) = &line.owner {
            write_text(&owner.to_string(), out);
        }
        if let Some(since) = line.unclaimed_since {
            write_numbers(&[since], out);
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<StoredLine<'a>, Fault> {
        let decoded = match bytes.first() {
            // An operator is told to use the newer version, rather than that the file is damaged.
            Some(&format) if format > FORMAT => return Err(Fault::Newer(format.into())),
            Some(&FORMER_FORMAT) => decode_former(Input(&bytes[1..])),
            Some(&FORMAT) => decode_line(Input(&bytes[1..])),
            _ => None,
        };
        decoded.ok_or_else(|| Fault::Damaged(format!("a line of {} bytes cannot be decoded", bytes.len())))
    }

    /// Decodes the content of `uri`; none if the line has none.
    pub(crate) fn decode_content(&self, uri: &ResourceUri) -> Result<Option<StoredContent<'a>>, Fault> {
        let Some(bytes) = self.content else {
            return Ok(None);
        };
        match StoredContent::decode(uri, Input(bytes)) {
            Some(content) => Ok(Some(content)),
            None => Err(Fault::Damaged(format!("the content of {uri} cannot be decoded"))),
        }
    }

    /// Returns the name of the file that holds the body, without decoding the rest of the content.
    pub(crate) fn body_file(&self) -> Option<BodyHash> {
        const TAIL: usize = size_of::<BodyHash>() + size_of::<u64>();
        let content = self.content?;
        let flags = content.first()?;
        if flags & content_flag::FILE == 0 {
            return None;
        }
        // The hash and the length end the content of a body in a file.
        let tail = content.get(content.len().checked_sub(TAIL)?..)?;
        tail.first_chunk().copied()
    }
}

fn decode_line(mut input: Input<'_>) -> Option<StoredLine<'_>> {
    let flags = input.byte()?;
    if flags & !line_flag::ALL != 0 {
        return None;
    }
    let state = match flags & line_flag::STATE {
        0 => LineState::Live,
        1 => LineState::Removed,
        2 => LineState::Touched,
        _ => return None,
    };
    let mut etag = input.etag_without_life()?;
    let offset = input.number()?;
    if flags & line_flag::LIFE != 0 {
        etag.life = u32::from_le_bytes(input.array()?);
    }
    let digest = match flags & line_flag::DIGEST != 0 {
        true => Some(Digest(u128::from_le_bytes(input.array()?))),
        false => None,
    };
    let owner = match flags & line_flag::OWNER != 0 {
        true => Some(input.text()?.parse::<Owner>().ok()?),
        false => None,
    };
    let unclaimed_since = match flags & line_flag::UNCLAIMED != 0 {
        true => Some(input.number()?),
        false => None,
    };
    let content = match flags & line_flag::CONTENT != 0 {
        true => Some(input.0),
        false => {
            input.end()?;
            None
        }
    };
    let line = Line {
        etag,
        digest,
        state,
        offset,
        owner,
        unclaimed_since,
    };
    Some(StoredLine { line, content })
}

/// Decodes a line of format 1. It has no owner, so the first owner that registers the URI claims it.
fn decode_former(mut input: Input<'_>) -> Option<StoredLine<'_>> {
    let flags = input.byte()?;
    if flags & !(FORMER_LIVE | FORMER_DIGEST) != 0 {
        return None;
    }
    let etag = input.etag_without_life()?;
    let offset = input.number()?;
    let digest = match flags & FORMER_DIGEST != 0 {
        true => Some(Digest(u128::from_le_bytes(input.array()?))),
        false => None,
    };
    input.end()?;
    let line = Line {
        etag,
        digest,
        // Touched members and removed URIs were one state, and are kept in the same way.
        state: match flags & FORMER_LIVE != 0 {
            true => LineState::Live,
            false => LineState::Removed,
        },
        offset,
        owner: None,
        unclaimed_since: None,
    };
    Some(StoredLine { line, content: None })
}

const UPDATED: u8 = 0;
const REMOVED: u8 = 1;
const LIST: u8 = 2;

/// Encodes a change: its kind, then the number of the list, or version, time, life and URI of the resource.
pub(super) fn encode_change(change: &ChangeKind) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    match change {
        ChangeKind::Resource(uri, etag, cause) => {
            out.push(match cause {
                Cause::Updated => UPDATED,
                Cause::Removed => REMOVED,
            });
            write_numbers(&[etag.version, etag.updated_at], &mut out);
            out.extend_from_slice(&etag.life.to_le_bytes());
            out.extend_from_slice(uri.as_str().as_bytes());
        }
        ChangeKind::List(kind) => out.extend_from_slice(&[LIST, list_number(*kind)]),
    }
    out
}

/// Decodes the change at `offset`.
pub(super) fn decode_change(offset: u64, bytes: &[u8]) -> Result<LoggedChange, Fault> {
    match parse_change(Input(bytes)) {
        Some(change) => Ok(LoggedChange { offset, change }),
        None => Err(Fault::Damaged(format!("the change {offset} cannot be decoded"))),
    }
}

fn parse_change(mut input: Input<'_>) -> Option<ChangeKind> {
    let kind = input.byte()?;
    let cause = match kind {
        UPDATED => Cause::Updated,
        REMOVED => Cause::Removed,
        LIST => {
            let kind = list_of(input.byte()?)?;
            input.end()?;
            return Some(ChangeKind::List(kind));
        }
        _ => return None,
    };
    let mut etag = input.etag_without_life()?;
    etag.life = u32::from_le_bytes(input.array()?);
    let uri = ResourceUri::new(std::str::from_utf8(input.0).ok()?).ok()?;
    Some(ChangeKind::Resource(uri, etag, cause))
}

/// Returns the number of a list in the file: its place in [`ListKind::ALL`].
pub(super) fn list_number(kind: ListKind) -> u8 {
    kind as u8
}

/// Returns the list with this number.
pub(super) fn list_of(number: u8) -> Option<ListKind> {
    ListKind::ALL.get(usize::from(number)).copied()
}

fn flag_if(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn write_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Appends a text with its length.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    // No text of a descriptor reaches 4 GiB: bodies and requests are limited far below.
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The rest of an encoding. Each method takes a part from its front, or returns none if it is not there.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*part)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn etag_without_life(&mut self) -> Option<Etag> {
        Some(Etag {
            version: self.number()?,
            updated_at: self.number()?,
            life: 0,
        })
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let (part, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(part).ok()
    }

    /// Takes a text if it is there: the outer option is none if it cannot be decoded.
    fn text_if(&mut self, there: bool) -> Option<Option<String>> {
        match there {
            true => Some(Some(self.text()?.to_owned())),
            false => Some(None),
        }
    }

    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option;
    use proptest::prelude::*;

    fn uri() -> ResourceUri {
        ResourceUri::new("demo://a").unwrap()
    }

    fn owners() -> impl Strategy<Value = Owner> {
        prop_oneof![
            Just(Owner::Embedder),
            Just(Owner::Api),
            Just(Owner::Workspace),
            Just(Owner::Register),
            "[a-z]{1,8}".prop_map(|name| Owner::Collection(name.into())),
        ]
    }

    fn states() -> impl Strategy<Value = LineState> {
        prop_oneof![
            Just(LineState::Live),
            Just(LineState::Removed),
            Just(LineState::Touched)
        ]
    }

    prop_compose! {
        fn lines()(
            (version, updated_at, life) in (any::<u64>(), any::<u64>(), 0..Etag::LIVES),
            digest in option::of(any::<u128>()),
            state in states(),
            offset: u64,
            owner in option::of(owners()),
            unclaimed_since in option::of(any::<u64>()),
        ) -> Line {
            let digest = digest.map(Digest);
            Line { etag: Etag { version, updated_at, life }, digest, state, offset, owner, unclaimed_since }
        }
    }

    prop_compose! {
        fn descriptors()(
            name in ".{0,12}",
            title in option::of(".{0,12}"),
            description in option::of(".{0,12}"),
            media_type in option::of("[a-z/]{0,12}".prop_map(Cow::Owned)),
            subscribable: bool,
            listed: bool,
        ) -> Descriptor {
            Descriptor { uri: uri(), name, title, description, media_type, subscribable, listed }
        }
    }

    proptest! {
        #[test]
        fn line_round_trips(line in lines(), content in option::of(any::<Vec<u8>>())) {
            let mut bytes = Vec::new();
            StoredLine::encode(&line, content.is_some(), &mut bytes);
            bytes.extend(content.iter().flatten());
            let stored = StoredLine::decode(&bytes).unwrap();
            prop_assert_eq!(stored, StoredLine { line, content: content.as_deref() });
        }

        #[test]
        fn content_round_trips(
            descriptor in descriptors(),
            blob: bool,
            bytes: Vec<u8>,
            file in option::of((any::<[u8; 32]>(), any::<u64>())),
        ) {
            let body = match file {
                Some((hash, len)) => StoredBody::File(hash, len),
                None => StoredBody::Inline(&bytes),
            };
            let mut encoded = Vec::new();
            StoredContent::encode(&descriptor, blob, body, &mut encoded);
            let decoded = StoredContent::decode(&uri(), Input(&encoded));
            prop_assert_eq!(decoded, Some(StoredContent { descriptor, blob, body }));
        }

        #[test]
        fn change_round_trips(version: u64, updated_at: u64, life: u32, removed: bool, list in 0..3u8) {
            let cause = if removed { Cause::Removed } else { Cause::Updated };
            for change in [
                ChangeKind::Resource(uri(), Etag { version, updated_at, life }, cause),
                ChangeKind::List(list_of(list).unwrap()),
            ] {
                let decoded = decode_change(7, &encode_change(&change)).unwrap();
                prop_assert_eq!(decoded, LoggedChange { offset: 7, change });
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>, format in 0..4u8) {
            let mut line = bytes.clone();
            line.insert(0, format);
            if let Ok(stored) = StoredLine::decode(&line) {
                stored.body_file();
                let _content = stored.decode_content(&uri());
            }
            let _change = decode_change(1, &bytes);
        }
    }

    #[test]
    fn encoding_is_fixed() {
        let line = Line {
            etag: Etag {
                version: 3,
                updated_at: 0x0102_0304_0506_0708,
                life: 0,
            },
            digest: Some(Digest(1)),
            state: LineState::Live,
            offset: 9,
            owner: Some(Owner::Api),
            unclaimed_since: None,
        };
        let mut bytes = Vec::new();
        StoredLine::encode(&line, false, &mut bytes);
        let expected = [
            2, 24, 3, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, b'a', b'p', b'i',
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn former_line_is_live_without_owner() {
        let mut bytes = vec![
            1, 3, 3, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
        ];
        bytes.extend_from_slice(&7u128.to_le_bytes());
        let line = StoredLine::decode(&bytes).unwrap().line;
        assert_eq!((line.state, line.offset, line.owner), (LineState::Live, 9, None));
        assert_eq!(
            (line.etag.to_string().as_str(), line.digest),
            ("v3-8", Some(Digest(7)))
        );
        bytes[1] = 2;
        assert_eq!(StoredLine::decode(&bytes).unwrap().line.state, LineState::Removed);
        for bytes in [&[][..], &[1], &[0, 1], &[1, 4], &[1, 1, 0], &bytes[..20]] {
            assert!(
                matches!(StoredLine::decode(bytes), Err(Fault::Damaged(_))),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn newer_format_is_not_damage() {
        assert!(matches!(StoredLine::decode(&[3, 0]), Err(Fault::Newer(3))));
    }

    #[test]
    fn file_of_a_body_is_found_in_the_line() {
        let descriptor = Descriptor::new(uri());
        for (body, file) in [
            (StoredBody::File([7; 32], 100), Some([7; 32])),
            (StoredBody::Inline(&[7; 40]), None),
        ] {
            let mut content = Vec::new();
            StoredContent::encode(&descriptor, false, body, &mut content);
            let stored = StoredLine {
                line: decode_former(Input(&[1; 25])).unwrap().line,
                content: Some(&content),
            };
            assert_eq!(stored.body_file(), file);
        }
    }
}
