//! Reading the file with care: all of one state, never a pipe, never more than allowed.
//!
//! Owns: the only place where the source reads. Another process may do anything to the file meanwhile, so what was
//! opened is checked, and a file that changes while it is read is said to be unsettled. Runs on blocking threads.

use super::fault::Fault;
use crate::source::file_identity::FileIdentity;
use crate::source::open::open;
use std::fs;
use std::io::{self, ErrorKind, Read, Seek};
use std::path::Path;
use std::time::SystemTime;

/// How often a file that changes while it is read is read anew before its writer is left alone for a while.
const ATTEMPTS_MAX: usize = 4;

/// What came of reading.
#[derive(Debug)]
pub(super) enum Reading {
    /// Its bytes, and the state they belong to when that state can be told from later ones.
    Bytes(Vec<u8>, Option<FileIdentity>),
    /// It is in the state that is known.
    Known,
    /// There is no file.
    Absent,
    /// It is being written.
    Unsettled,
    /// It cannot be taken.
    Faulty(Fault),
}

/// Reads the file unless it is in the state `known`.
pub(super) fn read(path: &Path, known: Option<FileIdentity>, bytes_max: u64) -> Reading {
    try_read(path, known, bytes_max).unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Reading::Absent,
        _ => Reading::Faulty(error.into()),
    })
}

fn try_read(path: &Path, known: Option<FileIdentity>, bytes_max: u64) -> io::Result<Reading> {
    let metadata = fs::metadata(path)?;
    // Opening a device can have effects, so look before.
    if !metadata.is_file() {
        return Ok(Reading::Faulty(Fault::NotAFile));
    }
    if known == Some(FileIdentity::of(&metadata)) {
        return Ok(Reading::Known);
    }
    let mut file = open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(Reading::Faulty(Fault::NotAFile));
    }
    for _ in 0..ATTEMPTS_MAX {
        let now = SystemTime::now();
        let before = FileIdentity::of(&file.metadata()?);
        let (len, max) = (before.len, bytes_max);
        if len > max {
            return Ok(Reading::Faulty(Fault::TooLarge { len, max }));
        }
        let mut bytes = Vec::with_capacity(len as usize + 1);
        file.rewind()?;
        // One byte more than there should be shows that it grew.
        (&file).take(len + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len && FileIdentity::of(&file.metadata()?) == before {
            return Ok(Reading::Bytes(
                bytes,
                Some(before).filter(|state| state.is_settled(now)),
            ));
        }
    }
    Ok(Reading::Unsettled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn reads_a_file_whole_or_says_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        assert!(matches!(read(&path, None, 8), Reading::Absent));
        assert!(matches!(read(&path.join("below"), None, 8), Reading::Absent));
        fs::write(&path, "12345678").unwrap();
        let Reading::Bytes(bytes, state) = read(&path, None, 8) else {
            panic!("not read")
        };
        assert_eq!(
            (bytes.as_slice(), state),
            (b"12345678".as_slice(), None),
            "written just now"
        );
        assert!(matches!(read(&path.join("below"), None, 8), Reading::Absent));
        fs::write(&path, "123456789").unwrap();
        assert!(matches!(
            read(&path, None, 8),
            Reading::Faulty(Fault::TooLarge { len: 9, max: 8 })
        ));
        assert!(matches!(
            read(dir.path(), None, 8),
            Reading::Faulty(Fault::NotAFile)
        ));
    }

    #[test]
    fn a_known_state_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "[]").unwrap();
        let identity = FileIdentity::of(&fs::metadata(&path).unwrap());
        assert!(matches!(read(&path, Some(identity), 8), Reading::Known));
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        assert!(matches!(read(&path, Some(identity), 8), Reading::Bytes(..)));
    }
}
