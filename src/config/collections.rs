//! JSON files whose items are served, and the views onto them.

use super::bounded::*;
use serde_json::Value;
use std::path::PathBuf;

table! { CollectionConfig = "A JSON file that another process writes and whose items are served.";
    /// Scheme of the URIs (`NAME://all`) and end of the tool `list_NAME`; each is used once.
    name: String = String::new(), "Checked::<SchemeName>";
    /// Name of one item: end of the tool `get_ITEM`; each is used once.
    item: String = String::new(), "Checked::<Name>";
    /// The JSON file. A relative path starts at `workspace.dir`, without one at the folder of the
    /// configuration file.
    file: PathBuf = PathBuf::new(), "Checked::<File>";
    /// JSON pointer (RFC 6901) to the array of items; empty for the document itself.
    pointer: String = String::new(), "Checked::<Pointer>";
    /// Field that names an item: a text or a whole number that no other item has.
    id: String = "id".to_owned(), "Checked::<Field>";
    /// Name of the items for people; without it, `name`.
    title: Option<String> = None, "Checked::<Text<1, 256>>";
    /// A part of the items, `[[collection.view]]`, with either `filter` or `group_by`.
    #[serde(rename = "view")]
    views: Vec<ViewConfig> = Vec::new();
}

table! { #[schemars(extend("x-one-of" = ["filter", "group_by"]))]
    ViewConfig = "A part of a collection with a URI of its own; either `filter` or `group_by` is set.";
    /// Rest of its URI; `all` is taken.
    #[schemars(extend("x-unique" = ["all"]))]
    name: String = String::new(), "Checked::<Name>";
    /// Shows the items that pass, as one resource `NAME://VIEW`: `field` and one test.
    filter: Option<FilterConfig> = None;
    /// Shows the items by value of this field, as one resource `NAME://VIEW/{value}` for each value.
    group_by: Option<String> = None, "Checked::<Field>";
}

table! { #[schemars(extend("x-one-of" = ["equals", "not_equals", "in", "exists", "contains"]))]
    FilterConfig = "A condition on one field: exactly one of the keys after `field` is set.";
    /// The field that is tested; `null` counts as missing.
    field: String = String::new(), "Checked::<Field>";
    /// It has this value.
    equals: Option<Value> = None, "Checked::<Scalar>";
    /// It has another value, or is missing.
    not_equals: Option<Value> = None, "Checked::<Scalar>";
    /// It has one of these values.
    #[serde(rename = "in")]
    one_of: Option<Vec<Value>> = None, "Checked::<List<Scalar, 1, 256>>";
    /// True where it is there, false where it is missing.
    exists: Option<bool> = None;
    /// It is a text with this in it, or a list that has this text.
    contains: Option<String> = None, "Checked::<Text<1, 4096>>";
}
