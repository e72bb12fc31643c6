//! Files and folders that only the user of the service may look at: they hold what clients may not read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// The permissions of folders and of files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Creates a folder and those above it, as far as they are missing. One that exists keeps its permissions.
pub(super) fn create_folders(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER_MODE);
    builder.create(folder)
}

/// Creates a file or empties it.
pub(crate) fn create(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, FILE_MODE);
    let created = options.open(file)?;
    restrict(file);
    Ok(created)
}

/// Takes the permissions of others from a file that exists, as far as the system lets it.
pub(super) fn restrict(file: &Path) {
    set_mode(file, FILE_MODE);
}

/// Takes the permissions of others from a folder of the store's own, as far as the system lets it.
pub(super) fn restrict_folder(folder: &Path) {
    set_mode(folder, FOLDER_MODE);
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    let set = fs::metadata(path).and_then(|metadata| match metadata.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
    });
    if let Err(error) = set {
        // The owner is another user, who has decided that this one may write here.
        tracing::warn!(path = %path.display(), %error, "other users may read the store");
    }
}

/// Other systems have no such permissions: a file has those of its folder.
#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: u32) {}
