//! The large bodies that the newest records name, as far as this node has heard them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::encoding::BodyHash;

/// The large bodies that the newest records of the log name. Clones share them.
#[derive(Clone, Default)]
pub struct NamedBodies(Arc<Mutex<NamedTable>>);

impl std::fmt::Debug for NamedBodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedBodies").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct NamedTable {
    /// By the subject of the record.
    by_subject: HashMap<Box<str>, BodyHash>,
    /// The sequence number up to which all records were heard.
    heard: u64,
    /// True once every record was heard that the log had when its reading began.
    is_whole: bool,
}

impl NamedBodies {
    fn lock(&self) -> MutexGuard<'_, NamedTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the newest record of a subject, with the body that it names, if any.
    pub(in crate::cluster) fn note(&self, sequence: u64, subject: &str, body: Option<BodyHash>) {
        let mut named = self.lock();
        named.heard = sequence;
        match body {
            Some(body) => {
                named.by_subject.insert(subject.into(), body);
            }
            None => {
                named.by_subject.remove(subject);
            }
        }
    }

    /// Notes that the log was heard as far as it went when its reading began.
    pub(in crate::cluster) fn set_whole(&self) {
        self.lock().is_whole = true;
    }

    /// Forgets everything: the log is read from its beginning.
    pub(in crate::cluster) fn clear(&self) {
        *self.lock() = NamedTable::default();
    }

    /// Returns the bodies that records up to `sequence` name; none if this node has not heard all of them.
    pub(in crate::cluster) fn as_of(&self, sequence: u64) -> Option<HashSet<BodyHash>> {
        let named = self.lock();
        match named.is_whole && named.heard >= sequence {
            true => Some(named.by_subject.values().copied().collect()),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_record_of_a_subject_names_its_body() {
        let named = NamedBodies::default();
        named.note(1, "a", Some([1; 32]));
        named.note(2, "b", Some([1; 32]));
        assert_eq!(named.as_of(2), None, "the log was not read whole");
        named.set_whole();
        assert_eq!(named.as_of(3), None, "a record was not heard");
        named.note(3, "a", Some([2; 32]));
        assert_eq!(named.as_of(3), Some(HashSet::from([[1; 32], [2; 32]])));
        named.note(4, "b", None);
        assert_eq!(named.as_of(3), Some(HashSet::from([[2; 32]])));
        named.clear();
        assert_eq!(named.as_of(0), None);
    }
}
