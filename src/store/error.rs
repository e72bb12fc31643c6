//! The faults of a store's files, with messages that name the remedy.

use std::path::{Path, PathBuf};

use tidings_actors::{ResourceUri, StoreError};

/// A fault of the store.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Another process uses the file.
    InUse,
    /// The file was not written by this program, or was altered.
    Damaged(String),
    /// A newer version wrote the file, in this format.
    Newer(u64),
    /// The file system refuses an operation.
    Refused(std::io::Error),
    /// The file of a body is not the one that was written.
    Body {
        uri: ResourceUri,
        file: PathBuf,
        problem: String,
    },
}

/// A fault and the file that has it.
#[derive(Debug, thiserror::Error)]
enum FileFault<'a> {
    #[error(
        "{0} is in use by another process; stop that one, give this one another data directory, or back up the running \
         service with `tidings store backup --url`"
    )]
    InUse(&'a Path),
    #[error(
        "{0} is damaged or not a store of this program: {1}; restore a backup, or move the file away to begin anew"
    )]
    Damaged(&'a Path, String),
    #[error(
        "{0} has format {1}, which is newer than this version knows; run the version that wrote it, or move the file \
         away to begin anew"
    )]
    Newer(&'a Path, u64),
    #[error("{0} cannot be used: {1}; check that its folder exists, may be written and has room")]
    Refused(&'a Path, std::io::Error),
    #[error(
        "{file} with the body of {uri} {problem}; restore this file from a copy, or the store from a backup"
    )]
    Body {
        uri: ResourceUri,
        file: PathBuf,
        problem: String,
    },
}

impl Fault {
    /// Returns the error, which names `file`.
    pub(super) fn of(self, file: &Path) -> StoreError {
        let full = match &self {
            Fault::Refused(error) => is_full(error),
            _ => false,
        };
        let fault = match self {
            Fault::InUse => FileFault::InUse(file),
            Fault::Damaged(reason) => FileFault::Damaged(file, reason),
            Fault::Newer(format) => FileFault::Newer(file, format),
            Fault::Refused(error) => FileFault::Refused(file, error),
            Fault::Body { uri, file, problem } => FileFault::Body { uri, file, problem },
        };
        StoreError {
            reason: fault.to_string().into(),
            full,
        }
    }
}

/// Returns true if there is no room: the disk (`ENOSPC`), a quota (`EDQUOT`) or the size limit of a file
/// (`EFBIG`).
fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        match error.kind() {
            // redb reports a file that is too short or has no header this way.
            InvalidData | UnexpectedEof => Fault::Damaged(error.to_string()),
            _ => Fault::Refused(error),
        }
    }
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Fault {
        use redb::Error as E;
        match error {
            E::DatabaseAlreadyOpen | E::LockProtocolMismatch => Fault::InUse,
            E::Io(error) => error.into(),
            E::PreviousIo | E::DatabaseClosed | E::ValueTooLarge(_) | E::Unsupported => {
                Fault::Refused(std::io::Error::other(error))
            }
            other => Fault::Damaged(other.to_string()),
        }
    }
}

macro_rules! from_database {
    ($($error:ty),*) => { $(impl From<$error> for Fault {
        fn from(error: $error) -> Fault {
            redb::Error::from(error).into()
        }
    })* };
}

from_database!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::SetDurabilityError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError,
    redb::CompactionError
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_room_is_told_from_other_faults() {
        use std::io::{Error, ErrorKind};
        for (kind, full) in [
            (ErrorKind::StorageFull, true),
            (ErrorKind::QuotaExceeded, true),
            (ErrorKind::FileTooLarge, true),
            (ErrorKind::PermissionDenied, false),
            (ErrorKind::Other, false),
        ] {
            let error = Fault::from(Error::from(kind)).of(Path::new("file"));
            assert_eq!(error.full, full, "{kind}");
        }
    }
}
