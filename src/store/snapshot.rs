//! A state of the store, read in one transaction while others may write.

use redb::{
    Database, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    TableError, Value,
};
use tidings_actors::{
    Checkpoint, Content, Digest, KeptLine, Life, ListHash, ListKind, LoggedChange, Resource, ResourceUri,
};

use super::body_files::{BodyFolder, FolderHold};
use super::encoding::{BodyHash, StoredBody, StoredContent, StoredLine, decode_change, list_of};
use super::error::Fault;
use super::tables::{CHANGES, CURSORS, FORMAT, FORMAT_KEY, LINES, LISTS, LIVES, META, REMOVED};

/// One state of the store.
pub(super) struct Snapshot {
    transaction: ReadTransaction,
    /// Keeps the files of the bodies that this state refers to.
    files: FolderHold,
}

impl Snapshot {
    /// Begins to read the current state.
    pub(super) fn begin(database: &Database, folder: &BodyFolder) -> Result<Snapshot, Fault> {
        // The files first: a transaction that is not visible yet may drop some of them.
        let files = folder.hold();
        let transaction = database.begin_read()?;
        let snapshot = Snapshot { transaction, files };
        match snapshot.number(FORMAT_KEY)? {
            newer if newer > FORMAT => Err(Fault::Newer(newer)),
            _ => Ok(snapshot),
        }
    }

    /// Opens a table; none in a file of a format that did not have it.
    fn table<K: Key, V: Value>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Option<ReadOnlyTable<K, V>>, Fault> {
        match self.transaction.open_table(definition) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, Fault> {
        if let Some(table) = self.table(META)?
            && let Some(value) = table.get(name)?
        {
            return Ok(value.value());
        }
        Ok(0)
    }

    /// Reads everything, and hands each reference to a body file to `count`.
    pub(super) fn checkpoint(&self, mut count: impl FnMut(BodyHash)) -> Result<Checkpoint, Fault> {
        let mut lines = Vec::new();
        self.each_line(|kept, file| {
            lines.push(kept);
            if let Some(file) = file {
                count(file);
            }
            Ok::<(), Fault>(())
        })?;
        // The ledger forgets in this order.
        lines.sort_unstable_by_key(|kept| kept.line.offset);
        let mut checkpoint = Checkpoint {
            lives: self.lives()?,
            offset: self.number("offset")?,
            floor: self.number("floor")?,
            lines,
            cursors: self.cursors()?,
            ..Checkpoint::default()
        };
        for (kind, hash, offset) in self.lists()? {
            checkpoint.lists[kind as usize] = Some((hash, offset));
        }
        self.each_change(|change| {
            checkpoint.changes.push(change);
            Ok::<(), Fault>(())
        })?;
        Ok(checkpoint)
    }

    /// Hands over every line in the order of the URIs, with its body read and verified, and the body's file.
    pub(super) fn each_line<E: From<Fault>>(
        &self,
        mut take: impl FnMut(KeptLine, Option<BodyHash>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(lines) = self.table(LINES)? else {
            return Ok(());
        };
        for entry in lines.iter().map_err(Fault::from)? {
            let (uri, bytes) = entry.map_err(Fault::from)?;
            let stored = StoredLine::decode(bytes.value())?;
            let file = stored.body_file();
            take(self.read_line(uri.value(), stored)?, file)?;
        }
        Ok(())
    }

    fn read_line(&self, uri: &str, stored: StoredLine<'_>) -> Result<KeptLine, Fault> {
        let uri = ResourceUri::new(uri).map_err(|error| Fault::Damaged(error.to_string()))?;
        let resource = match stored.decode_content(&uri)? {
            Some(content) => Some(self.read_resource(&uri, content, stored.line.digest)?),
            None => None,
        };
        Ok(KeptLine {
            uri,
            line: stored.line,
            resource,
        })
    }

    /// Reads the body and compares it with the digest of the line, so that damage is never served as content.
    fn read_resource(
        &self,
        uri: &ResourceUri,
        content: StoredContent<'_>,
        digest: Option<Digest>,
    ) -> Result<Resource, Fault> {
        let read;
        let (bytes, file) = match content.body {
            StoredBody::Inline(bytes) => (bytes, None),
            StoredBody::File(hash, len) => {
                read = match self.files.folder().read(&hash, len) {
                    Ok(bytes) => bytes,
                    Err(problem) => return Err(self.body_fault(uri, &hash, problem)),
                };
                (read.as_slice(), Some(hash))
            }
        };
        // The pages of the database have checksums of their own; files have none, and both are checked alike.
        if let Some(body) = content.to_body(bytes) {
            let resource = Resource::new(content.descriptor, Content::Held(body));
            if digest == resource.digest() {
                return Ok(resource);
            }
        }
        match file {
            Some(hash) => Err(self.body_fault(uri, &hash, "was altered".into())),
            None => Err(Fault::Damaged(format!("the body of {uri} was altered"))),
        }
    }

    fn body_fault(&self, uri: &ResourceUri, hash: &BodyHash, problem: String) -> Fault {
        Fault::Body {
            uri: uri.clone(),
            file: self.files.folder().path(hash),
            problem,
        }
    }

    /// Returns all lives, of which the last is the one that ended last.
    pub(super) fn lives(&self) -> Result<Vec<Life>, Fault> {
        let mut lives = Vec::new();
        if let Some(table) = self.table(LIVES)? {
            for entry in table.iter()? {
                let (epoch, end) = entry?;
                lives.push(Life {
                    epoch: epoch.value(),
                    end: end.value(),
                });
            }
        }
        // A new file has no life yet.
        if let epoch @ 1.. = self.number("epoch")? {
            let end = self.number("offset")?;
            lives.push(Life { epoch, end });
        }
        Ok(lives)
    }

    pub(super) fn lists(&self) -> Result<Vec<(ListKind, ListHash, u64)>, Fault> {
        let mut lists = Vec::new();
        if let Some(table) = self.table(LISTS)? {
            for entry in table.iter()? {
                let (kind, value) = entry?;
                let Some(kind) = list_of(kind.value()) else {
                    return Err(Fault::Damaged(format!("there is no list {}", kind.value())));
                };
                let (hash, offset) = value.value();
                lists.push((kind, ListHash(hash), offset));
            }
        }
        Ok(lists)
    }

    /// Hands over the change log, the oldest change first.
    pub(super) fn each_change<E: From<Fault>>(
        &self,
        mut take: impl FnMut(LoggedChange) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(changes) = self.table(CHANGES)? else {
            return Ok(());
        };
        for entry in changes.iter().map_err(Fault::from)? {
            let (offset, bytes) = entry.map_err(Fault::from)?;
            take(decode_change(offset.value(), bytes.value())?)?;
        }
        Ok(())
    }

    pub(super) fn cursors(&self) -> Result<Vec<(std::sync::Arc<str>, u64)>, Fault> {
        let mut cursors = Vec::new();
        if let Some(table) = self.table(CURSORS)? {
            for entry in table.iter()? {
                let (name, offset) = entry?;
                cursors.push((name.value().into(), offset.value()));
            }
        }
        Ok(cursors)
    }

    /// Returns the offsets and URIs of the lines that are not live, as their table has them.
    pub(super) fn removed(&self) -> Result<Vec<(u64, String)>, Fault> {
        let mut removed = Vec::new();
        if let Some(table) = self.table(REMOVED)? {
            for entry in table.iter()? {
                let (key, _) = entry?;
                let (offset, uri) = key.value();
                removed.push((offset, uri.to_owned()));
            }
        }
        Ok(removed)
    }
}
