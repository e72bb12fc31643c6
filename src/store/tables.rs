//! The tables of the database, and the effect of each record on them.

use redb::{ReadableTable, ReadableTableMetadata, Table, TableDefinition, WriteTransaction};
use tidings_actors::{Batch, Content, KeptContent, Line, Lineage, Record, Resource, ResourceUri};

use super::body_files::FileUses;
use super::encoding::{BodyHash, StoredBody, StoredContent, StoredLine, encode_change, list_number};
use super::error::Fault;

/// Numbers of the whole store: format, epoch, offset, floor.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// URI → line and content.
pub(super) const LINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lines");
/// Offset and URI of each line that is not live, by which the oldest are found.
pub(super) const REMOVED: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("removed");
/// Number of a list → its hash, and the offset at which it became this one.
pub(super) const LISTS: TableDefinition<'_, u8, (u128, u64)> = TableDefinition::new("lists");
/// Offset → change of the change log.
pub(super) const CHANGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("changes");
/// Name of an attached subscriber → the offset up to which it has everything.
pub(super) const CURSORS: TableDefinition<'_, &str, u64> = TableDefinition::new("cursors");
/// Epoch of a former life → its last offset.
pub(super) const LIVES: TableDefinition<'_, u64, u64> = TableDefinition::new("lives");

/// The name of the layout's number in the table `meta`.
pub(super) const FORMAT_KEY: &str = "format";

/// The layout of the tables. A file with a newer one is refused. Format 1 had the tables `meta`, `lines` and
/// `removed` alone, and its lines are still decoded.
pub(super) const FORMAT: u64 = 2;

/// The largest body that is kept in its line; larger ones get a file. A page of the database holds whole
/// values, so large ones there would be copied with every change of a neighbour.
pub(super) const INLINE_MAX: usize = 64 << 10;

/// Returns the body of a record, if it is to be kept in a file.
pub(super) fn body_for_file(record: &Record) -> Option<&[u8]> {
    let Record::Line {
        content: KeptContent::Resource(resource),
        ..
    } = record
    else {
        return None;
    };
    match resource.content() {
        Content::Held(body) if body.as_bytes().len() > INLINE_MAX => Some(body.as_bytes()),
        _ => None,
    }
}

/// The effects of a transaction that are not in the tables.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The references to body files that changed.
    pub(super) uses: FileUses,
    /// The state before the transaction, by which it can be taken back.
    before: Before,
}

type EncodedLine = Box<[u8]>;

/// The parts of the tables that a transaction changed, as they were before. Cursors and the floor are left
/// out, since their newer values do no harm.
#[derive(Debug, Default)]
struct Before {
    offset: u64,
    /// Lines by URI in the order of the changes; none for a URI that had no line.
    lines: Vec<(Box<str>, Option<EncodedLine>)>,
    lists: Vec<(u8, Option<(u128, u64)>)>,
}

/// The tables of one transaction that writes.
pub(super) struct Tables<'t> {
    meta: Table<'t, &'static str, u64>,
    lines: Table<'t, &'static str, &'static [u8]>,
    removed: Table<'t, (u64, &'static str), ()>,
    lists: Table<'t, u8, (u128, u64)>,
    changes: Table<'t, u64, &'static [u8]>,
    cursors: Table<'t, &'static str, u64>,
    lives: Table<'t, u64, u64>,
    effects: Effects,
    /// The line that is being encoded.
    encoded: Vec<u8>,
}

