//! The configuration in effect, as a TOML file that loads to the same configuration.
//!
//! It walks the table of keys, takes each value from a [`Config`], and adds meaning and range as a comment. It
//! never reads what was written, so defaults and set values look alike.

use super::field;
use super::key::{KEYS, Key, SECTIONS};
use super::kind::Kind;
use super::list::Shape;
use super::{Config, size};
use serde_json::Value;
use std::fmt::Write;

/// Every key of every section.
pub(super) fn toml(config: &Config) -> String {
    let values = serde_json::to_value(config).expect("sections hold plain values, which JSON can carry");
    let mut text = String::new();
    for (section, about) in SECTIONS {
        let gap = if text.is_empty() { "" } else { "\n" };
        push(&mut text, format_args!("{gap}# {about}\n[{section}]\n"));
        for key in KEYS.iter().filter(|key| key.section() == *section) {
            let value = literal(key.kind, &values[section][key.name()]);
            push(
                &mut text,
                format_args!("{}{} = {value}\n", comment(key), key.name()),
            );
        }
    }
    for list in field::LISTS {
        for table in values[*list].as_array().into_iter().flatten() {
            table_text(&mut text, list, table);
        }
    }
    text
}

/// A table of a list, and the tables in it.
fn table_text(text: &mut String, path: &str, table: &Value) {
    push(text, format_args!("\n[[{path}]]\n"));
    for field in field::fields_of(path) {
        match (&table[field.name()], field.shape) {
            (Value::Null, _) => {}
            (Value::Array(tables), Shape::Tables) => {
                for table in tables {
                    table_text(text, field.path, table);
                }
            }
            (value, shape) => {
                let value = match shape {
                    Shape::Of(kind) => literal(kind, value),
                    _ => inline(field.path, value),
                };
                push(
                    text,
                    format_args!("# {}\n{} = {value}\n", field.meaning, field.name()),
                );
            }
        }
    }
}

/// A value on one line; a table has its keys in the order of the table of keys.
fn inline(path: &str, value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| inline(path, item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let keys = field::fields_of(path).filter_map(|key| Some((key, fields.get(key.name())?)));
            let pairs: Vec<_> = keys
                .map(|(key, value)| format!("{} = {}", key.name(), inline(key.path, value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

fn comment(key: &Key) -> String {
    let limit = if key.at_limit.is_empty() {
        String::new()
    } else {
        format!("# {}\n", key.at_limit)
    };
    format!("# {}\n# Allowed: {}.\n{limit}", key.meaning, key.kind.expects())
}

fn push(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("a string takes any text");
}

/// A checked value in TOML.
pub(super) fn literal(kind: Kind, value: &Value) -> String {
    match (kind, value) {
        (Kind::Bytes { .. }, Value::Number(bytes)) => quoted(&size::text(bytes.as_u64().unwrap_or_default())),
        (_, Value::String(text)) => quoted(text),
        (_, Value::Array(items)) => {
            let items: Vec<_> = items
                .iter()
                .map(|item| quoted(item.as_str().unwrap_or_default()))
                .collect();
            format!("[{}]", items.join(", "))
        }
        (_, other) => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_printed_once_with_its_default() {
        let text = toml(&Config::default());
        let document: toml::Table = text.parse().unwrap();
        for key in KEYS {
            assert!(document[key.section()].get(key.name()).is_some(), "{}", key.path);
        }
        let printed: usize = document
            .values()
            .map(|section| section.as_table().unwrap().len())
            .sum();
        assert_eq!(printed, KEYS.len());
    }

    #[test]
    fn values_are_printed_as_people_write_them() {
        let text = toml(&Config::default());
        for line in [
            "listen = \"127.0.0.1:8808\"",
            "allowed_hosts = []",
            "body_bytes_max = \"4MiB\"",
            "idle_timeout = \"5m\"",
            "announce_on_connect = true",
            "max = 20000",
            "# A larger one gets 413 and is not read further.",
        ] {
            assert!(
                text.lines().any(|printed| printed == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
