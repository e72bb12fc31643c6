//! Files and folders that only the user of the service may look at: they hold what clients may not read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// The permissions of folders and of files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Takes the permissions of others from the folder of a store, if everything in it is of the store (`own`).
/// One with other content keeps its permissions, since others may have a right to that; a warning tells if
/// they may replace the files.
pub(super) fn restrict_shared_folder(folder: &Path, own: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if !own.iter().any(|own| name == *own) {
            warn_if_writable(folder);
            return Ok(());
        }
    }
    restrict_folder(folder);
    Ok(())
}

/// Warns if other users may put other files in the place of those in `folder`.
#[cfg(unix)]
fn warn_if_writable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // Where only owners may rename and remove files, others cannot replace any.
    const ONLY_OWNERS: u32 = 0o1000;
    let Ok(metadata) = fs::metadata(folder) else {
        return;
    };
    let mode = metadata.permissions().mode();
    if mode & 0o022 != 0 && mode & ONLY_OWNERS == 0 {
        tracing::warn!(
            path = %folder.display(),
            mode = format_args!("{:o}", mode & 0o7777),
            "other users may replace the files of the store; use a folder of its own, or run chmod go-w on this one"
        );
    }
}

/// Other systems have no such permissions.
#[cfg(not(unix))]
fn warn_if_writable(_folder: &Path) {}

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
    use std::os::unix::fs::PermissionsExt;
    let set = fs::metadata(path).and_then(|metadata| match metadata.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
    });
    if let Err(error) = set {
        // The owner is another user, who has decided that this one may write here.
        tracing::warn!(path = %path.display(), %error, "other users keep their permissions here, since the owner is another user");
    }
}

/// Other systems have no such permissions: a file has those of its folder.
#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: u32) {}
