//! Why a collection cannot be served, in words that name it and the remedy.
//!
//! Made by the start of the source; read by the person who starts the service. Nothing that goes wrong later ends
//! the source: that is logged.

use std::io;
use std::path::PathBuf;
use tidings_actors::{Closed, PublishError};

/// Why a collection did not start. What it registered before stays registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectionError {
    /// The place of the file cannot be told.
    #[error("cannot tell where {} is; give collection.file as an absolute path", file.display())]
    Place {
        /// The file as configured.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is a tool of that name.
    #[error("there is a tool {tool} already; choose another collection.name or collection.item")]
    ToolTaken {
        /// The tool.
        tool: String,
    },
    /// The bus refused a tool or a template, because of one of its limits.
    #[error(transparent)]
    Refused(#[from] PublishError),
    /// The bus stopped meanwhile.
    #[error(transparent)]
    Closed(#[from] Closed),
}
