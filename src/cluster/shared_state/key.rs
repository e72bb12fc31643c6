//! The keys of the shared state, and the subjects at which they stand.

use std::fmt;

/// The longest name of a key in bytes.
const NAME_LEN_MAX: usize = 200;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateKind {
    /// The report of a node that is there.
    Presence,
    /// A task that one node has.
    Lease,
    /// The place at which a task goes on when another node takes it over.
    Cursor,
    /// A secret that all nodes share.
    Secret,
    /// The record of a session. Not heard, since there are many: a node reads the one that it is asked for.
    Session,
    /// A note for one node: a session of it moved while it did not answer. The name begins with the number of
    /// the node's start and a dot, and only that node hears it.
    Moved,
}

/// A stream of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateStream {
    /// The nodes and their tasks.
    Nodes,
    /// The sessions. One of their own, so that they never take the room of leases.
    Sessions,
}

impl StateKind {
    /// Every kind.
    const ALL: [StateKind; 6] = [
        StateKind::Presence,
        StateKind::Lease,
        StateKind::Cursor,
        StateKind::Secret,
        StateKind::Session,
        StateKind::Moved,
    ];

    const fn token(self) -> &'static str {
        match self {
            StateKind::Presence => "p",
            StateKind::Lease => "l",
            StateKind::Cursor => "c",
            StateKind::Secret => "k",
            StateKind::Session => "s",
            StateKind::Moved => "m",
        }
    }
}

/// The key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey {
    kind: StateKind,
    name: String,
}

impl StateKey {
    /// Makes a key. A name is cut after 200 bytes.
    pub fn new(kind: StateKind, name: &str) -> StateKey {
        let mut len = name.len().min(NAME_LEN_MAX);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        let name = name[..len].to_owned();
        StateKey { kind, name }
    }

    /// Returns its kind.
    pub fn kind(&self) -> StateKind {
        self.kind
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.token(), self.name)
    }
}

/// The names of the stream and of its subjects.
#[derive(Debug, Clone)]
pub(super) struct StateNames {
    /// The stream.
    pub(super) stream: String,
    prefix: String,
    /// The subjects at which nodes ask each other.
    questions: String,
}

impl StateNames {
    pub(super) fn new(namespace: &str, stream: StateStream) -> StateNames {
        let (suffix, token) = match stream {
            StateStream::Nodes => ("V", "v"),
            StateStream::Sessions => ("S", "s"),
        };
        StateNames {
            stream: format!("TIDINGS_{namespace}_{suffix}"),
            prefix: format!("tidings.{namespace}.{token}."),
            questions: format!("tidings.{namespace}.q."),
        }
    }

    /// The subject at which the node of this start is asked.
    pub(super) fn questions_to(&self, boot: u32) -> String {
        format!("{}{boot:08x}", self.questions)
    }

    /// The subjects of the notes for the node of this start.
    pub(super) fn notes_for(&self, boot: u32) -> String {
        format!("{}{}.{boot:08x}.>", self.prefix, StateKind::Moved.token())
    }

    /// The subjects of the stream.
    pub(super) fn all(&self) -> String {
        format!("{}>", self.prefix)
    }

    /// The subjects of a kind.
    pub(super) fn of_kind(&self, kind: StateKind) -> String {
        format!("{}{}.>", self.prefix, kind.token())
    }

    /// The subject of a key. Bytes that a subject cannot have, or that could be taken for others, are written
    /// as `=` and two digits.
    pub(super) fn subject(&self, key: &StateKey) -> String {
        let mut subject = format!("{}{}.", self.prefix, key.kind.token());
        for byte in key.name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => subject.push(char::from(byte)),
                // The token of the node, by which it hears its notes alone.
                b'.' if key.kind == StateKind::Moved => subject.push('.'),
                other => subject.push_str(&format!("={other:02x}")),
            }
        }
        subject
    }

    /// The key of a subject; none for one that this version does not write.
    pub(super) fn key(&self, subject: &str) -> Option<StateKey> {
        let (kind, token) = subject.strip_prefix(&self.prefix)?.split_once('.')?;
        let kind = StateKind::ALL.into_iter().find(|one| one.token() == kind)?;
        let mut parts = token.split('=');
        let mut name = parts.next()?.as_bytes().to_vec();
        for part in parts {
            name.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
            name.extend_from_slice(&part.as_bytes()[2..]);
        }
        let name = String::from_utf8(name).ok()?;
        Some(StateKey { kind, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subject_shows_plain_names() {
        let names = StateNames::new("default", StateStream::Nodes);
        let key = StateKey::new(StateKind::Lease, "source.work/a");
        assert_eq!(names.subject(&key), "tidings.default.v.l.source=2ework=2fa");
        assert_eq!(key.to_string(), "l.source.work/a");
        assert_eq!(names.stream, "TIDINGS_default_V");
    }

    #[test]
    fn note_stands_at_a_subject_of_its_node() {
        let names = StateNames::new("default", StateStream::Sessions);
        let key = StateKey::new(StateKind::Moved, "0000002a.abc");
        let subject = names.subject(&key);
        assert_eq!(subject, "tidings.default.s.m.0000002a.abc");
        assert_eq!(names.notes_for(42), "tidings.default.s.m.0000002a.>");
        assert_eq!(names.key(&subject), Some(key));
        assert_eq!(names.stream, "TIDINGS_default_S");
        assert_eq!(names.questions_to(42), "tidings.default.q.0000002a");
    }

    #[test]
    fn foreign_subjects_have_no_key() {
        let names = StateNames::new("a", StateStream::Nodes);
        for subject in [
            "",
            "tidings.a.v.",
            "tidings.b.v.l.x",
            "tidings.a.v.z.x",
            "tidings.a.v.l.=g1",
            "tidings.a.v.l.=é",
        ] {
            assert_eq!(names.key(subject), None, "{subject}");
        }
    }

    #[test]
    fn long_name_is_cut_between_characters() {
        let key = StateKey::new(StateKind::Cursor, &"é".repeat(150));
        assert_eq!(key.name().len(), 200);
        let odd = StateKey::new(StateKind::Cursor, &format!("a{}", "é".repeat(150)));
        assert_eq!(odd.name().len(), 199);
    }

    proptest! {
        #[test]
        fn key_is_read_back_from_its_subject(name in "\\PC{0,40}") {
            let names = StateNames::new("n", StateStream::Nodes);
            let key = StateKey::new(StateKind::Presence, &name);
            let subject = names.subject(&key);
            prop_assert!(!subject.contains([' ', '*', '>']));
            prop_assert_eq!(subject.matches('.').count(), 4);
            prop_assert_eq!(names.key(&subject), Some(key));
        }

        #[test]
        fn no_subject_makes_the_reader_panic(subject in "tidings.n.v.[plcksm].\\PC{0,20}") {
            let names = StateNames::new("n", StateStream::Nodes);
            if let Some(key) = names.key(&subject) {
                prop_assert!(key.name().len() <= subject.len());
            }
        }
    }
}
