//! The durable store: versions that outlive the process, in a redb database.
//!
//! There are three tables: `meta` (format, epoch, offset, floor), `lines` (URI → line), and `removed` (offset
//! and URI of each line that is not live, by which the oldest are found).

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

/// The layout of the tables. A file with a newer one is refused.
const FORMAT: u64 = 1;

const CACHE_BYTES: usize = 16 << 20;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const LINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lines");
const REMOVED: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("removed");

/// A store in the file [`STORE_FILE`]. One process at a time can open it.
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
    /// Opens the store in the folder `dir`, creates both if necessary, and checks the whole file.
    ///
    /// It keeps at most `removed_max` removed URIs; pass the [`Limits::removed_max`](tidings_actors::Limits)
    /// of the bus. The oldest beyond that are folded into the floor, above which every later registration
    /// starts.
    ///
    /// # Errors
    /// [`StoreError`], naming the file and the remedy, if the file is in use by another process, is damaged,
    /// was not written by this program, was written by a newer version, or cannot be read or written.
    pub fn open(dir: &Path, removed_max: usize) -> Result<RedbStore, StoreError> {
        let file = dir.join(STORE_FILE);
        RedbStore::try_open(dir, &file, removed_max).map_err(|fault| fault.of(&file))
    }

    fn try_open(dir: &Path, file: &Path, removed_max: usize) -> Result<RedbStore, Fault> {
        std::fs::create_dir_all(dir)?;
        let database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            // Damage is then reported at the start, rather than in the middle of a run.
            .set_check_integrity_on_open(true)
            .create(file)?;
        let store = RedbStore {
            database,
            file: file.to_owned(),
            removed_max: removed_max as u64,
        };
        store.prepare()?;
        sync_folder(dir)?;
        Ok(store)
    }

    /// Checks the format, or creates the tables of a new file.
    fn prepare(&self) -> Result<(), Fault> {
        self.write(|tables| {
            let format = tables.number("format")?;
            if format > FORMAT {
                return Err(Fault::Newer(format));
            }
            tables.set("format", FORMAT)
        })
    }

    /// Runs `work` in one transaction, which is durable when this returns.
    fn write<T>(&self, work: impl FnOnce(&mut Tables<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut transaction = self.database.begin_write()?;
        // The bus notifies a change after this commit, so a crash never takes back a version that a client
        // has seen.
        transaction.set_durability(Durability::Immediate)?;
        let mut tables = Tables {
            meta: transaction.open_table(META)?,
            lines: transaction.open_table(LINES)?,
            removed: transaction.open_table(REMOVED)?,
        };
        let done = work(&mut tables)?;
        // The tables borrow the transaction.
        drop(tables);
        transaction.commit()?;
        Ok(done)
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Checkpoint, StoreError> {
        let loaded = self.write(|tables| {
            // The limit may be lower than in the last run.
            tables.prune(self.removed_max)?;
            let epoch = match tables.number("epoch")? {
                // A new file has no epoch yet.
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
        match self.meta.get(name)? {
            Some(value) => Ok(value.value()),
            None => Ok(0),
        }
    }

    fn set(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        self.meta.insert(name, value)?;
        Ok(())
    }

    fn raise(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        let held = self.number(name)?;
        self.set(name, held.max(value))
    }

    /// Sets the epoch, which tells this history from any other, to the milliseconds since 1970.
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
        if let Some(before) = before
            && !before.line.live
        {
            self.removed.remove((before.offset, uri))?;
        }
        if !line.live {
            self.removed.insert((record.offset, uri), ())?;
        }
        Ok(())
    }

    /// Folds the oldest removed lines into the floor until at most `max` are left.
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

    /// Returns all lines, oldest first: the ledger forgets in this order.
    fn all_lines(&self) -> Result<Vec<(ResourceUri, tidings_actors::Line)>, Fault> {
        let mut found = Vec::new();
        for entry in self.lines.iter()? {
            let (uri, bytes) = entry?;
            let uri = ResourceUri::new(uri.value()).map_err(|error| Fault::Damaged(error.to_string()))?;
            found.push((uri, StoredLine::decode(bytes.value())?));
        }
        found.sort_unstable_by_key(|(_, stored)| stored.offset);
        let lines = found.into_iter().map(|(uri, stored)| (uri, stored.line));
        Ok(lines.collect())
    }
}

/// Makes the name of a new file durable; fsync of the file covers only its contents.
#[cfg(unix)]
fn sync_folder(dir: &Path) -> std::io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}

/// Other systems cannot open folders, and record the name with the file.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
