//! Which files may be run.
//!
//! Owns: the rules for executables of the folder, checked when the folder is looked at and again before each run:
//! a regular file with an x bit, inside its folder, that not everybody may write. Runs on blocking threads.

use super::folder::is_absent;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Any of the three x bits.
const EXECUTABLE: u32 = 0o111;
/// Writable by everybody.
const WORLD_WRITABLE: u32 = 0o002;

/// Why a file may not be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("does not exist any more")]
    Absent,
    #[error("cannot be looked at; check its permissions")]
    Unseen,
    #[error("is not a file")]
    NotAFile,
    #[error("is a link that leaves the folder; put a copy into the folder")]
    LeavesFolder,
    #[error("is not executable; chmod +x it")]
    NotExecutable,
    #[error("may be written by everybody; chmod o-w it")]
    WorldWritable,
}

/// Whether `path` may be run as a program of the folder `home`.
pub(super) fn check(home: &Path, path: &Path) -> Result<(), Unfit> {
    let failed = |error: std::io::Error| {
        if is_absent(&error) {
            Unfit::Absent
        } else {
            Unfit::Unseen
        }
    };
    let real = fs::canonicalize(path).map_err(failed)?;
    if !real.starts_with(fs::canonicalize(home).map_err(failed)?) {
        return Err(Unfit::LeavesFolder);
    }
    let metadata = fs::metadata(&real).map_err(failed)?;
    let mode = metadata.permissions().mode();
    if !metadata.is_file() {
        Err(Unfit::NotAFile)
    } else if mode & EXECUTABLE == 0 {
        Err(Unfit::NotExecutable)
    } else if mode & WORLD_WRITABLE != 0 {
        Err(Unfit::WorldWritable)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_safe_file_inside_may_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("tools");
        fs::create_dir(&home).unwrap();
        let file = home.join("a");
        assert_eq!(check(&home, &file), Err(Unfit::Absent));
        fs::write(&file, "").unwrap();
        let verdict = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            check(&home, &file)
        };
        assert_eq!(verdict(0o644), Err(Unfit::NotExecutable));
        assert_eq!(verdict(0o757), Err(Unfit::WorldWritable));
        assert_eq!(verdict(0o775), Ok(()));
        assert_eq!(check(&home, &home), Err(Unfit::NotAFile));
        fs::rename(&file, dir.path().join("out")).unwrap();
        symlink("../out", home.join("link")).unwrap();
        assert_eq!(check(&home, &home.join("link")), Err(Unfit::LeavesFolder));
    }
}
