//! The keys of the file, taken from the JSON Schema of the structs: names, words, ranges and defaults.
//!
//! Reading, messages, printing and the documentation look keys up here, so that none of them names a key of
//! its own.

use super::Config;
use crate::config::bounded;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Most tables of a list.
pub(super) const TABLES_MAX: usize = 256;

/// The key of a table that stands in its header where the list is one of named tables.
pub(super) const NAME: &str = "name";

/// The table of the sections and lists.
pub(super) static ROOT: LazyLock<Key> = LazyLock::new(|| {
    // Only the schema of serialization has the fields in order: its `required` is an array that names each of
    // them.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    Key::new(String::new(), generate(settings).to_value())
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
            let inner = inner_path(&path, name);
            keys.push(Key::new(inner, table["properties"][name].clone()));
        }
        Key { path, keys, schema }
    }

    /// The key at a dotted path without indices.
    pub(super) fn at(path: &str) -> Option<&'static Key> {
        let mut names = path.split('.');
        names.try_fold(&*ROOT, |table, name| table.key(name))
    }

    /// The key of this name within.
    pub(super) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name() == name)
    }

    /// The keys of all sections, which alone can be set by a variable.
    pub(super) fn of_sections() -> impl Iterator<Item = &'static Key> {
        let sections = ROOT.keys.iter().filter(|key| !key.is_list());
        sections
            .flat_map(|section| &section.keys)
            .filter(|key| !key.is_list())
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

    /// Reports whether its value is a list of tables whose names stand in their headers.
    pub(super) fn is_named(&self) -> bool {
        self.schema.get("x-named").is_some()
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
        let (meaning, at_limit) = text.split_once("At the limit: ").unwrap_or((&text, ""));
        (meaning.trim().to_owned(), at_limit.trim().to_owned())
    }

    /// Type and range in words. Rules bring their own; the rest is told by the schema.
    pub(super) fn allowed(&self) -> String {
        let path = &self.path;
        if let Some(words) = self.schema["x-allowed"].as_str() {
            words.to_owned()
        } else if self.is_named() {
            format!("at most {TABLES_MAX} tables, each written [{path}.NAME]")
        } else if self.is_list() {
            format!("a list of at most {TABLES_MAX} tables, each written [[{path}]]")
        } else if self.is_table() {
            format!("a section, written [{path}]")
        } else if let Some(choices) = self.schema["oneOf"].as_array() {
            let choices: Vec<_> = choices.iter().map(|choice| choice["const"].to_string()).collect();
            choices.join(" or ")
        } else {
            "true or false".to_owned()
        }
    }
}

/// Takes the defaults of required keys out of the schema of a table.
pub(super) fn require_keys(table: &mut schemars::Schema) {
    if let Some(Value::Object(keys)) = table.get_mut("properties") {
        let mut required = Vec::new();
        for (name, schema) in keys.iter_mut().filter(|(_, schema)| is_required(schema)) {
            if let Value::Object(schema) = schema {
                schema.remove("default");
            }
            required.push(name.clone());
        }
        table.insert("required".to_owned(), required.into());
    }
}

/// Has the schema of a key that may be off accept the value that stands for it, outside of the range.
pub(super) fn allow_none(key: &mut schemars::Schema) {
    let Some(none) = key.get("x-none").cloned() else {
        return;
    };
    let mut range = serde_json::Map::new();
    for word in ["type", "minimum", "maximum", "minLength", "maxLength", "pattern"] {
        range.extend(key.remove(word).map(|value| (word.to_owned(), value)));
    }
    key.insert("anyOf".to_owned(), json!([range, { "const": none }]));
}

/// Has the schema of a list of named tables accept the tables by their names.
pub(super) fn name_tables(list: &mut schemars::Schema) {
    if list.remove("x-named").is_none() {
        return;
    }
    let mut table = list.remove("items").unwrap_or_default();
    let mut name = json!({});
    if let Some(keys) = table["properties"].as_object_mut() {
        name = keys.remove(NAME).unwrap_or_default();
    }
    if let Some(required) = table["required"].as_array_mut() {
        required.retain(|key| key != NAME);
    }
    list.insert("type".to_owned(), "object".into());
    list.insert("default".to_owned(), json!({}));
    list.insert("maxProperties".to_owned(), TABLES_MAX.into());
    list.insert("propertyNames".to_owned(), name);
    list.insert("additionalProperties".to_owned(), table);
}

pub(super) fn generate(mut settings: SchemaSettings) -> schemars::Schema {
    // Without references, the schema of a key is found by its path, and a reader of the schema needs no
    // jumps.
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<Config>()
}