impl<'t> Tables<'t> {
    /// Opens the tables, and creates those that are missing.
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Tables<'t>, Fault> {
        Ok(Tables {
            meta: transaction.open_table(META)?,
            lines: transaction.open_table(LINES)?,
            removed: transaction.open_table(REMOVED)?,
            lists: transaction.open_table(LISTS)?,
            changes: transaction.open_table(CHANGES)?,
            cursors: transaction.open_table(CURSORS)?,
            lives: transaction.open_table(LIVES)?,
            effects: Effects::default(),
            encoded: Vec::new(),
        })
    }

    /// Ends the use of the tables.
    pub(super) fn into_effects(self) -> Effects {
        self.effects
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, Fault> {
        match self.meta.get(name)? {
            Some(value) => Ok(value.value()),
            None => Ok(0),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        self.meta.insert(name, value)?;
        Ok(())
    }

    fn raise(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        match self.number(name)? < value {
            true => self.set(name, value),
            false => Ok(()),
        }
    }

    /// Applies a batch, whose bodies for files have the hashes `files`, in the order of the records.
    pub(super) fn apply(&mut self, batch: &Batch, files: &[BodyHash]) -> Result<(), Fault> {
        self.effects.before.offset = self.number("offset")?;
        let mut files = files.iter();
        for record in &batch.records {
            self.put(record, &mut files)?;
        }
        // Set rather than raised: the bus gives the offsets of a refused batch to other changes.
        self.set("offset", batch.offset)?;
        // Pruning may have raised the store's own floor above that of the ledger.
        self.raise("floor", batch.floor)
    }

    fn put(&mut self, record: &Record, files: &mut std::slice::Iter<'_, BodyHash>) -> Result<(), Fault> {
        match record {
            Record::Line { uri, line, content } => self.put_line(uri, line, content, files),
            Record::Forget(uri) => self.replace_line(uri.as_str(), None),
            Record::List(kind, hash, offset) => {
                let number = list_number(*kind);
                let before = self.lists.insert(number, (hash.0, *offset))?;
                let before = before.map(|before| before.value());
                self.effects.before.lists.push((number, before));
                Ok(())
            }
            Record::Change(logged) => {
                let encoded = encode_change(&logged.change);
                self.changes.insert(logged.offset, encoded.as_slice())?;
                Ok(())
            }
            Record::Cursor(name, Some(offset)) => {
                self.cursors.insert(&**name, *offset)?;
                Ok(())
            }
            Record::Cursor(name, None) => {
                self.cursors.remove(&**name)?;
                Ok(())
            }
            Record::Life(epoch) => self.begin_life(*epoch),
        }
    }

    fn put_line(
        &mut self,
        uri: &ResourceUri,
        line: &Line,
        content: &KeptContent,
        files: &mut std::slice::Iter<'_, BodyHash>,
    ) -> Result<(), Fault> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        match content {
            KeptContent::Resource(resource) => self.encode_resource(resource, line, files, &mut encoded),
            KeptContent::None => StoredLine::encode(line, false, &mut encoded),
            KeptContent::Same => self.encode_same(uri, line, &mut encoded)?,
        }
        self.replace_line(uri.as_str(), Some((&encoded, line)))?;
        self.encoded = encoded;
        Ok(())
    }

    /// Puts a line in the place of the one of `uri`, or removes that one, with all that refers to it.
    fn replace_line(&mut self, uri: &str, line: Option<(&[u8], &Line)>) -> Result<(), Fault> {
        let before = match line {
            Some((encoded, _)) => self.lines.insert(uri, encoded)?,
            None => self.lines.remove(uri)?,
        };
        // A copy of every line that a batch replaces costs little beside its insertion, and is the only way
        // to take a batch back whose commit failed but reached the file.
        let before = before.map(|bytes| Box::from(bytes.value()));
        if let Some(bytes) = &before {
            let stored = StoredLine::decode(bytes)?;
            self.effects.uses.dropped.extend(stored.body_file());
            if !stored.line.is_live() {
                self.removed.remove((stored.line.offset, uri))?;
            }
        }
        self.effects.before.lines.push((uri.into(), before));
        if let Some((_, line)) = line
            && !line.is_live()
        {
            self.removed.insert((line.offset, uri), ())?;
        }
        Ok(())
    }

    fn encode_resource(
        &mut self,
        resource: &Resource,
        line: &Line,
        files: &mut std::slice::Iter<'_, BodyHash>,
        out: &mut Vec<u8>,
    ) {
        let Content::Held(body) = resource.content() else {
            return StoredLine::encode(line, false, out);
        };
        let bytes = body.as_bytes();
        let stored = match (bytes.len() > INLINE_MAX, files.as_slice()) {
            (true, [hash, ..]) => {
                files.next();
                self.effects.uses.added.push(*hash);
                StoredBody::File(*hash, bytes.len() as u64)
            }
            _ => StoredBody::Inline(bytes),
        };
        StoredLine::encode(line, true, out);
        StoredContent::encode(resource.descriptor(), body.as_text().is_none(), stored, out);
    }

    /// Encodes `line` with the content that the table holds for `uri`.
    fn encode_same(&mut self, uri: &ResourceUri, line: &Line, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(bytes) = self.lines.get(uri.as_str())? else {
            StoredLine::encode(line, false, out);
            return Ok(());
        };
        let before = StoredLine::decode(bytes.value())?;
        // The old line drops its reference when it is replaced.
        self.effects.uses.added.extend(before.body_file());
        StoredLine::encode(line, before.content.is_some(), out);
        out.extend_from_slice(before.content.unwrap_or_default());
        Ok(())
    }

    /// Makes the current life a former one, and begins the one with this epoch.
    fn begin_life(&mut self, epoch: u64) -> Result<(), Fault> {
        let before = self.number("epoch")?;
        if before > 0 {
            let end = self.number("offset")?;
            self.lives.insert(before, end)?;
        }
        // The life that begins is the former one of the next start.
        while self.lives.len()? >= Lineage::FORMER_MAX as u64 {
            self.lives.pop_first()?;
        }
        self.set("epoch", epoch)
    }

    /// Undoes a transaction that may or may not have reached the file: lines, lists, offset and change log
    /// are as before it.
    pub(super) fn take_back(&mut self, effects: &Effects) -> Result<(), Fault> {
        let before = &effects.before;
        // The last change first, since a batch may change one URI more than once.
        for (uri, bytes) in before.lines.iter().rev() {
            match bytes {
                Some(bytes) => {
                    let line = StoredLine::decode(bytes)?.line;
                    self.replace_line(uri, Some((bytes, &line)))?;
                }
                None => self.replace_line(uri, None)?,
            }
        }
        for (number, list) in before.lists.iter().rev() {
            match list {
                Some(list) => self.lists.insert(number, list)?,
                None => self.lists.remove(number)?,
            };
        }
        self.changes.retain_in(before.offset + 1.., |_, _| false)?;
        self.set("offset", before.offset)
    }

    /// Drops the changes of the change log up to `log_start`.
    pub(super) fn prune_changes(&mut self, log_start: u64) -> Result<(), Fault> {
        self.changes.retain_in(..=log_start, |_, _| false)?;
        Ok(())
    }

    /// Folds the oldest removed lines into the floor until at most `max` are left.
    pub(super) fn prune_removed(&mut self, max: u64) -> Result<(), Fault> {
        let mut floor = 0;
        while self.removed.len()? > max {
            let Some((oldest, _)) = self.removed.pop_first()? else {
                break;
            };
            let uri = oldest.value().1.to_owned();
            // The guard borrows the table.
            drop(oldest);
            if let Some(bytes) = self.lines.get(uri.as_str())? {
                floor = StoredLine::decode(bytes.value())?.line.etag.version.max(floor);
            }
            self.replace_line(&uri, None)?;
        }
        self.raise("floor", floor)
    }
}
