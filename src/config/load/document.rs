//! The TOML file: its text becomes the values of a [`Draft`], each with the place it was written at.

use super::error::{Mistake, Place};
use super::hint;
use super::keys::{Key, TABLES_MAX};
use super::{Draft, Written, beside, dotted};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Reads the file into `draft`.
pub(super) fn read_file(path: &Path, draft: &mut Draft) {
    match std::fs::read_to_string(path) {
        Ok(text) => read_text(path, &text, draft),
        Err(error) => {
            let place = Place::File {
                path: path.to_owned(),
                line: 0,
                column: 0,
            };
            draft.mistake(
                place,
                format!("cannot read the configuration file {}: {error}", path.display()),
            );
        }
    }
}

/// Reads the text of a file into `draft`; `path` is for messages and for the paths in it.
pub(super) fn read_text(path: &Path, text: &str, draft: &mut Draft) {
    let file = File { path, text };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        draft.mistakes.push(file.syntax_mistake(error));
    }
    // Beyond an error of syntax the parser guesses, and a guess is nothing to judge.
    if !errors.is_empty() {
        return;
    }
    let mut tree = file.table("", document.get_ref(), draft);
    Structure {
        path,
        draft,
        taken: BTreeSet::new(),
    }
    .check(Key::root(), "", &mut tree);
    draft.tree = Value::Object(tree);
    draft.file = Some(path.to_owned());
}

/// A file of the configuration.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// Converts a table, and notes the place of each value under its JSON pointer.
    fn table(&self, pointer: &str, table: &DeTable<'_>, draft: &mut Draft) -> Map<String, Value> {
        let mut values = Map::new();
        for (name, value) in table {
            let pointer = format!("{pointer}/{}", name.get_ref());
            values.insert(
                name.get_ref().to_string(),
                self.value(pointer, name.span(), value, draft),
            );
        }
        values
    }

    fn value(
        &self,
        pointer: String,
        key: Range<usize>,
        value: &Spanned<DeValue<'_>>,
        draft: &mut Draft,
    ) -> Value {
        let converted = match value.get_ref() {
            DeValue::Table(table) => Value::Object(self.table(&pointer, table, draft)),
            DeValue::Array(items) => {
                let mut values = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    values.push(self.value(format!("{pointer}/{index}"), item.span(), item, draft));
                }
                Value::Array(values)
            }
            _ => match Value::deserialize(ValueDeserializer::from(value.clone())) {
                // Numbers that JSON cannot carry; an object stands for them, which no rule allows.
                Ok(Value::Null) | Err(_) => json!({}),
                Ok(value) => value,
            },
        };
        let shown = match value.get_ref() {
            DeValue::Table(_) => "of another type",
            _ => self.text.get(value.span()).unwrap_or_default(),
        };
        let mut written = Written::new(shown, self.place(value.span()));
        written.key_place = self.place(key);
        draft.written.insert(pointer, written);
        converted
    }

    fn syntax_mistake(&self, error: &toml::de::Error) -> Mistake {
        let start = error.span().map_or(0, |span| span.start);
        let place = self.place(start..start);
        let (line, column) = self.position(start);
        let path = self.path.display();
        let text = format!(
            "{path} is not valid TOML (line {line}, column {column}): {}",
            error.message()
        );
        Mistake::new(place, text)
    }

    fn place(&self, span: Range<usize>) -> Place {
        let (line, column) = self.position(span.start);
        Place::File {
            path: self.path.to_owned(),
            line,
            column,
        }
    }

    /// Line and column of a byte offset, both from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        (line, column)
    }
}

/// The check of names and tables, which comes before the values: serde would stop at the first mistake.
struct Structure<'a> {
    path: &'a Path,
    draft: &'a mut Draft,
    /// Names that are used once within a list, and files that one sink alone may write.
    taken: BTreeSet<String>,
}

