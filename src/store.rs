//! The durable store: versions that outlive the process.
//!
//! Owns: the file `tidings.redb` in the data directory, and what its bytes mean. Never: decides a version (the
//! ledger does), or keeps a body. Receives batches of records on the store's thread of the bus and makes each durable
//! before it returns; hands everything back at the next start.
//!
//! Three tables: `meta` (format, epoch, offset, floor), `lines` (URI → line), and `removed` (offset and URI of every
//! line that is not live, so that the oldest are found when there are more than allowed).

mod error;
mod line;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use redb::{Builder, Database, Durability, ReadableTable, ReadableTableMetadata, Table, TableDefinition};
use tidings_actors::{Checkpoint, Record, ResourceUri, Store, StoreError};

use error::Fault;
use line::StoredLine;

/// The name of the file in the data directory.
pub const STORE_FILE: &str = "tidings.redb";

/// The newest layout of the tables that this version reads and writes.
const FORMAT: u64 = 1;

const CACHE_BYTES: usize = 16 << 20;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const LINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lines");
const REMOVED: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("removed");

/// Keeps the ledger in a file. One process at a time.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use tidings::{Bus, store::RedbStore};
/// let bus = Bus::builder().store(RedbStore::open(folder.path(), 100_000)?).start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
    file: PathBuf,
    removed_max: u64,
}

impl RedbStore {
    /// Opens the store in the folder `dir`, making both when they are missing, and checks the whole file.
    ///
    /// It keeps at most `removed_max` removed URIs (give it the [`Limits::removed_max`](tidings_actors::Limits) of the
    /// bus); the oldest beyond are folded into the floor that every later registration starts above.
    ///
    /// # Errors
    /// [`StoreError`], naming the file and the remedy, when the file is in use by another process, is damaged or none
    /// of ours, was written by a newer version, or cannot be read or written.
    pub fn open(dir: &Path, removed_max: usize) -> Result<RedbStore, StoreError> {
        let file = dir.join(STORE_FILE);
        let failed = |fault: Fault| fault.of(&file);
        std::fs::create_dir_all(dir).map_err(|error| failed(error.into()))?;
        let database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            // A file that was altered from outside is reported then, rather than met halfway.
            .set_check_integrity_on_open(true)
            .create(&file)
            .map_err(|error| failed(error.into()))?;
        let store = RedbStore {
            database,
            file: file.clone(),
            removed_max: removed_max as u64,
        };
        store.prepare().map_err(failed)?;
        sync_folder(dir).map_err(|error| failed(error.into()))?;
        Ok(store)
    }

    /// Checks the format, or makes the tables of a new file.
    fn prepare(&self) -> Result<(), Fault> {
        self.write(|tables| {
            let format = tables.number("format")?;
            if format > FORMAT {
                return Err(Fault::Newer(format));
            }
            tables.set("format", FORMAT)
        })
    }

    fn write<T>(&self, work: impl FnOnce(&mut Tables<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut tables = Tables {
            meta: transaction.open_table(META)?,
            lines: transaction.open_table(LINES)?,
            removed: transaction.open_table(REMOVED)?,
        };
        let done = work(&mut tables)?;
        drop(tables);
        transaction.commit()?;
        Ok(done)
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Checkpoint, StoreError> {
        let loaded = self.write(|tables| {
            tables.prune(self.removed_max)?;
            let epoch = match tables.number("epoch")? {
                0 => tables.begin_history()?,
                epoch => epoch,
            };
            Ok(Checkpoint {
                epoch,
                offset: tables.number("offset")?,
                floor: tables.number("floor")?,
                lines: tables.all_lines()?,
            })
        });
        loaded.map_err(|fault| fault.of(&self.file))
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let written = self.write(|tables| {
            for record in records {
                tables.put(record)?;
            }
            tables.prune(self.removed_max)
        });
        written.map_err(|fault| fault.of(&self.file))
    }
}

/// The tables of one transaction.
struct Tables<'t> {
    meta: Table<'t, &'static str, u64>,
    lines: Table<'t, &'static str, &'static [u8]>,
    removed: Table<'t, (u64, &'static str), ()>,
}

impl Tables<'_> {
    fn number(&self, name: &str) -> Result<u64, Fault> {
        Ok(self.meta.get(name)?.map_or(0, |value| value.value()))
    }

    fn set(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        self.meta.insert(name, value)?;
        Ok(())
    }

    fn raise(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        let held = self.number(name)?;
        self.set(name, held.max(value))
    }

    /// Milliseconds since 1970 tell this history from any other.
    fn begin_history(&mut self) -> Result<u64, Fault> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1);
        self.set("epoch", epoch)?;
        Ok(epoch)
    }

    fn put(&mut self, record: &Record) -> Result<(), Fault> {
        self.raise("offset", record.offset)?;
        self.raise("floor", record.floor)?;
        let Some((uri, line)) = &record.line else {
            return Ok(());
        };
        let uri = uri.as_str();
        let stored = StoredLine {
            line: *line,
            offset: record.offset,
        };
        let before = match self.lines.insert(uri, stored.encode().as_slice())? {
            Some(bytes) => Some(StoredLine::decode(bytes.value())?),
            None => None,
        };
        if let Some(before) = before.filter(|before| !before.line.live) {
            self.removed.remove((before.offset, uri))?;
        }
        if !line.live {
            self.removed.insert((record.offset, uri), ())?;
        }
        Ok(())
    }

    /// Folds the oldest lines that are not live into the floor, until at most `max` are left.
    fn prune(&mut self, max: u64) -> Result<(), Fault> {
        let mut floor = 0;
        while self.removed.len()? > max {
            let Some((oldest, _)) = self.removed.pop_first()? else {
                break;
            };
            if let Some(bytes) = self.lines.remove(oldest.value().1)? {
                floor = StoredLine::decode(bytes.value())?.line.etag.version.max(floor);
            }
        }
        if floor > 0 {
            self.raise("floor", floor)?;
        }
        Ok(())
    }

    /// Every line, oldest first, which is the order in which the ledger forgets.
    fn all_lines(&self) -> Result<Vec<(ResourceUri, tidings_actors::Line)>, Fault> {
        let mut found = Vec::new();
        for entry in self.lines.iter()? {
            let (uri, bytes) = entry?;
            let uri = ResourceUri::new(uri.value()).map_err(|error| Fault::Damaged(error.to_string()))?;
            found.push((uri, StoredLine::decode(bytes.value())?));
        }
        found.sort_unstable_by_key(|(_, stored)| stored.offset);
        Ok(found
            .into_iter()
            .map(|(uri, stored)| (uri, stored.line))
            .collect())
    }
}

/// Makes the name of a new file durable, not only its bytes.
#[cfg(unix)]
fn sync_folder(dir: &Path) -> std::io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}

/// Elsewhere folders cannot be opened, and need not be.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
