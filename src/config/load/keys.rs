//! The keys of the file, taken from the JSON Schema of the structs: names, words, ranges and defaults.
//!
//! Reading, messages, printing and the documentation look keys up here, so that none of them names a key of
//! its own.

use super::Config;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::sync::LazyLock;

/// Most tables of a list.
pub(super) const TABLES_MAX: usize = 256;

/// The marker in a doc comment before the part that tells the behaviour at the limit.
const AT_LIMIT: &str = "At the limit: ";

static ROOT: LazyLock<Key> = LazyLock::new(|| {
    // Only the schema of serialization has the fields in order: its `required` is an array that names each of
    // them.
    let schema = generate(SchemaSettings::draft2020_12().for_serialize());
    Key::new(String::new(), schema.to_value())
});

/// A section, a list of tables, or a key of either.
#[derive(Debug)]
pub(super) struct Key {
    /// Dotted path without indices; empty for the root.
    pub(super) path: String,
    /// Its keys in the order of declaration, if it is a table or a list of tables.
    pub(super) keys: Vec<Key>,
    /// The JSON Schema of its value.
    pub(super) schema: Value,
}

impl Key {
    fn new(path: String, schema: Value) -> Key {
        let table = table_of(&schema);
        let mut keys = Vec::new();
        for name in texts(&table["required"]) {
            let inner = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            keys.push(Key::new(inner, table["properties"][name].clone()));
        }
        Key { path, keys, schema }
    }

