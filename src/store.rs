//! The durable store: versions, content and the change log that outlive the process.
//!
//! A redb database holds everything but large bodies, which are files of their own. `tables` writes,
//! `snapshot` reads, `encoding` has the bytes of a line, and `body_files` the files; `backup` and
//! `maintenance` are for operators.

mod maintenance;
mod backup;
mod snapshot;
mod tables;
mod body_files;
pub(crate) mod encoding;
mod private_files;
mod position_key;
pub(crate) mod error;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use redb::{Builder, Database, Durability, WriteTransaction};
use tidings_actors::{Batch, Checkpoint, Store, StoreError};
use tracing::{info, warn};

pub use backup::{BackupError, Counts};
pub use maintenance::{CheckReport, backup, check, compact, restore};
pub use position_key::position_key;
#[cfg(feature = "service")]
pub(crate) use private_files::create as create_private;

use body_files::{BodyFiles, BodyFolder, sync_folder};
use encoding::BodyHash;
use error::Fault;
use snapshot::Snapshot;
use tables::{Effects, FORMAT, FORMAT_KEY, Tables};

/// The name of the file in the data directory.
pub const STORE_FILE: &str = "tidings.redb";

/// Everything that may be in the data directory.
const OWN_FILES: [&str; 4] = [
    STORE_FILE,
    body_files::BODIES_FOLDER,
    position_key::KEY_FILE,
    position_key::NEW_KEY_FILE,
];

/// The memory that the database may use for pages.
const CACHE_BYTES: usize = 16 << 20;

/// The time for which a start waits for a file that another process uses. A process that was killed has its
/// files until the system has taken it down.
const IN_USE_WAIT: Duration = Duration::from_secs(2);

/// The pause between two tries to open such a file.
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// An append of unknown outcome.
#[derive(Debug)]
struct Uncertain {
    effects: Effects,
    /// The body files that were written for it.
    files: Vec<BodyHash>,
}

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
    database: SharedDatabase,
    /// False from the start of a write until it succeeds: the pages that a failed database holds in memory
    /// may differ from the file.
    is_trusted: bool,
    /// An append that failed when it was committed, so that it may be in the file.
    uncertain: Option<Uncertain>,
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
    /// Opens the store in the folder `dir`, creates both if necessary, and checks the whole file. Waits up to
    /// 2 seconds for a file that another process uses, which may be one that was just killed.
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
        RedbStore::try_open(dir, &file, removed_max, std::thread::sleep).map_err(|fault| fault.of(&file))
    }

    fn try_open(
        dir: &Path,
        file: &Path,
        removed_max: usize,
        pause: impl FnMut(Duration),
    ) -> Result<RedbStore, Fault> {
        private_files::create_folders(dir)?;
        private_files::restrict_shared_folder(dir, &OWN_FILES)?;
        let bodies = BodyFiles::open(dir)?;
        let is_new = begins_history(file, bodies.folder())?;
        if is_new {
            create_database(file)?;
        }
        // Files of earlier versions could be read by all users.
        private_files::restrict(file);
        let database = open_when_free(file, pause)?;
        set_format(&database)?;
        // Before the first record, which would not survive a crash without the names of its files.
        sync_folder(dir)?;
        Ok(RedbStore {
            database: SharedDatabase::new(database),
            is_trusted: true,
            uncertain: None,
            bodies,
            file: file.to_owned(),
            removed_max: removed_max as u64,
            log_start: 0,
            is_new,
        })
    }

    /// Returns a handle that reads the store while the bus writes it.
    pub fn reader(&self) -> StoreReader {
        StoreReader {
            database: self.database.clone(),
            folder: self.bodies.folder().clone(),
            file: self.file.clone(),
        }
    }

    /// Runs `work` with the database, which is opened again if it failed before.
    fn with_database<T>(
        &mut self,
        work: impl FnOnce(&mut RedbStore, &Database) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let done = self.try_with_database(work);
        if done.is_err() {
            // Readers would see pages that may not be in the file.
            self.database.close();
        }
        done.map_err(|fault| fault.of(&self.file))
    }

    fn try_with_database<T>(
        &mut self,
        work: impl FnOnce(&mut RedbStore, &Database) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if !self.is_trusted {
            self.reopen()?;
        }
        let shared = self.database.clone();
        let opened = shared.read();
        let Some(database) = &*opened else {
            return Err(redb::Error::DatabaseClosed.into());
        };
        // Stays so if the work fails or panics.
        self.is_trusted = false;
        let done = work(self, database)?;
        self.is_trusted = true;
        Ok(done)
    }

    /// Opens the file again after a failure, without the batch that failed: the bus has refused its changes.
    fn reopen(&mut self) -> Result<(), Fault> {
        self.database.close();
        // Never creates it: a file that went away has its changes with it.
        let database = open_database(&self.file, false)?;
        if let Some(uncertain) = &self.uncertain {
            write(&database, |tables| tables.take_back(&uncertain.effects))?;
            self.bodies.remove_unused(&uncertain.files);
            self.uncertain = None;
        }
        self.database.replace(database);
        Ok(())
    }

    fn try_load(&mut self, database: &Database) -> Result<Checkpoint, Fault> {
        // The limit may be lower than in the last run. References to body files are counted after it.
        write(database, |tables| tables.prune_removed(self.removed_max))?;
        let snapshot = Snapshot::begin(database, self.bodies.folder())?;
        self.bodies.clear();
        let loaded = snapshot.checkpoint(|hash| self.bodies.count(hash))?;
        // Files of another history stay until the next start, so that they can be saved.
        if !self.is_new {
            self.bodies.remove_orphans()?;
        }
        Ok(loaded)
    }

    fn try_append(&mut self, database: &Database, batch: &Batch) -> Result<(), Fault> {
        let bodies = batch.records.iter().filter_map(tables::body_for_file);
        let files = self.bodies.write(bodies)?;
        let staged = stage(database, |tables| {
            tables.apply(batch, &files)?;
            if batch.log_start > self.log_start {
                tables.prune_changes(batch.log_start)?;
            }
            tables.prune_removed(self.removed_max)
        });
        let (transaction, effects) = match staged {
            Ok(staged) => staged,
            Err(fault) => {
                self.bodies.remove_unused(&files);
                return Err(fault);
            }
        };
        if let Err(error) = transaction.commit() {
            // After a failed fsync it is unknown which pages the disk has.
            self.uncertain = Some(Uncertain { effects, files });
            return Err(error.into());
        }
        self.log_start = batch.log_start;
        self.bodies.apply(effects.uses);
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

impl Drop for RedbStore {
    fn drop(&mut self) {
        // Readers may live on, and must not keep the lock on the file.
        self.database.close();
    }
}

/// Reads a store while a bus writes it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StoreReader {
    database: SharedDatabase,
    folder: BodyFolder,
    file: PathBuf,
}

