//! JSON files whose items are served, and the views onto them.

use super::bounded::{Checked, Field, File, List, Name, Pointer, Scalar, SchemeName, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// A JSON file that another process writes and whose items are served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectionConfig {
    /// Scheme of the URIs (`NAME://all`) and end of the tool `list_NAME`; each is used once.
    #[serde(with = "Checked::<SchemeName>")]
    #[schemars(extend("x-unique" = []))]
    pub name: String,
    /// Name of one item: end of the tool `get_ITEM`; each is used once.
    #[serde(with = "Checked::<Name>")]
    #[schemars(extend("x-unique" = []))]
    pub item: String,
    /// The JSON file. A relative path starts at `workspace.dir`, without one at the folder of the
    /// configuration file.
    #[serde(with = "Checked::<File>")]
    pub file: PathBuf,
    /// JSON pointer (RFC 6901) to the array of items; empty for the document itself.
    #[serde(default, with = "Checked::<Pointer>")]
    pub pointer: String,
    /// Field that names an item: a text or a whole number that no other item has.
    #[serde(default = "id", with = "Checked::<Field>")]
    pub id: String,
    /// Name of the items for people; without it, `name`.
    #[serde(default, with = "Checked::<Text<1, 256>>")]
    pub title: Option<String>,
    /// A part of the items, `[[collection.view]]`, with either `filter` or `group_by`.
    #[serde(default, rename = "view")]
    pub views: Vec<ViewConfig>,
}

fn id() -> String {
    "id".to_owned()
}

/// A part of a collection with a URI of its own; either `filter` or `group_by` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["filter", "group_by"]))]
pub struct ViewConfig {
    /// Rest of its URI; `all` is taken.
    #[serde(with = "Checked::<Name>")]
    #[schemars(extend("x-unique" = ["all"]))]
    pub name: String,
    /// Shows the items that pass, as one resource `NAME://VIEW`: `field` and one test.
    #[serde(default)]
    pub filter: Option<FilterConfig>,
    /// Shows the items by value of this field, as one resource `NAME://VIEW/{value}` for each value.
    #[serde(default, with = "Checked::<Field>")]
    pub group_by: Option<String>,
}

/// A condition on one field: exactly one of the keys after `field` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["equals", "not_equals", "in", "exists", "contains"]))]
pub struct FilterConfig {
    /// The field that is tested; `null` counts as missing.
    #[serde(with = "Checked::<Field>")]
    pub field: String,
    /// It has this value.
    #[serde(default, with = "Checked::<Scalar>")]
    pub equals: Option<Value>,
    /// It has another value, or is missing.
    #[serde(default, with = "Checked::<Scalar>")]
    pub not_equals: Option<Value>,
    /// It has one of these values.
    #[serde(default, rename = "in", with = "Checked::<List<Scalar, 1, 256>>")]
    pub one_of: Option<Vec<Value>>,
    /// True where it is there, false where it is missing.
    #[serde(default)]
    pub exists: Option<bool>,
    /// It is a text with this in it, or a list that has this text.
    #[serde(default, with = "Checked::<Text<1, 4096>>")]
    pub contains: Option<String>,
}