    /// The table of the sections and lists.
    pub(super) fn root() -> &'static Key {
        &ROOT
    }

    /// The key at a dotted path without indices.
    pub(super) fn at(path: &str) -> Option<&'static Key> {
        let mut key = Key::root();
        for name in path.split('.') {
            key = key.key(name)?;
        }
        Some(key)
    }

    /// The key of this name within.
    pub(super) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name() == name)
    }

    /// The keys of all sections, which alone can be set by a variable.
    pub(super) fn of_sections() -> impl Iterator<Item = &'static Key> {
        let sections = Key::root().keys.iter().filter(|key| !key.is_list());
        sections.flat_map(|section| &section.keys)
    }

    /// The names of its keys, for a message.
    pub(super) fn names(&self) -> String {
        self.keys.iter().map(Key::name).collect::<Vec<_>>().join(", ")
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// The environment variable that sets it.
    pub(super) fn variable(&self) -> String {
        format!("TIDINGS_{}", self.path.replace('.', "__").to_ascii_uppercase())
    }

    /// Reports whether its value is a table or a list of tables.
    pub(super) fn is_table(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Reports whether its value is a list of tables.
    pub(super) fn is_list(&self) -> bool {
        self.is_table() && self.schema["type"] == "array"
    }

    /// Reports whether a table without it is refused.
    pub(super) fn is_required(&self) -> bool {
        // The schema has every default, that of an optional key as null.
        self.schema.get("default").is_none()
    }

    /// A value that its rule allows, which stands in for one that is missing or refused while the rest is
    /// checked.
    pub(super) fn example(&self) -> Value {
        self.schema["examples"][0].clone()
    }

    /// Names of keys within of which exactly one must be there; empty where there is no such rule.
    pub(super) fn one_of(&self) -> Vec<&str> {
        texts(&table_of(&self.schema)["x-one-of"])
    }

    /// The meaning of its value, and the behaviour at the limit, which is empty where the value is no limit.
    pub(super) fn words(&self) -> (String, String) {
        let text = self.schema["description"].as_str().unwrap_or_default();
        // Doc comments are wrapped, and rustdoc needs the brackets of `[::1]` escaped.
        let text = text.replace('\n', " ").replace("\\[", "[").replace("\\]", "]");
        let (meaning, at_limit) = text.split_once(AT_LIMIT).unwrap_or((&text, ""));
        (meaning.trim().to_owned(), at_limit.trim().to_owned())
    }

    /// Type and range in words. Rules bring their own; the rest is told by the schema.
    pub(super) fn allowed(&self) -> String {
        if let Some(words) = self.schema["x-allowed"].as_str() {
            return words.to_owned();
        }
        if self.is_list() {
            return format!(
                "a list of at most {TABLES_MAX} tables, each written [[{}]]",
                self.path
            );
        }
        if self.is_table() {
            return format!("a section, written [{}]", self.path);
        }
        match self.schema["oneOf"].as_array() {
            Some(choices) => {
                let choices: Vec<_> = choices.iter().map(|choice| choice["const"].to_string()).collect();
                choices.join(" or ")
            }
            None => "true or false".to_owned(),
        }
    }
}

/// The JSON Schema of the file, without references.
pub(super) fn json_schema() -> schemars::Schema {
    generate(SchemaSettings::draft2020_12())
}

fn generate(mut settings: SchemaSettings) -> schemars::Schema {
    // Without references, the schema of a key is found by its path, and a reader of the schema needs no
    // jumps.
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<Config>()
}

/// The schema of the table that `schema` holds: alone, optionally, or in a list.
fn table_of(schema: &Value) -> &Value {
    if schema["items"]["properties"].is_object() {
        &schema["items"]
    } else if schema["anyOf"].is_array() {
        &schema["anyOf"][0]
    } else {
        schema
    }
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Every value as a file would have it.
pub(super) fn values(config: &Config) -> Value {
    serde_json::to_value(config).expect("sections hold plain values, which JSON can carry")
}

/// See [`Config::keys_for_restart`].
pub(super) fn keys_for_restart(before: &Config, after: &Config) -> Vec<String> {
    let before = values(before);
    let after = values(after);
    let mut changed = Vec::new();
    for section in &Key::root().keys {
        let old = &before[section.name()];
        let new = &after[section.name()];
        // A list is named as a whole: its tables have no fixed paths.
        if section.is_list() {
            if old != new && section.schema["x-reloaded"] != true {
                changed.push(section.path.clone());
            }
            continue;
        }
        let keys = section
            .keys
            .iter()
            .filter(|key| old[key.name()] != new[key.name()]);
        changed.extend(keys.map(|key| key.path.clone()));
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_keys, from_text, refusal};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_stand_in_the_order_of_declaration() {
        assert!(Key::root().names().starts_with("http, session, bus, mcp, "));
        assert!(
            Key::root()
                .names()
                .ends_with(", collection, journal, webhook, debug_log")
        );
        let webhook = Key::at("webhook").unwrap();
        assert!(
            webhook
                .names()
                .starts_with("name, url, secret_file, secret_variable, ")
        );
    }

    #[test]
    fn required_keys_have_examples_that_load() {
        let required: Vec<_> = all_keys(Key::root())
            .into_iter()
            .filter(|key| key.is_required())
            .collect();
        assert_eq!(required.len(), 10, "{required:?}");
        let text = "[[collection]]\nitem = 1\n[[collection.view]]\nfilter = { exists = true }\n\
                    [[journal]]\n[[webhook]]\nsecret_variable = 'X'\n[[debug_log]]\n";
        // One mistake for each: nothing that stands in for a missing value is refused itself.
        assert_eq!(refusal(text).lines().count(), required.len(), "{}", refusal(text));
    }

    #[test]
    fn variable_follows_from_the_path() {
        let key = Key::at("session.subscriptions_max").unwrap();
        assert_eq!(key.variable(), "TIDINGS_SESSION__SUBSCRIPTIONS_MAX");
    }

    #[test]
    fn every_key_is_described_for_a_table_cell() {
        let mut paths = BTreeSet::new();
        for key in all_keys(Key::root()) {
            let path = &key.path;
            let (meaning, at_limit) = key.words();
            let allowed = key.allowed();
            assert!(paths.insert(path), "{path} stands twice");
            assert!(meaning.ends_with('.'), "{path}: {meaning}");
            assert!(
                at_limit.is_empty() || at_limit.ends_with('.'),
                "{path}: {at_limit}"
            );
            assert!(
                !format!("{meaning}{at_limit}{allowed}").contains(['|', '\n']),
                "{path}"
            );
            assert!(!allowed.is_empty(), "{path} has no range");
        }
        assert_eq!(Key::of_sections().count(), 59);
    }

    #[test]
    fn schema_has_default_range_and_description() {
        let schema: Value = serde_json::from_str(&Config::json_schema()).unwrap();
        let session = &schema["properties"]["session"]["properties"];
        assert_eq!(session["max"]["default"], 20_000);
        assert_eq!(
            (&session["max"]["minimum"], &session["max"]["maximum"]),
            (&1.into(), &1_000_000.into())
        );
        assert_eq!(session["idle_timeout"]["default"], "5m");
        assert_eq!(session["idle_timeout"]["x-maximum"], "24h");
        assert!(
            session["max"]["description"]
                .as_str()
                .unwrap()
                .starts_with("Sessions at a time.")
        );
        let journal = &schema["properties"]["journal"]["items"];
        assert_eq!(journal["required"], serde_json::json!(["name", "file"]));
    }

    #[test]
    fn keys_that_changed_are_named() {
        let before = Config::default();
        let mut after = before.clone();
        assert_eq!(before.keys_for_restart(&after), [""; 0]);
        after.http.connections_max += 1;
        after.log.level = "debug".to_owned();
        after.session.max += 1;
        after.journal = from_text("[[journal]]\nname = 'j'\nfile = 'j'\n")
            .unwrap()
            .journal;
        assert_eq!(
            before.keys_for_restart(&after),
            ["http.connections_max", "session.max", "log.level"]
        );
    }
}
