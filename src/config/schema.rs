//! The tables of keys, taken from the structs: their JSON Schema has the names, the words, the ranges and the defaults.
//!
//! Reading, messages, printing and the documentation look keys up here, so that none of them names a key of its own.

use super::Config;
use super::syntax::TABLES_MAX;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// The marker in a doc comment before the part that tells the behaviour at the limit.
const AT_LIMIT: &str = "At the limit: ";

/// Every table, the root first, in the order of declaration.
static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let mut tables = Vec::new();
    // Only the schema of serialization has the fields in order: its `required` is an array that names each of them.
    let ordered = SchemaSettings::draft2020_12().for_serialize();
    let ordered = ordered.with(|settings| settings.inline_subschemas = true);
    let ordered = ordered.into_generator().into_root_schema_for::<Config>();
    collect(&mut tables, "", json_schema().as_value(), ordered.as_value());
    tables
});

/// A section, one table of a list, or a table within.
#[derive(Debug)]
pub(super) struct Table {
    /// Dotted path; empty for the root.
    pub(super) path: String,
    /// The summary of its struct.
    pub(super) about: String,
    /// Its keys, in the order of declaration.
    pub(super) keys: Vec<Key>,
    /// Keys of which exactly one must be there; empty where there is no such rule.
    pub(super) one_of: Vec<String>,
}

/// A key of a table.
#[derive(Debug)]
pub(super) struct Key {
    /// Dotted path.
    pub(super) path: String,
    /// The meaning of its value.
    pub(super) meaning: String,
    /// The behaviour at the limit; empty where the value is no limit.
    pub(super) at_limit: String,
    /// Type and range in words.
    pub(super) allowed: String,
    /// True where a table without it is refused.
    pub(super) required: bool,
    /// The form of its value.
    pub(super) form: Form,
    /// Attributes that mark its value, such as `x-path`.
    pub(super) marks: Map<String, Value>,
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Flag,
    Integer,
    Text,
    /// An array of values.
    Array,
    /// Text, integer or boolean.
    Any,
    /// A table of its own.
    Table,
    /// A list of tables.
    Tables,
}

impl Table {
    /// The table at a dotted path without indices.
    pub(super) fn at(path: &str) -> Option<&'static Table> {
        TABLES.iter().find(|table| table.path == path)
    }

    /// The table of the sections and lists.
    pub(super) fn root() -> &'static Table {
        &TABLES[0]
    }

    /// The key of this name.
    pub(super) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name() == name)
    }
}

impl Key {
    /// The key at a dotted path without indices.
    pub(super) fn at(path: &str) -> Option<&'static Key> {
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        Table::at(table)?.key(name)
    }

    /// The keys of all sections, which alone can be set by a variable.
    pub(super) fn of_sections() -> impl Iterator<Item = &'static Key> {
        let sections = Table::root().keys.iter().filter(|key| key.form == Form::Table);
        sections
            .filter_map(|section| Table::at(&section.path))
            .flat_map(|table| &table.keys)
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// The environment variable that sets it.
    pub(super) fn variable(&self) -> String {
        format!("TIDINGS_{}", self.path.replace('.', "__").to_ascii_uppercase())
    }
}

/// The JSON Schema of the file, without references.
pub(super) fn json_schema() -> schemars::Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>()
}

/// Collects the table at `path` and the tables within.
fn collect(tables: &mut Vec<Table>, path: &str, schema: &Value, ordered: &Value) {
    let names = texts(&ordered["required"]);
    let required = texts(&schema["required"]);
    let mut keys = Vec::new();
    for name in &names {
        let dotted = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        keys.push(key(dotted, &schema["properties"][name], required.contains(name)));
    }
    tables.push(Table {
        path: path.to_owned(),
        about: words(&schema["description"]).0,
        one_of: texts(&schema["x-one-of"]),
        keys,
    });
    for name in names {
        let (inner, ordered) = (
            table_of(&schema["properties"][&name]),
            table_of(&ordered["properties"][&name]),
        );
        if let (Some(inner), Some(ordered)) = (inner, ordered) {
            let dotted = if path.is_empty() {
                name
            } else {
                format!("{path}.{name}")
            };
            collect(tables, &dotted, inner, ordered);
        }
    }
}