/// Reports whether a table without this key is refused, which is so if its default is.
pub(super) fn is_required(schema: &Value) -> bool {
    let default = &schema["default"];
    schema.get("x-allowed").is_some() && !default.is_null() && bounded::read(schema, default).is_none()
}

/// The path of a name within a table.
pub(super) fn inner_path(table: &str, name: &str) -> String {
    format!("{table}.{name}").trim_start_matches('.').to_owned()
}

/// The schema of the table that `schema` holds: alone, optionally, or in a list.
fn table_of(schema: &Value) -> &Value {
    let inner = [&schema["items"], &schema["anyOf"][0]];
    let table = inner.into_iter().find(|inner| inner["properties"].is_object());
    table.unwrap_or(schema)
}

fn texts(value: &Value) -> Vec<&str> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// Returns the end of the message about an unknown key, written as a dotted path without indices.
pub(super) fn nearest_key(written: &str) -> String {
    let (table, name) = written.rsplit_once('.').unwrap_or(("", written));
    let first = written.split('.').next().unwrap_or(written);
    let here = Key::at(table).unwrap_or(&ROOT);
    let paths = || Key::of_sections().chain(&ROOT.keys).map(|key| key.path.as_str());
    let lists = || ROOT.keys.iter().filter(|key| key.is_list()).map(Key::name);
    let near = if lists().any(|list| list == first) {
        nearest(name, here.keys.iter().map(Key::name))
    } else {
        nearest(written, paths())
            // A key below a misspelled list says more about the list than about itself.
            .or_else(|| nearest(first, lists()))
            .or_else(|| paths().find(|path| path.rsplit_once('.').unwrap_or_default().1 == name))
    };
    match near {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("the keys here are {}", here.names()),
    }
}

/// The name that is most like `written`, the last one of several; `None` if none is near.
pub(super) fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let similarity = |name: &str| strsim::normalized_damerau_levenshtein(&written, &name.to_lowercase());
    // With fewer equal letters, a name is hardly a slip of another one.
    let near = names.filter(|name| similarity(name) >= 0.6);
    near.max_by(|one, other| similarity(one).total_cmp(&similarity(other)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_keys, refusal};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_stand_in_the_order_of_declaration() {
        assert!(ROOT.names().starts_with("http, session, bus, mcp, "));
        assert!(
            ROOT.names()
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
        let required: Vec<_> = all_keys(&ROOT)
            .into_iter()
            // The name of a named table stands in its header.
            .filter(|key| is_required(&key.schema) && key.path != "gateway.upstream.name")
            .collect();
        assert_eq!(required.len(), 15, "{required:?}");
        let text = "[tls]\ncertificate = 'a'\nkey = 'b'\nclient_ca = 'c'\n\
                    [auth]\nresource = 'https://a/mcp'\n[[auth.token]]\n[[auth.issuer]]\n\
                    [[auth.certificate]]\n[[auth.rule]]\n[[collection]]\nitem = 1\n[[collection.view]]\nfilter = { exists = true }\n\
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
        for key in all_keys(&ROOT) {
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
        assert_eq!(Key::of_sections().count(), 116);
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
        assert_eq!(journal["required"], serde_json::json!(["file", "name"]));
    }

    #[test]
    fn schema_accepts_the_printed_defaults() {
        let schema: Value = serde_json::from_str(&Config::json_schema()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let printed: Value = toml::from_str(&Config::default().to_toml()).unwrap();
        let errors: Vec<_> = validator
            .iter_errors(&printed)
            .map(|error| error.to_string())
            .collect();
        assert_eq!(errors, [""; 0]);
        let below = toml::from_str("[tools]\nprocesses_max = -1").unwrap();
        assert!(!validator.is_valid(&below));
    }

    #[test]
    fn slip_in_key_section_or_case_is_seen() {
        assert_eq!(nearest_key("http.lisen"), "did you mean \"http.listen\"?");
        assert_eq!(nearest_key("htpp.listen"), "did you mean \"http.listen\"?");
        assert_eq!(
            nearest_key("http.keep-alive"),
            "did you mean \"http.keep_alive\"?"
        );
        assert_eq!(nearest_key("Session.Max"), "did you mean \"session.max\"?");
        assert_eq!(nearest_key("sesion"), "did you mean \"session\"?");
    }

    #[test]
    fn key_in_the_wrong_section_is_found() {
        assert_eq!(nearest_key("listen"), "did you mean \"http.listen\"?");
        assert_eq!(nearest_key("server.page_size"), "did you mean \"mcp.page_size\"?");
    }

    #[test]
    fn known_names_are_listed_when_none_is_near() {
        assert_eq!(nearest_key("log.colour"), "the keys here are level, format");
        assert!(nearest_key("telemetry.zzz").starts_with("the keys here are http, session, "));
    }
}
