//! Who reads an outbox.
//!
//! Owns: [`Readers`], in the order in which they came. Never: hands out entries. Nearly every outbox has one reader or
//! none, so that one lies beside the set it reads rather than on the heap.

use super::Reader;

/// The readers that are open.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// The one that is handed entries.
    newest: Option<Reader>,
    /// Those before it, oldest first.
    older: Vec<Reader>,
}

impl Readers {
    /// Adds one, which is handed entries from now on.
    pub(super) fn push(&mut self, reader: Reader) {
        self.older.extend(self.newest.replace(reader));
    }

    /// Takes the one called `id` out; the newest of the others is handed entries from now on.
    pub(super) fn remove(&mut self, id: u64) -> Option<Reader> {
        if self.newest.as_ref().is_some_and(|newest| newest.id == id) {
            let next = self.older.pop();
            return std::mem::replace(&mut self.newest, next);
        }
        let place = self.older.iter().position(|reader| reader.id == id)?;
        Some(self.older.remove(place))
    }

    /// The one that is handed entries.
    pub(super) fn newest(&self) -> Option<&Reader> {
        self.newest.as_ref()
    }

    pub(super) fn newest_mut(&mut self) -> Option<&mut Reader> {
        self.newest.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reader> {
        self.older.iter().chain(&self.newest)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Reader> {
        self.older.iter_mut().chain(&mut self.newest)
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }
}
