//! The faults of a store's file, with messages that name the remedy.

use std::path::{Path, PathBuf};

use tidings_actors::StoreError;

/// A fault of the store.
#[derive(Debug)]
pub(super) enum Fault {
    /// Another process uses the file.
    InUse,
    /// The file was not written by this program, or was altered.
    Damaged(String),
    /// A newer version wrote the file, in this format.
    Newer(u64),
    /// The file system refuses an operation.
    Refused(String),
}

/// A fault and the file that has it.
#[derive(Debug, thiserror::Error)]
enum FileFault {
    #[error("{0} is in use by another process; stop that one or give this one another data directory")]
    InUse(PathBuf),
    #[error(
        "{0} is damaged or not a store of this program: {1}; restore a copy, or move the file away to begin anew"
    )]
    Damaged(PathBuf, String),
    #[error(
        "{0} has format {1}, which is newer than this version knows; run the version that wrote it, or move the file \
         away to begin anew"
    )]
    Newer(PathBuf, u64),
    #[error("{0} cannot be used: {1}; check that its folder exists, may be written and has room")]
    Refused(PathBuf, String),
}

impl Fault {
    /// Returns the error, which names `file`.
    pub(super) fn of(self, file: &Path) -> StoreError {
        let file = file.to_owned();
        StoreError(Box::new(match self {
            Fault::InUse => FileFault::InUse(file),
            Fault::Damaged(reason) => FileFault::Damaged(file, reason),
            Fault::Newer(format) => FileFault::Newer(file, format),
            Fault::Refused(reason) => FileFault::Refused(file, reason),
        }))
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        match error.kind() {
            // redb reports a file that is too short or has no header this way.
            InvalidData | UnexpectedEof => Fault::Damaged(error.to_string()),
            _ => Fault::Refused(error.to_string()),
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
                Fault::Refused(error.to_string())
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
    redb::CommitError
);
