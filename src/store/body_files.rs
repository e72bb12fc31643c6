//! The files of bodies too large for the database, each named by the SHA-256 of its bytes.
//!
//! A file is durable before the transaction that refers to it, and is removed after the one that drops the
//! last reference to it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tracing::{debug, warn};

use super::encoding::BodyHash;
use super::error::Fault;
use super::private_files;

/// The name of the folder in the data directory.
pub(super) const BODIES_FOLDER: &str = "bodies";

/// The suffix of a file that is being written.
const UNFINISHED: &str = "new";

/// The references to body files that one transaction adds and drops.
#[derive(Debug, Default)]
pub(super) struct FileUses {
    pub(super) added: Vec<BodyHash>,
    pub(super) dropped: Vec<BodyHash>,
}

/// The folder of body files. Clones are the same folder.
#[derive(Debug, Clone)]
pub(super) struct BodyFolder {
    path: PathBuf,
    holds: Arc<Mutex<Holds>>,
}

/// The readers of an older state, and the files that are removed when they have finished.
#[derive(Debug, Default)]
struct Holds {
    readers: usize,
    waiting: HashSet<BodyHash>,
}

/// Keeps all files of a folder until it is dropped.
#[derive(Debug)]
pub(super) struct FolderHold(BodyFolder);

impl FolderHold {
    pub(super) fn folder(&self) -> &BodyFolder {
        &self.0
    }
}

impl Drop for FolderHold {
    fn drop(&mut self) {
        let mut holds = self.0.lock();
        holds.readers -= 1;
        if holds.readers == 0 {
            for hash in holds.waiting.drain() {
                remove_file(&self.0.path(&hash));
            }
        }
    }
}

impl BodyFolder {
    /// Returns the folder in the data directory `dir`.
    pub(super) fn of(dir: &Path) -> BodyFolder {
        BodyFolder {
            path: dir.join(BODIES_FOLDER),
            holds: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        // Nothing panics while it is locked.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps all files until the answer is dropped, also those that no line refers to any more.
    pub(super) fn hold(&self) -> FolderHold {
        self.lock().readers += 1;
        FolderHold(self.clone())
    }

    /// Returns the path of the file with this hash.
    pub(super) fn path(&self, hash: &BodyHash) -> PathBuf {
        let name = hex(hash);
        self.path.join(&name[..2]).join(name)
    }

    /// Reads the file with this hash. The error says how it differs from the one that was written.
    pub(super) fn read(&self, hash: &BodyHash, len: u64) -> Result<Vec<u8>, String> {
        let bytes = match fs::read(self.path(hash)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("is missing".into()),
            Err(error) => return Err(format!("cannot be read: {error}")),
        };
        match bytes.len() as u64 == len {
            true => Ok(bytes),
            false => Err(format!("has {} of {len} bytes", bytes.len())),
        }
    }

    /// Returns true if the folder holds anything.
    pub(super) fn has_files(&self) -> Result<bool, Fault> {
        Ok(fs::read_dir(&self.path)?.next().is_some())
    }

    /// Removes a file, as soon as no reader of an older state may need it.
    fn remove(&self, hash: &BodyHash) {
        let mut holds = self.lock();
        match holds.readers {
            0 => remove_file(&self.path(hash)),
            _ => {
                holds.waiting.insert(*hash);
            }
        }
    }

    /// Calls `found` with the files that no line refers to, by the answer of `is_used`: a crash between a
    /// file and its transaction leaves them. Files with other names are not the store's.
    pub(super) fn each_orphan(
        &self,
        is_used: impl Fn(&BodyHash) -> bool,
        mut found: impl FnMut(&Path),
    ) -> Result<(), Fault> {
        let folders = match fs::read_dir(&self.path) {
            Ok(folders) => folders,
            // A store of format 1 has no such folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for folder in folders {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(folder.path())? {
                let file = file?.path();
                let Some(stem) = file.file_stem() else {
                    continue;
                };
                let is_orphan = match (hash_of(&stem.to_string_lossy()), file.extension()) {
                    (Some(hash), None) => !is_used(&hash),
                    (Some(_), Some(extension)) => extension == UNFINISHED,
                    (None, _) => false,
                };
                if is_orphan {
                    found(&file);
                }
            }
        }
        Ok(())
    }
}

/// The folder of body files, and the number of lines that refer to each.
#[derive(Debug)]
pub(super) struct BodyFiles {
    folder: BodyFolder,
    uses: HashMap<BodyHash, usize>,
}

impl BodyFiles {
    /// Creates the folder in `dir` if it is missing.
    pub(super) fn open(dir: &Path) -> Result<BodyFiles, Fault> {
        let folder = BodyFolder::of(dir);
        private_files::create_folders(&folder.path)?;
        private_files::restrict_folder(&folder.path);
        Ok(BodyFiles {
            folder,
            uses: HashMap::new(),
        })
    }

    pub(super) fn folder(&self) -> &BodyFolder {
        &self.folder
    }

    /// Writes bodies to durable files and returns their hashes in the same order.
    pub(super) fn write<'b>(
        &self,
        bodies: impl IntoIterator<Item = &'b [u8]>,
    ) -> Result<Vec<BodyHash>, Fault> {
        let mut hashes = Vec::new();
        let mut folders = BTreeSet::new();
        for body in bodies {
            let hash: BodyHash = Sha256::digest(body).into();
            hashes.push(hash);
            // The file of a body that some line has is durable and was verified when it was loaded.
            if !self.uses.contains_key(&hash)
                && let Err(error) = self.write_one(&hash, body, &mut folders)
            {
                self.remove_unused(&hashes);
                return Err(error.into());
            }
        }
        // The names of the files, after their contents: a crash never leaves a name of half a body.
        for folder in &folders {
            if let Err(error) = sync_folder(folder) {
                self.remove_unused(&hashes);
                return Err(error.into());
            }
        }
        Ok(hashes)
    }

