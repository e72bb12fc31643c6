//! The TOML file: its text becomes the values of a [`Draft`], each with the place it was written at.

use super::error::Place;
use super::keys::{Key, TABLES_MAX};
use super::{Draft, Written, beside, dotted, hint};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Reads the file into `draft`.
pub(super) fn read_file(path: &Path, draft: &mut Draft) {
    match std::fs::read_to_string(path) {
        Ok(text) => read_text(path, &text, draft),
        Err(error) => {
            let text = format!("cannot read the configuration file {}: {error}", path.display());
            // Line 0 comes before all other mistakes.
            let place = Place::File {
                path: path.to_owned(),
                line: 0,
                column: 0,
            };
            draft.note(place, &text);
        }
    }
}

/// Reads the text of a file into `draft`; `path` is for messages and for the paths in it.
pub(super) fn read_text(path: &Path, text: &str, draft: &mut Draft) {
    let file = File { path, text };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let start = match error.span() {
            Some(span) => span.start,
            None => 0,
        };
        let (line, column) = file.position(start);
        let path = path.display();
        let text = format!(
            "{path} is not valid TOML (line {line}, column {column}): {}",
            error.message()
        );
        draft.note(file.place(start), &text);
    }
    // After an error of syntax the parser guesses, and checking a guess would only add misleading messages.
    if !errors.is_empty() {
        return;
    }
    let mut tree = file.table("", document.get_ref(), draft);
    let taken = BTreeSet::new();
    Structure { path, draft, taken }.check(Key::root(), "", &mut tree);
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
            values.insert(name.get_ref().to_string(), self.value(&pointer, value, draft));
            if let Some(written) = draft.written.get_mut(&pointer) {
                written.key_place = self.place(name.span().start);
            }
        }
        values
    }

    fn value(&self, pointer: &str, value: &Spanned<DeValue<'_>>, draft: &mut Draft) -> Value {
        let mut shown = self.text.get(value.span()).unwrap_or_default();
        let converted = match value.get_ref() {
            DeValue::Table(table) => {
                // Its span is that of its header or of all its lines.
                shown = "of another type";
                Value::Object(self.table(pointer, table, draft))
            }
            DeValue::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| self.value(&format!("{pointer}/{index}"), item, draft))
                    .collect()
            }
            _ => match Value::deserialize(ValueDeserializer::from(value.clone())) {
                // NaN, infinity and integers beyond 64 bits; no rule allows the object that stands for them.
                Ok(Value::Null) | Err(_) => json!({}),
                Ok(value) => value,
            },
        };
        let written = Written::new(shown, self.place(value.span().start));
        draft.written.insert(pointer.to_owned(), written);
        converted
    }

    fn place(&self, offset: usize) -> Place {
        let (line, column) = self.position(offset);
        Place::File {
            path: self.path.to_owned(),
            line,
            column,
        }
    }

    /// Line and column of a byte offset, both from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        (line, column)
    }
}

/// The check of names and tables. It comes before the values, because serde would stop at the first mistake.
struct Structure<'a> {
    path: &'a Path,
    draft: &'a mut Draft,
    /// Names that are used once within a list, and files that one sink alone may write.
    taken: BTreeSet<String>,
}