fn key(path: String, schema: &Value, required: bool) -> Key {
    let (meaning, at_limit) = words(&schema["description"]);
    let form = form(schema);
    let marks = schema.as_object().into_iter().flatten();
    let marks = marks.filter(|(name, _)| name.starts_with("x-"));
    Key {
        allowed: allowed(schema, form, &path),
        marks: marks.map(|(name, value)| (name.clone(), value.clone())).collect(),
        path,
        meaning,
        at_limit,
        required,
        form,
    }
}

/// The schema of the table that `schema` holds, alone, optionally, or in a list.
fn table_of(schema: &Value) -> Option<&Value> {
    let candidates = [schema, &schema["items"], &schema["anyOf"][0]];
    candidates
        .into_iter()
        .find(|candidate| candidate["properties"].is_object())
}

fn form(schema: &Value) -> Form {
    let types = match &schema["type"] {
        Value::Array(types) => types.as_slice(),
        one => std::slice::from_ref(one),
    };
    match (table_of(schema), types[0].as_str()) {
        (Some(_), Some("array")) => Form::Tables,
        (Some(_), _) => Form::Table,
        // serde's own type of an optional boolean allows null too.
        (None, Some("boolean")) => Form::Flag,
        (None, _) if types.len() > 1 => Form::Any,
        (None, Some("integer")) => Form::Integer,
        (None, Some("array")) => Form::Array,
        (None, _) => Form::Text,
    }
}

/// Type and range in words. Rules bring their own; the rest is told by the schema.
fn allowed(schema: &Value, form: Form, path: &str) -> String {
    if let Some(words) = schema["x-allowed"].as_str() {
        return words.to_owned();
    }
    match form {
        Form::Flag => "true or false".to_owned(),
        Form::Table if path.contains('.') => "a table".to_owned(),
        Form::Table => format!("a section, written [{path}]"),
        Form::Tables => format!("a list of at most {TABLES_MAX} tables"),
        _ => {
            let choices = schema["oneOf"].as_array().into_iter().flatten();
            let choices: Vec<_> = choices.filter_map(|choice| choice["const"].as_str()).collect();
            format!("\"{}\"", choices.join("\" or \""))
        }
    }
}

/// Splits a doc comment into its text and the behaviour at the limit, each on one line.
fn words(description: &Value) -> (String, String) {
    let text = description
        .as_str()
        .unwrap_or_default()
        .replace(['\n'], " ")
        .replace("\\[", "[")
        .replace("\\]", "]");
    let (meaning, at_limit) = text.split_once(AT_LIMIT).unwrap_or((&text, ""));
    (meaning.trim().to_owned(), at_limit.trim().to_owned())
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// See [`Config::keys_for_restart`].
pub(super) fn keys_for_restart(before: &Config, after: &Config) -> Vec<String> {
    let [before, after] = [before, after].map(values);
    let mut changed = Vec::new();
    for section in &Table::root().keys {
        let (old, new) = (&before[&section.path], &after[&section.path]);
        if old == new || section.marks.contains_key("x-reloaded") {
            continue;
        }
        match (section.form, Table::at(&section.path)) {
            (Form::Table, Some(table)) => {
                let keys = table.keys.iter().filter(|key| old[key.name()] != new[key.name()]);
                changed.extend(keys.map(|key| key.path.clone()));
            }
            _ => changed.push(section.path.clone()),
        }
    }
    changed
}

/// Every value as a file would have it.
pub(super) fn values(config: &Config) -> Value {
    serde_json::to_value(config).expect("sections hold plain values, which JSON can carry")
}