impl StoreReader {
    /// Writes a backup of the current state to `out`. Changes that are made meanwhile are not in it.
    ///
    /// # Errors
    /// [`BackupError`] if the store cannot be read, is closed, or `out` cannot be written.
    pub fn backup(&self, out: &mut dyn Write) -> Result<Counts, BackupError> {
        let begun = match &*self.database.read() {
            Some(database) => Snapshot::begin(database, &self.folder),
            None => Err(redb::Error::DatabaseClosed.into()),
        };
        let written = match begun {
            Ok(snapshot) => backup::write(&snapshot, out),
            Err(fault) => Err(fault.into()),
        };
        written.map_err(|failure| failure.of(&self.file))
    }
}

/// A database that one thread writes and others read; none while it is closed.
#[derive(Debug, Clone)]
struct SharedDatabase(Arc<RwLock<Option<Database>>>);

impl SharedDatabase {
    fn new(database: Database) -> SharedDatabase {
        SharedDatabase(Arc::new(RwLock::new(Some(database))))
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<Database>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        *self.write() = None;
    }

    fn replace(&self, database: Database) {
        *self.write() = Some(database);
    }
}

/// Returns true if there is no store in `file` yet, and says so: versions begin anew.
fn begins_history(file: &Path, bodies: &BodyFolder) -> Result<bool, Fault> {
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

/// Creates an empty database under another name and gives it its name when it is complete, so that a loss of
/// power leaves no half of a file.
fn create_database(file: &Path) -> Result<(), Fault> {
    let unfinished = file.with_extension("new");
    for old in [&unfinished, file] {
        match std::fs::remove_file(old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            // The second is empty, or not there.
            Ok(()) | Err(_) => {}
        }
    }
    let database = open_database(&unfinished, true)?;
    set_format(&database)?;
    drop(database);
    // A link rather than a rename: another process that was faster keeps its file.
    match std::fs::hard_link(&unfinished, file) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            std::fs::rename(&unfinished, file)?;
        }
        Ok(()) | Err(_) => std::fs::remove_file(&unfinished)?,
    }
    Ok(())
}

/// Opens the file like [`open_database`], and tries again while another process uses it, up to
/// [`IN_USE_WAIT`].
fn open_when_free(file: &Path, mut pause: impl FnMut(Duration)) -> Result<Database, Fault> {
    let mut waited = Duration::ZERO;
    loop {
        match open_database(file, false) {
            Err(Fault::InUse) if waited < IN_USE_WAIT => {
                if waited.is_zero() {
                    info!(file = %file.display(), "waits for another process that uses the store");
                }
                pause(IN_USE_PAUSE);
                waited += IN_USE_PAUSE;
            }
            opened => return opened,
        }
    }
}

/// Opens the file and checks all of it.
fn open_database(file: &Path, create: bool) -> Result<Database, Fault> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    // Damage is then reported at the start, rather than in the middle of a run.
    builder.set_check_integrity_on_open(true);
    Ok(match create {
        true => {
            // redb takes an empty file for one that it has to fill.
            private_files::create(file)?;
            builder.create(file)?
        }
        false => builder.open(file)?,
    })
}

/// Brings a file of an older format, or a new one, to the current format. Lines of format 1 stay as they are
/// until they change.
fn set_format(database: &Database) -> Result<(), Fault> {
    write(database, |tables| match tables.number(FORMAT_KEY)? {
        newer if newer > FORMAT => Err(Fault::Newer(newer)),
        FORMAT => Ok(()),
        _older => tables.set(FORMAT_KEY, FORMAT),
    })
}

/// Runs `work` in one transaction, which is durable when this returns.
fn write(database: &Database, work: impl FnOnce(&mut Tables<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
    let (transaction, _) = stage(database, work)?;
    transaction.commit()?;
    Ok(())
}

/// Runs `work` in a transaction that the caller commits.
fn stage(
    database: &Database,
    work: impl FnOnce(&mut Tables<'_>) -> Result<(), Fault>,
) -> Result<(WriteTransaction, Effects), Fault> {
    let mut transaction = database.begin_write()?;
    // The bus notifies a change after the commit, so a crash never takes back a version that a client has
    // seen.
    transaction.set_durability(Durability::Immediate)?;
    let mut tables = Tables::open(&transaction)?;
    work(&mut tables)?;
    let effects = tables.into_effects();
    Ok((transaction, effects))
}

#[cfg(test)]
mod tests;