impl Structure<'_> {
    /// Checks the table `values` at `pointer`, and removes the keys that cannot stay.
    fn check(&mut self, table: &Key, pointer: &str, values: &mut Map<String, Value>) {
        let mut is_misspelled = false;
        values.retain(|name, value| {
            let inner = format!("{pointer}/{name}");
            let Some(key) = table.key(name) else {
                is_misspelled = true;
                self.unknown(&inner, value);
                return false;
            };
            let is_table_as_due = self.check_tables(key, &inner, value);
            if !is_table_as_due {
                self.draft.refuse(key, &inner);
            } else if !key.is_table() {
                self.check_path(key, value);
                self.check_unique(key, &inner, value);
            }
            is_table_as_due
        });
        for key in table.keys.iter().filter(|key| key.is_required()) {
            if !values.contains_key(key.name()) {
                let text = |place: &Place| {
                    format!("\"{}\" is missing {place}: expected {}", key.path, key.allowed())
                };
                self.draft.mistake_at(pointer, text);
                values.insert(key.name().to_owned(), key.example());
            }
        }
        let one_of = table.one_of();
        let given = one_of.iter().filter(|name| values.contains_key(**name)).count();
        // One of them may be the key that was misspelled.
        let is_excused = given == 0 && is_misspelled;
        if !one_of.is_empty() && given != 1 && !is_excused {
            let names = one_of.join(", ");
            self.draft.mistake_at(pointer, |place| {
                format!("[{}] {place} needs exactly one of {names}", table.path)
            });
        }
    }

    /// Checks the tables in `value`. False if it is no table, or no list of tables, where the key has one.
    fn check_tables(&mut self, key: &Key, pointer: &str, value: &mut Value) -> bool {
        match value {
            _ if !key.is_table() => {}
            Value::Array(tables) if key.is_list() => {
                if tables.len() > TABLES_MAX || !tables.iter().all(Value::is_object) {
                    return false;
                }
                for (index, table) in tables.iter_mut().enumerate() {
                    self.check_tables(key, &format!("{pointer}/{index}"), table);
                }
            }
            Value::Object(values) => self.check(key, pointer, values),
            _ => return false,
        }
        true
    }

    /// Makes the path of a file that is found from the folder of the configuration file absolute, so that the printed
    /// configuration means the same in any folder.
    fn check_path(&mut self, key: &Key, value: &mut Value) {
        match value.as_str() {
            Some(text) if !text.is_empty() && key.schema.get("x-path").is_some() => {
                *value = beside(self.path, Path::new(text)).to_string_lossy().into();
            }
            _ => {}
        }
    }

    /// Refuses a name or a file that another table has already.
    fn check_unique(&mut self, key: &Key, pointer: &str, value: &Value) {
        let text = match value.as_str() {
            Some(text) if !text.is_empty() => text,
            _ => return,
        };
        if let Some(reserved) = key.schema["x-unique"].as_array() {
            // Without the name of the key and the index of the table: other lists may have the same names.
            let list = pointer.rsplitn(3, '/').last().unwrap_or_default();
            let is_new = self.taken.insert(format!("{list} {} {text}", key.name()));
            if reserved.contains(value) || !is_new {
                let text = |place: &Place| {
                    format!(
                        "\"{}\" cannot be \"{text}\" {place}: the name is taken, choose another",
                        key.path
                    )
                };
                self.draft.mistake_at(pointer, text);
            }
        } else if key.schema["x-path"] == "written" && !self.taken.insert(text.to_owned()) {
            let text = |_: &Place| format!("two sinks write to {text}: choose another file for one of them");
            self.draft.mistake_at(pointer, text);
        }
    }

    fn unknown(&mut self, pointer: &str, value: &Value) {
        // The keys say more about a misspelled section than its name.
        if let Value::Object(values) = value
            && pointer.rfind('/') == Some(0)
            && !values.is_empty()
        {
            for name in values.keys() {
                self.unknown(&format!("{pointer}/{name}"), &Value::Null);
            }
            return;
        }
        let path = dotted(pointer);
        if let Some(written) = self.draft.written.get(pointer) {
            let place = written.key_place.clone();
            let text = format!("unknown key \"{path}\" {place}: {}", hint::for_key(&path));
            self.draft.mistake(place, text);
        }
    }
}
