//! What a collection is, as used: a JSON file whose items become resources, and the views onto them.
//!
//! Plain values for the collection source. A value that came out of `Config::load` keeps the rules of the table in
//! `list`: names are identifiers, paths and pointers are well-formed, a view has a filter or a group. Nothing here
//! looks at a file.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// A JSON file that another process writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionConfig {
    /// Its name: the scheme of its URIs and the end of `list_NAME`.
    pub name: String,
    /// The name of one item: the end of `get_ITEM`.
    pub item: String,
    /// The file; relative to `workspace.dir`, or to where the service was started when no folder is served.
    pub file: PathBuf,
    /// JSON pointer to the array; empty for the document itself.
    pub pointer: String,
    /// The field that names an item.
    pub id: String,
    /// Its name for people; without one, made of `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The views besides `all`.
    #[serde(default, rename = "view", skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewConfig>,
}

/// A part of a collection with a URI of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewConfig {
    /// Its name: the rest of its URI.
    pub name: String,
    /// Which items it shows.
    #[serde(flatten)]
    pub kind: ViewKind,
}

/// Which items a view shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewKind {
    /// Those that pass: one resource.
    Filter(FilterConfig),
    /// Those with the same value of this field: one resource per value.
    GroupBy(String),
}

/// A condition on one field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterConfig {
    /// The field: a dotted path, or a JSON pointer.
    pub field: String,
    /// What must hold of it.
    #[serde(flatten)]
    pub test: FilterTest,
}

/// What must hold of a field. A field that is `null` counts as missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterTest {
    /// It has this scalar value.
    Equals(Value),
    /// It has another value, or none.
    NotEquals(Value),
    /// It has one of these scalar values.
    In(Vec<Value>),
    /// Whether it is there.
    Exists(bool),
    /// It is a text that contains this one, or a list with this text in it.
    Contains(String),
}
