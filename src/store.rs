//! The durable store: versions, content and the change log that outlive the process.
//!
//! A redb database holds everything but large bodies, which are files of their own. `tables` has the tables,
//! `encoding` the bytes of a line, and `body_files` the files.

mod body_files;
mod encoding;
mod error;
mod tables;

use std::path::{Path, PathBuf};

use redb::{Builder, Database, Durability, ReadableDatabase};
use tidings_actors::{Batch, Checkpoint, Store, StoreError};
use tracing::{info, warn};

use body_files::{BodyFiles, FileUses, sync_folder};
use error::Fault;
use tables::{FORMAT, FORMAT_KEY, Tables};

/// The name of the file in the data directory.
pub const STORE_FILE: &str = "tidings.redb";

/// The memory that the database may use for pages.
const CACHE_BYTES: usize = 16 << 20;

/// A store in the file [`STORE_FILE`] and the files beside it. One process at a time can open it.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use tidings::{Bus, store::RedbStore};
/// let bus = Bus::builder().store(RedbStore::open(folder.path(), 100_000)?).start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RedbStore {
    /// None after a failure, until the file is opened again.
    database: Option<Database>,
    bodies: BodyFiles,
    file: PathBuf,
    removed_max: u64,
    /// The changes of the change log up to this offset were dropped.
    log_start: u64,
    /// True if the file was created by this start, so that body files found beside it belong to another
    /// history.
    is_new: bool,
}

impl RedbStore {
    /// Opens the store in the folder `dir`, creates both if necessary, and checks the whole file.
    ///
    /// It keeps at most `removed_max` removed URIs; pass the [`Limits::removed_max`](tidings_actors::Limits)
    /// of the bus. The oldest beyond that are folded into the floor, above which every later registration
    /// starts. A file of format 1 becomes one of the current format.
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
        let bodies = BodyFiles::open(dir)?;
        let is_new = begins_history(file, &bodies)?;
        let database = open_database(file)?;
        // Before the first record, which would not survive a crash without the names of its files.
        sync_folder(dir)?;
        Ok(RedbStore {
            database: Some(database),
            bodies,
            file: file.to_owned(),
            removed_max: removed_max as u64,
            log_start: 0,
            is_new,
        })
    }

    /// Runs `work` with the database, which is opened again if it failed before.
    fn with_database<T>(
        &mut self,
        work: impl FnOnce(&mut RedbStore, &Database) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let opened = match self.database.take() {
            Some(database) => Ok(database),
            None => open_database(&self.file),
        };
        let done = opened.and_then(|database| {
            let done = work(self, &database)?;
            // A database that failed, or panicked, is closed instead: the pages it holds in memory may differ
            // from the file, and the next call reads the file anew.
            self.database = Some(database);
            Ok(done)
        });
        done.map_err(|fault| fault.of(&self.file))
    }

    fn try_load(&mut self, database: &Database) -> Result<Checkpoint, Fault> {
        // The limit may be lower than in the last run. References to body files are counted after it.
        write(database, |tables| tables.prune_removed(self.removed_max))?;
        let loaded = tables::read_all(&database.begin_read()?, &mut self.bodies)?;
        // Files of another history stay until the next start, so that they can be saved.
        if !self.is_new {
            self.bodies.remove_orphans()?;
        }
        Ok(loaded)
    }

    fn try_append(&mut self, database: &Database, batch: &Batch) -> Result<(), Fault> {
        let bodies = batch.records.iter().filter_map(tables::body_for_file);
        let files = self.bodies.write(bodies)?;
        let uses = write(database, |tables| {
            tables.apply(batch, &files)?;
            if batch.log_start > self.log_start {
                tables.prune_changes(batch.log_start)?;
            }
            tables.prune_removed(self.removed_max)
        })?;
        self.log_start = batch.log_start;
        self.bodies.apply(uses);
        Ok(())
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Checkpoint, StoreError> {
        self.with_database(RedbStore::try_load)
    }

    fn append(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.with_database(|store, database| store.try_append(database, batch))
    }
}

/// Returns true if there is no store in `file` yet, and says so: versions begin anew.
fn begins_history(file: &Path, bodies: &BodyFiles) -> Result<bool, Fault> {
    let found = match std::fs::metadata(file) {
        Ok(metadata) if metadata.len() > 0 => return Ok(false),
        Ok(_) => Some("the file is empty"),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Err(_) if bodies.has_files()? => Some("the file is missing, and bodies of another history are there"),
        Err(_) => None,
    };
    let file = file.display();
    match found {
        None => info!(%file, "a new history begins"),
        Some(found) => warn!(
            %file,
            "a new history begins: {found}; restore the store if its versions should go on"
        ),
    }
    Ok(true)
}

/// Opens or creates the file, checks all of it, and brings it to the current format.
fn open_database(file: &Path) -> Result<Database, Fault> {
    let database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        // Damage is then reported at the start, rather than in the middle of a run.
        .set_check_integrity_on_open(true)
        .create(file)?;
    write(&database, |tables| {
        let format = tables.number(FORMAT_KEY)?;
        match format > FORMAT {
            true => Err(Fault::Newer(format)),
            // Lines of format 1 stay as they are until they change.
            false => tables.set(FORMAT_KEY, FORMAT),
        }
    })?;
    Ok(database)
}

/// Runs `work` in one transaction, which is durable when this returns. Returns the references to body files
/// that changed.
fn write(
    database: &Database,
    work: impl FnOnce(&mut Tables<'_>) -> Result<(), Fault>,
) -> Result<FileUses, Fault> {
    let mut transaction = database.begin_write()?;
    // The bus notifies a change after this commit, so a crash never takes back a version that a client has
    // seen.
    transaction.set_durability(Durability::Immediate)?;
    let mut tables = Tables::open(&transaction)?;
    work(&mut tables)?;
    // The tables borrow the transaction.
    let uses = tables.into_uses();
    transaction.commit()?;
    Ok(uses)
}

#[cfg(test)]
mod tests;