impl Structure<'_> {
    /// Checks the table `values` at `pointer`. Removes keys that cannot stay, and adds examples for missing
    /// ones.
    fn check(&mut self, table: &Key, pointer: &str, values: &mut Map<String, Value>) {
        let mut is_misspelled = false;
        values.retain(|name, value| {
            let inner = format!("{pointer}/{name}");
            let Some(key) = table.key(name) else {
                is_misspelled = true;
                self.refuse_unknown(&inner, value);
                return false;
            };
            let is_of_its_kind = self.check_tables(key, &inner, value);
            if !is_of_its_kind {
                self.draft.refuse(key, &inner);
            } else if !key.is_table() {
                self.complete_path(key, value);
                self.check_unique(key, &inner, value);
            }
            is_of_its_kind
        });
        let place = self.draft.place(pointer);
        for key in table.keys.iter().filter(|key| key.is_required()) {
            if !values.contains_key(key.name()) {
                let text = format!("\"{}\" is missing {place}: expected {}", key.path, key.allowed());
                self.draft.note(place.clone(), &text);
                values.insert(key.name().to_owned(), key.example());
            }
        }
        let one_of = table.one_of();
        let given = one_of.iter().filter(|name| values.contains_key(**name)).count();
        // One of them may be the key that was misspelled.
        let is_excused = given == 0 && is_misspelled;
        if !one_of.is_empty() && given != 1 && !is_excused {
            let text = format!(
                "[{}] {place} needs exactly one of {}",
                table.path,
                one_of.join(", ")
            );
            self.draft.note(place, &text);
        }
    }

    /// Checks the tables in `value`. Returns false if a table, or a list of tables, is due and not there.
    fn check_tables(&mut self, key: &Key, pointer: &str, value: &mut Value) -> bool {
        match value {
            _ if !key.is_table() => {}
            Value::Array(tables) if key.is_list() => {
                if tables.len() > TABLES_MAX || !tables.iter().all(Value::is_object) {
                    return false;
                }
                for (index, table) in tables.iter_mut().enumerate() {
                    if let Value::Object(values) = table {
                        self.check(key, &format!("{pointer}/{index}"), values);
                    }
                }
            }
            Value::Object(values) if !key.is_list() => self.check(key, pointer, values),
            _ => return false,
        }
        true
    }

    /// Completes the path of a file that starts at the folder of the configuration file, so that the printed
    /// configuration means the same in any folder.
    fn complete_path(&mut self, key: &Key, value: &mut Value) {
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
        let place = self.draft.place(pointer);
        let path = &key.path;
        if let Some(reserved) = key.schema["x-unique"].as_array() {
            // The pointer of the list: views of two collections may have the same name.
            let list = pointer.rsplitn(3, '/').last().unwrap_or_default();
            let is_new = self.taken.insert(format!("{list} {} {text}", key.name()));
            if reserved.contains(value) || !is_new {
                let text =
                    format!("\"{path}\" cannot be \"{text}\" {place}: the name is taken, choose another");
                self.draft.note(place, &text);
            }
        } else if key.schema["x-path"] == "written" && !self.taken.insert(text.to_owned()) {
            let text = format!("two sinks write to {text}: choose another file for one of them");
            self.draft.note(place, &text);
        }
    }

    fn refuse_unknown(&mut self, pointer: &str, value: &Value) {
        match value {
            // The keys say more about a misspelled section than its name.
            Value::Object(values) if !values.is_empty() && pointer.rfind('/') == Some(0) => {
                for name in values.keys() {
                    self.refuse_unknown(&format!("{pointer}/{name}"), &Value::Null);
                }
            }
            _ => {
                let path = dotted(pointer);
                let place = match self.draft.written.get(pointer) {
                    Some(written) => written.key_place.clone(),
                    None => Place::Together,
                };
                let text = format!("unknown key \"{path}\" {place}: {}", hint::for_key(&path));
                self.draft.note(place, &text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SHOWN_MAX;
    use super::super::tests::{from_text, refusal};
    use super::*;
    use crate::config::Config;

    #[test]
    fn dotted_keys_inline_tables_and_sections_agree() {
        let expected = from_text("[session]\nmax = 0x10\n").unwrap();
        assert_eq!(expected.session.max, 16);
        assert_eq!(from_text("session.max = 16").unwrap(), expected);
        assert_eq!(from_text("session = { max = 1_6 }").unwrap(), expected);
        assert_eq!(from_text("[session]").unwrap(), Config::default());
    }

    #[test]
    fn unknown_key_is_named_with_line_and_neighbour() {
        for (text, expected) in [
            (
                "# mine\n[http]\nlisen = \"127.0.0.1:1\"\n",
                "unknown key \"http.lisen\" in tidings.toml (line 3): did you mean \"http.listen\"?",
            ),
            (
                "\n[htpp]\nlisten = 1\n",
                "unknown key \"htpp.listen\" in tidings.toml (line 3): did you mean \"http.listen\"?",
            ),
            (
                "page_size = 1",
                "unknown key \"page_size\" in tidings.toml (line 1): did you mean \"mcp.page_size\"?",
            ),
            (
                "[stoer]",
                "unknown key \"stoer\" in tidings.toml (line 1): did you mean \"store\"?",
            ),
        ] {
            assert_eq!(refusal(text), expected);
        }
    }

    #[test]
    fn column_is_counted_in_characters() {
        let error = from_text("mcp = { name = \"é\", nam = 1 }").unwrap_err();
        let Place::File { line, column, .. } = error.mistakes()[0].place() else {
            panic!("{error}")
        };
        assert_eq!((*line, *column), (1, 21));
    }

    #[test]
    fn wrong_value_names_key_line_value_and_range() {
        assert_eq!(
            refusal("[session]\n\nmax = 0"),
            "invalid value 0 for \"session.max\" in tidings.toml (line 3): expected an integer from 1 to 1000000"
        );
        assert_eq!(
            refusal("[http]\nkeep_alive = \"10m\""),
            "invalid value \"10m\" for \"http.keep_alive\" in tidings.toml (line 2): \
             expected a duration from \"1s\" to \"5m\""
        );
        assert!(
            refusal("http.body_bytes_max = 1023").ends_with("expected a size from \"1KiB\" to \"64MiB\"")
        );
        assert!(refusal("mcp.cache_scope = 'shared'").ends_with("expected \"private\" or \"public\""));
    }

    #[test]
    fn wrong_types_are_refused() {
        for text in [
            "session.max = '5'",
            "session.max = 5.0",
            "session.max = -1",
            "session.max = 99999999999999999999",
            "workspace.hidden = 'true'",
            "http.keep_alive = 15",
            "http.keep_alive = 07:30:00",
            "http.body_bytes_max = '2048'",
            "http.allowed_hosts = 'a.example'",
            "http.allowed_hosts = ['a.example', 1]",
            "http.allowed_hosts = ['a', '*']",
            "http.listen = 'localhost:80'",
            "[http.listen]\nhost = 'a'",
            "[[mcp.name]]",
        ] {
            assert!(
                refusal(text).starts_with("invalid value "),
                "{text}: {}",
                refusal(text)
            );
        }
    }

    #[test]
    fn bounds_of_ranges_are_allowed() {
        for text in [
            "session.max = 1",
            "session.max = 1000000",
            "http.body_bytes_max = 1024",
            "http.body_bytes_max = '64MiB'",
            "http.keep_alive = '1s'",
            "http.keep_alive = '300000ms'",
            "mcp.instructions = ''",
        ] {
            assert!(from_text(text).is_ok(), "{text}: {}", refusal(text));
        }
        for text in [
            "session.max = 1000001",
            "http.body_bytes_max = '65MiB'",
            "http.keep_alive = '999ms'",
            "http.keep_alive = '301s'",
            "mcp.name = ''",
        ] {
            assert!(from_text(text).is_err(), "{text}");
        }
        let most = format!("http.allowed_hosts = {:?}", ["a"; 256]);
        let more = format!("http.allowed_hosts = {:?}", ["a"; 257]);
        assert!(from_text(&most).is_ok() && from_text(&more).is_err());
    }

    #[test]
    fn section_of_another_type_is_refused() {
        assert_eq!(
            refusal("http = 80"),
            "invalid value 80 for \"http\" in tidings.toml (line 1): expected a section, written [http]"
        );
        assert!(refusal("[[http]]").contains("expected a section, written [http]"));
        assert!(refusal("[collection]\nname = 'a'\n").contains("each written [[collection]]"));
    }

    #[test]
    fn broken_text_is_located() {
        let text = refusal("[http]\nlisten = ");
        assert!(
            text.starts_with("tidings.toml is not valid TOML (line 2, column "),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
        assert!(refusal("[log]\nlevel = 'a'\nlevel = 'b'").contains("(line 3, column 1)"));
    }

    #[test]
    fn long_value_is_cut_in_messages() {
        let long = "x".repeat(1000);
        let error = refusal(&format!("workspace.scheme = '''{long}\n{long}'''"));
        assert!(
            error.contains(&format!("{}… for", "x".repeat(SHOWN_MAX - 3))),
            "{error}"
        );
    }
}
