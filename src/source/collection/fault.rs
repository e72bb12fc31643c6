//! Why a file is not taken, in words that name the place and the remedy.
//!
//! Made by the reading and the document; logged by the task once per episode. Nothing here ends the source: what was
//! read before stays.

use std::io;

/// What is wrong with the file as it is now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("not JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("no array at {pointer:?}; set collection.pointer to where the items are")]
    NoArray { pointer: String },
    #[error("item {place} is no object")]
    NotAnObject { place: usize },
    #[error(
        "item {place} has no {field:?} that is a text or a whole number; set collection.id to the field that names items"
    )]
    NoId { place: usize, field: String },
    #[error("items {first} and {second} are both {id:?}; give each its own")]
    SameId { first: usize, second: usize, id: String },
    #[error("{len} items and the limit is {max}; raise workspace.collection_items_max")]
    TooMany { len: usize, max: usize },
    #[error("{len} bytes and the limit is {max}; raise workspace.collection_bytes_max")]
    TooLarge { len: u64, max: u64 },
    #[error("{uri} would have {len} bytes and the limit is {max}; raise bus.body_bytes_max")]
    ViewTooLarge { uri: String, len: usize, max: usize },
    #[error("not a file")]
    NotAFile,
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}
