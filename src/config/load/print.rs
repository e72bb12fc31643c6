//! The configuration in effect as a TOML file that loads to the same configuration.

use super::Config;
use super::keys::{Key, values};
use serde_json::Value;

/// Every key of every section, and every table of every list, with meaning and range.
pub(super) fn toml(config: &Config) -> String {
    let values = values(config);
    let mut text = String::new();
    for section in &Key::root().keys {
        print(&mut text, section, &values[section.name()]);
    }
    text
}

/// Appends a section, or each table of a list.
fn print(text: &mut String, table: &Key, values: &Value) {
    if let Value::Array(tables) = values {
        for values in tables {
            print(text, table, values);
        }
        return;
    }
    if values.is_null() {
        return;
    }
    let gap = if text.is_empty() { "" } else { "\n" };
    let header = match table.is_list() {
        true => format!("[[{}]]", table.path),
        false => format!("[{}]", table.path),
    };
    text.push_str(&format!("{gap}# {}\n{header}\n", table.words().0));
    for key in table.keys.iter().filter(|key| !key.is_table()) {
        let value = &values[key.name()];
        if value.is_null() {
            continue;
        }
        let (meaning, at_limit) = key.words();
        text.push_str(&format!("# {meaning}\n# Allowed: {}.\n", key.allowed()));
        if !at_limit.is_empty() {
            text.push_str(&format!("# {at_limit}\n"));
        }
        text.push_str(&format!("{} = {}\n", key.name(), literal(value)));
    }
    // TOML counts a key after the header of a table within to that table, so these come last.
    for key in table.keys.iter().filter(|key| key.is_table()) {
        print(text, key, &values[key.name()]);
    }
}

/// A value on one line of TOML.
pub(super) fn literal(value: &Value) -> String {
    let value = toml::Value::try_from(value).expect("values of a configuration are values of TOML");
    value.to_string()
}