    /// Writes a file whose name becomes durable with `folders`.
    fn write_one(&self, hash: &BodyHash, body: &[u8], folders: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        // A reader that ends now must not remove the new file.
        self.folder.lock().waiting.remove(hash);
        let path = self.folder.path(hash);
        let folder = path.parent().unwrap_or(&self.folder.path);
        if !folder.exists() {
            private_files::create_folders(folder)?;
            folders.insert(self.folder.path.clone());
        }
        folders.insert(folder.to_owned());
        // Under another name first, so that the final name always has the whole body.
        let unfinished = path.with_extension(UNFINISHED);
        let mut written = write_synced(&unfinished, body);
        if written.is_ok() {
            written = fs::rename(&unfinished, &path);
        }
        if written.is_err() {
            // Gives back the room of a full disk.
            remove_file(&unfinished);
        }
        written
    }

    /// Counts a reference that was found in the database.
    pub(super) fn count(&mut self, hash: BodyHash) {
        *self.uses.entry(hash).or_insert(0) += 1;
    }

    /// Forgets all references, before they are counted anew.
    pub(super) fn clear(&mut self) {
        self.uses.clear();
    }

    /// Counts the references of a committed transaction, and removes the files that nothing refers to any
    /// more.
    pub(super) fn apply(&mut self, uses: FileUses) {
        for hash in uses.added {
            self.count(hash);
        }
        for hash in uses.dropped {
            let Some(count) = self.uses.get_mut(&hash) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.uses.remove(&hash);
                self.folder.remove(&hash);
            }
        }
    }

    /// Removes the files among `hashes` that no line refers to.
    pub(super) fn remove_unused(&self, hashes: &[BodyHash]) {
        for hash in hashes {
            if !self.uses.contains_key(hash) {
                self.folder.remove(hash);
            }
        }
    }

    /// Removes the files that no line refers to.
    pub(super) fn remove_orphans(&self) -> Result<(), Fault> {
        self.folder
            .each_orphan(|hash| self.uses.contains_key(hash), remove_file)
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private_files::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn remove_file(file: &Path) {
    match fs::remove_file(file) {
        Ok(()) => debug!(file = %file.display(), "removed a file that no resource needs"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // It costs only its room, and the next start tries again.
        Err(error) => {
            warn!(file = %file.display(), %error, "a file that no resource needs cannot be removed");
        }
    }
}

/// Makes the names in a folder durable; fsync of a file covers only its contents.
#[cfg(unix)]
pub(super) fn sync_folder(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

/// Other systems cannot open folders, and record the name with the file.
#[cfg(not(unix))]
pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

fn hex(hash: &BodyHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hash that a file name spells.
fn hash_of(name: &str) -> Option<BodyHash> {
    let mut hash = BodyHash::default();
    if name.len() != 2 * hash.len() || !name.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&name[2 * at..2 * at + 2], 16).ok()?;
    }
    (hex(&hash) == name).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_file_is_the_sha256_of_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let files = BodyFiles::open(folder.path()).unwrap();
        let hash = files.write([&b"abc"[..]]).unwrap()[0];
        let name = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let path = folder.path().join("bodies/ba").join(name);
        assert_eq!(
            (files.folder.path(&hash), hash_of(name)),
            (path.clone(), Some(hash))
        );
        assert_eq!(fs::read(path).unwrap(), b"abc");
        for other in [
            "",
            "ba",
            &name.to_uppercase(),
            &name.replace('b', "g"),
            &name.replace('b', "é"),
        ] {
            assert_eq!(hash_of(other), None, "{other}");
        }
    }

    #[test]
    fn file_lives_as_long_as_its_last_reference() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BodyFiles::open(folder.path()).unwrap();
        let hash = files.write([&b"abc"[..], b"abc"]).unwrap()[0];
        files.apply(FileUses {
            added: vec![hash, hash],
            dropped: Vec::new(),
        });
        for exists in [true, false] {
            files.apply(FileUses {
                added: Vec::new(),
                dropped: vec![hash],
            });
            assert_eq!(files.folder.path(&hash).exists(), exists);
        }
    }

    #[test]
    fn file_stays_while_an_older_state_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BodyFiles::open(folder.path()).unwrap();
        let hashes = files.write([&b"dropped"[..], b"back"]).unwrap();
        let paths = [files.folder.path(&hashes[0]), files.folder.path(&hashes[1])];
        files.apply(FileUses {
            added: hashes.clone(),
            dropped: Vec::new(),
        });
        let hold = files.folder.hold();
        files.apply(FileUses {
            added: Vec::new(),
            dropped: hashes.clone(),
        });
        files.write([&b"back"[..]]).unwrap();
        files.count(hashes[1]);
        assert_eq!(paths.each_ref().map(|path| path.exists()), [true, true]);
        drop(hold);
        assert_eq!(paths.each_ref().map(|path| path.exists()), [false, true]);
    }

    #[test]
    fn orphans_are_removed_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BodyFiles::open(folder.path()).unwrap();
        let hashes = files.write([&b"kept"[..], b"orphan"]).unwrap();
        files.count(hashes[0]);
        let kept = files.folder.path(&hashes[0]);
        let unfinished = kept.with_extension(UNFINISHED);
        let foreign = kept.with_file_name("notes.txt");
        for file in [&unfinished, &foreign] {
            fs::write(file, "x").unwrap();
        }
        files.remove_orphans().unwrap();
        let exist = [&kept, &foreign, &unfinished, &files.folder.path(&hashes[1])].map(|file| file.exists());
        assert_eq!(exist, [true, true, false, false]);
    }
}
