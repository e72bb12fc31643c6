//! JSON files whose items are served, and the views onto them.

use super::bounded::{Field, File, Name, Optional, Pointer, Rule as _, Scalar, Scalars, SchemeName, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// A JSON file that another process writes and whose items are served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectionConfig {
    /// Scheme of the URIs (`NAME://all`) and end of the tool `list_NAME`; each is used once.
    #[serde(with = "SchemeName")]
    #[schemars(extend("x-unique" = []))]
    pub name: String,
    /// Name of one item: end of the tool `get_ITEM`; each is used once.
    #[serde(with = "Name")]
    #[schemars(extend("x-unique" = []))]
    pub item: String,
    /// The JSON file. A relative path starts at `workspace.dir`, without one at the folder of the configuration file.
    #[serde(with = "File")]
    pub file: PathBuf,
    /// JSON pointer (RFC 6901) to the array of items; empty for the document itself.
    #[serde(default, with = "Pointer")]
    pub pointer: String,
    /// Field that names an item: a text or a whole number that no other item has.
    #[serde(default = "id", with = "Field")]
    pub id: String,
    /// Name of the items for people; without it, `name`.
    #[serde(default, with = "Optional::<Text<1, 256>>")]
    pub title: Option<String>,
    /// A part of the items, `[[collection.view]]`, with either `filter` or `group_by`.
    #[serde(default, rename = "view")]
    pub views: Vec<ViewConfig>,
}

fn id() -> String {
    "id".to_owned()
}

/// A part of a collection with a URI of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ViewTable", into = "ViewTable")]
pub struct ViewConfig {
    /// Rest of its URI.
    pub name: String,
    /// The items it shows.
    pub kind: ViewKind,
}

/// The items that a view shows.
#[derive(Clone, Debug, PartialEq)]
pub enum ViewKind {
    /// The items that pass: one resource.
    Filter(FilterConfig),
    /// The items with the same value of this field: one resource per value.
    GroupBy(String),
}

/// A view as a file has it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["filter", "group_by"]))]
struct ViewTable {
    /// Rest of its URI; `all` is taken.
    #[serde(with = "Name")]
    #[schemars(extend("x-unique" = ["all"]))]
    name: String,
    /// Shows the items that pass, as one resource `NAME://VIEW`: `field` and one test.
    #[serde(default)]
    filter: Option<FilterConfig>,
    /// Shows the items by value of this field, as one resource `NAME://VIEW/{value}` for each value.
    #[serde(default, with = "Optional::<Field>")]
    group_by: Option<String>,
}

impl TryFrom<ViewTable> for ViewConfig {
    type Error = &'static str;

    fn try_from(table: ViewTable) -> Result<ViewConfig, &'static str> {
        let kind = match (table.filter, table.group_by) {
            (Some(filter), None) => ViewKind::Filter(filter),
            (None, Some(field)) => ViewKind::GroupBy(field),
            _ => return Err("needs exactly one of filter, group_by"),
        };
        Ok(ViewConfig {
            name: table.name,
            kind,
        })
    }
}

impl From<ViewConfig> for ViewTable {
    fn from(view: ViewConfig) -> ViewTable {
        let (filter, group_by) = match view.kind {
            ViewKind::Filter(filter) => (Some(filter), None),
            ViewKind::GroupBy(field) => (None, Some(field)),
        };
        ViewTable {
            name: view.name,
            filter,
            group_by,
        }
    }
}

/// A condition on one field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "FilterTable", into = "FilterTable")]
pub struct FilterConfig {
    /// The field: a dotted path, or a JSON pointer.
    pub field: String,
    /// The condition on its value.
    pub test: FilterTest,
}

/// The condition on the value of a field. A field that is `null` counts as missing.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterTest {
    /// It has this scalar value.
    Equals(Value),
    /// It has another value, or none.
    NotEquals(Value),
    /// It has one of these scalar values.
    In(Vec<Value>),
    /// True: it is there. False: it is missing.
    Exists(bool),
    /// It is a text that contains this one, or a list with this text in it.
    Contains(String),
}

/// A condition as a file has it.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-one-of" = ["equals", "not_equals", "in", "exists", "contains"]))]
struct FilterTable {
    /// The field that is tested; `null` counts as missing.
    #[serde(with = "Field")]
    field: String,
    /// It has this value.
    #[serde(default, with = "Optional::<Scalar>")]
    equals: Option<Value>,
    /// It has another value, or is missing.
    #[serde(default, with = "Optional::<Scalar>")]
    not_equals: Option<Value>,
    /// It has one of these values.
    #[serde(default, rename = "in", with = "Optional::<Scalars>")]
    one_of: Option<Vec<Value>>,
    /// True where it is there, false where it is missing.
    #[serde(default)]
    exists: Option<bool>,
    /// It is a text with this in it, or a list that has this text.
    #[serde(default, with = "Optional::<Text<1, 4096>>")]
    contains: Option<String>,
}

impl TryFrom<FilterTable> for FilterConfig {
    type Error = &'static str;

    fn try_from(table: FilterTable) -> Result<FilterConfig, &'static str> {
        let tests = [
            table.equals.map(FilterTest::Equals),
            table.not_equals.map(FilterTest::NotEquals),
            table.one_of.map(FilterTest::In),
            table.exists.map(FilterTest::Exists),
            table.contains.map(FilterTest::Contains),
        ];
        let mut tests = tests.into_iter().flatten();
        let (Some(test), None) = (tests.next(), tests.next()) else {
            return Err("needs exactly one of equals, not_equals, in, exists, contains");
        };
        Ok(FilterConfig {
            field: table.field,
            test,
        })
    }
}

impl From<FilterConfig> for FilterTable {
    fn from(filter: FilterConfig) -> FilterTable {
        let mut table = FilterTable {
            field: filter.field,
            ..FilterTable::default()
        };
        match filter.test {
            FilterTest::Equals(value) => table.equals = Some(value),
            FilterTest::NotEquals(value) => table.not_equals = Some(value),
            FilterTest::In(values) => table.one_of = Some(values),
            FilterTest::Exists(exists) => table.exists = Some(exists),
            FilterTest::Contains(text) => table.contains = Some(text),
        }
        table
    }
}
