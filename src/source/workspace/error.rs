//! Why a folder cannot be served, in words that name it and the remedy.
//!
//! Made by the start of the source; read by the person who starts the service. Nothing that goes wrong later
//! ends the source: that is counted and logged.

use std::io;
use std::path::PathBuf;

/// Why the folder source did not start. What it registered before stays registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The configuration names no folder.
    #[error("no folder to serve; set workspace.dir")]
    NotConfigured,
    /// The folder does not exist.
    #[error("folder {} does not exist; create it or set workspace.dir to another", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// It exists, and is something else.
    #[error("{} is not a folder; set workspace.dir to the folder that holds `resources`", dir.display())]
    NotAFolder {
        /// What was configured.
        dir: PathBuf,
    },
    /// The system does not let the service look at it.
    #[error("cannot look at folder {}; check its permissions", dir.display())]
    Unreadable {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bus stopped while the folder was read for the first time.
    #[error(transparent)]
    Closed(#[from] tidings_actors::Closed),
}
