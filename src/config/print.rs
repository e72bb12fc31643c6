//! The configuration in effect as a TOML file that loads to the same configuration, and the schema of such files.

use super::Config;
use super::schema::{self, Form, Key, Table};
use serde_json::Value;

/// Every key of every section with its meaning and range, then the tables of the lists.
pub(super) fn toml(config: &Config) -> String {
    let values = schema::values(config);
    let mut text = String::new();
    for section in &Table::root().keys {
        let table = Table::at(&section.path).expect("every key of the root is a table or a list of tables");
        match &values[&section.path] {
            Value::Array(tables) => {
                for values in tables {
                    list_table(&mut text, table, values);
                }
            }
            values => {
                let gap = if text.is_empty() { "" } else { "\n" };
                text.push_str(&format!("{gap}# {}\n[{}]\n", table.about, table.path));
                for key in &table.keys {
                    text.push_str(&format!("# {}\n# Allowed: {}.\n", key.meaning, key.allowed));
                    if !key.at_limit.is_empty() {
                        text.push_str(&format!("# {}\n", key.at_limit));
                    }
                    text.push_str(&format!(
                        "{} = {}\n",
                        key.name(),
                        literal(&key.path, &values[key.name()])
                    ));
                }
            }
        }
    }
    text
}

/// The JSON Schema of such files.
pub(super) fn json_schema() -> String {
    let mut text = serde_json::to_string_pretty(&schema::json_schema()).expect("a schema is JSON");
    text.push('\n');
    text
}

/// A table of a list, and the lists in it.
fn list_table(text: &mut String, table: &Table, values: &Value) {
    text.push_str(&format!("\n[[{}]]\n", table.path));
    for key in &table.keys {
        match (&values[key.name()], key.form) {
            (Value::Null, _) => {}
            (Value::Array(tables), Form::Tables) => {
                let inner = Table::at(&key.path).expect("each key of this form has its tables");
                for values in tables {
                    list_table(text, inner, values);
                }
            }
            (value, _) => {
                let line = format!(
                    "# {}\n{} = {}\n",
                    key.meaning,
                    key.name(),
                    literal(&key.path, value)
                );
                text.push_str(&line);
            }
        }
    }
}

/// A value on one line of TOML; a table has its keys in the order of declaration.
pub(super) fn literal(path: &str, value: &Value) -> String {
    match value {
        Value::String(text) => toml::Value::from(text.as_str()).to_string(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| literal(path, item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(values) => {
            let keys = Table::at(path).into_iter().flat_map(|table| &table.keys);
            let there = keys.filter(|key: &&Key| !values[key.name()].is_null());
            let pairs: Vec<_> = there
                .map(|key| format!("{} = {}", key.name(), literal(&key.path, &values[key.name()])))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}
