//! The rules for files that may be run: a regular file with an x bit, inside its folder, not writable by
//! everyone.
//!
//! They are checked when the folder is scanned and again before each run. It runs on blocking threads.

use crate::source::file::is_absent;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Any of the three x bits.
const EXECUTABLE: u32 = 0o111;
/// Writable by users other than the owner and the group.
const WORLD_WRITABLE: u32 = 0o002;

/// The reason that a file may not be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotRunnable {
    #[error("does not exist any more")]
    Absent,
    #[error("cannot be looked at; check its permissions")]
    Unreadable,
    #[error("is not a file")]
    NotAFile,
    #[error("is a link that leaves the folder; put a copy into the folder")]
    LeavesFolder,
    #[error("is not executable; chmod +x it")]
    NotExecutable,
    #[error("may be written by everybody; chmod o-w it")]
    WorldWritable,
}

impl From<std::io::Error> for NotRunnable {
    fn from(error: std::io::Error) -> NotRunnable {
        if is_absent(&error) {
            NotRunnable::Absent
        } else {
            NotRunnable::Unreadable
        }
    }
}

/// Checks that `path` may be run as an executable of the folder `home`.
pub(super) fn check(home: &Path, path: &Path) -> Result<(), NotRunnable> {
    // Links are resolved first, since the program that they lead to is the one that runs.
    let real = fs::canonicalize(path)?;
    if !real.starts_with(fs::canonicalize(home)?) {
        return Err(NotRunnable::LeavesFolder);
    }
    let metadata = fs::metadata(&real)?;
    let mode = metadata.permissions().mode();
    if !metadata.is_file() {
        Err(NotRunnable::NotAFile)
    } else if mode & EXECUTABLE == 0 {
        Err(NotRunnable::NotExecutable)
    } else if mode & WORLD_WRITABLE != 0 {
        Err(NotRunnable::WorldWritable)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn executable_is_a_safe_file_inside() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("tools");
        fs::create_dir(&home).unwrap();
        let file = home.join("a");
        assert_eq!(check(&home, &file), Err(NotRunnable::Absent));
        fs::write(&file, "").unwrap();
        for (mode, checked) in [
            (0o644, Err(NotRunnable::NotExecutable)),
            (0o757, Err(NotRunnable::WorldWritable)),
            (0o775, Ok(())),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check(&home, &file), checked, "{mode:o}");
        }
        assert_eq!(check(&home, &home), Err(NotRunnable::NotAFile));
        fs::rename(&file, dir.path().join("out")).unwrap();
        symlink("../out", home.join("link")).unwrap();
        assert_eq!(check(&home, &home.join("link")), Err(NotRunnable::LeavesFolder));
    }
}
