//! The check of the TOML file, and of the values over it, against the schemas of the keys.
//!
//! One pass over the text visits every key, so that all mistakes are found at once and each has its place.

use super::error::Place;
use super::keys::{Key, NAME, TABLES_MAX, inner_path, is_required, nearest_key};
use super::{Draft, Written, beside};
use crate::config::bounded;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

impl<'a> Draft<'a> {
    /// Parses the text of the file; a broken one counts as empty.
    pub(super) fn parse(&mut self) -> DeTable<'a> {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let place = self.place(error.span().unwrap_or_default().start);
            if let Place::File { path, line, column } = &place {
                let at = format!(
                    "{} is not valid TOML (line {line}, column {column})",
                    path.display()
                );
                self.note(&place, &format!("{at}: {}", error.message()));
            }
        }
        // After an error of syntax the parser guesses, and checking a guess would only add misleading
        // messages.
        match errors[..] {
            [] => document.into_inner(),
            _ => DeTable::new(),
        }
    }

    /// Checks a table at `place`, and the values over it. Returns those that may stay.
    pub(super) fn table(&mut self, table: &'static Key, place: &Place, written: &DeTable<'_>) -> Value {
        let mut is_misspelled = false;
        for (name, value) in written {
            if table.key(name.get_ref()).is_none() {
                is_misspelled = true;
                self.refuse_unknown(&table.path, name, value.get_ref());
            }
        }
        let mut values = Map::new();
        for key in &table.keys {
            let over = self.over.remove(key.path.as_str());
            let checked = match (over, written.get(key.name())) {
                (Some(over), _) => self.value(key, over),
                (None, Some(value)) => self.value_or_tables(key, value),
                // A section that the file lacks may have values over it.
                (None, None) if table.path.is_empty() && !key.is_list() => {
                    Some(self.table(key, place, &DeTable::new()))
                }
                (None, None) if is_required(&key.schema) => {
                    let path = &key.path;
                    let allowed = key.allowed();
                    let text = format!("\"{path}\" is missing {place}: expected {allowed}");
                    self.note(place, &text);
                    None
                }
                (None, None) => None,
            };
            values.extend(checked.map(|value| (key.name().to_owned(), value)));
        }
        let one_of = table.one_of();
        let given = one_of.iter().filter(|name| written.contains_key(**name)).count();
        // One of them may be the key that was misspelled.
        if !one_of.is_empty() && given != 1 && (given > 0 || !is_misspelled) {
            let path = &table.path;
            let names = one_of.join(", ");
            self.note(place, &format!("[{path}] {place} needs exactly one of {names}"));
        }
        Value::Object(values)
    }

    /// Checks the value of a key in the file, with the tables in it.
    fn value_or_tables(&mut self, key: &'static Key, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let place = self.place(value.span().start);
        let mut shown = self.text.get(value.span()).unwrap_or_default();
        match value.get_ref() {
            DeValue::Table(table) if key.is_table() && !key.is_list() => {
                return Some(self.table(key, &place, table));
            }
            DeValue::Table(tables) if key.is_named() => return self.named_tables(key, tables),
            // The span of a table is that of its header or of all its lines.
            DeValue::Table(_) => shown = "of another type",
            DeValue::Array(tables) if key.is_list() && tables.len() <= TABLES_MAX => {
                // Two collections may have views of one name.
                self.taken.retain(|taken| !taken.starts_with(&key.path));
                let tables = tables.iter().map(|table| {
                    let place = self.place(table.span().start);
                    Some(self.table(key, &place, table.get_ref().as_table()?))
                });
                if let Some(tables) = tables.collect::<Option<Vec<_>>>() {
                    return Some(tables.into());
                }
            }
            _ => {}
        }
        let value = match Value::deserialize(ValueDeserializer::from(value.clone())) {
            // NaN, infinity and integers beyond 64 bits; no schema allows the list that stands for them.
            Ok(Value::Null) | Err(_) => json!([[]]),
            Ok(value) => value,
        };
        self.value(key, Written::new(value, shown, place))
    }

    /// Checks the tables of a list whose names stand in their headers, in the order of the file.
    fn named_tables(&mut self, key: &'static Key, tables: &DeTable<'_>) -> Option<Value> {
        // The parser sorts them by their names; the operator has chosen another order.
        let mut in_order: Vec<_> = tables.iter().collect();
        in_order.sort_by_key(|(name, _)| name.span().start);
        let mut checked = Vec::new();
        for (name, table) in in_order.into_iter().take(TABLES_MAX) {
            let place = self.place(name.span().start);
            let path = inner_path(&key.path, name.get_ref());
            let DeValue::Table(table) = table.get_ref() else {
                let text =
                    format!("invalid value for \"{path}\" {place}: expected a table, written [{path}]");
                self.note(&place, &text);
                continue;
            };
            if let Some((written, value)) = table.get_key_value(NAME) {
                self.refuse_unknown(&path, written, value.get_ref());
            }
            let mut named = table.clone();
            let value = DeValue::String(name.get_ref().clone());
            named.insert(
                Spanned::new(name.span(), NAME.into()),
                Spanned::new(name.span(), value),
            );
            checked.push(self.table(key, &place, &named));
        }
        Some(checked.into())
    }

    /// Checks a value against the schema of its key.
    fn value(&mut self, key: &'static Key, written: Written) -> Option<Value> {
        let Written { value, shown, place } = written;
        let path = &key.path;
        if bounded::read(&key.schema, &value).is_none() {
            self.refused.insert(path);
            let allowed = key.allowed();
            let text = format!("invalid value {shown} for \"{path}\" {place}: expected {allowed}");
            self.note(&place, &text);
            return None;
        }
        let text = value.as_str().unwrap_or_default();
        if let Some(reserved) = key.schema["x-unique"].as_array()
            && (reserved.contains(&value) || !self.taken.insert(format!("{path} {text}")))
        {
            let text = format!("\"{path}\" cannot be \"{text}\" {place}: the name is taken, choose another");
            self.note(&place, &text);
        } else if let Some(purpose) = key.schema.get("x-path")
            && !text.is_empty()
            && !(purpose == "read, or an address" && text.contains("://"))
        {
            // The printed configuration then means the same in any folder.
            let file = beside(&self.path, Path::new(text)).to_string_lossy().into_owned();
            if purpose == "written" && !self.taken.insert(file.clone()) {
                let text = format!("two sinks write to {file}: choose another file for one of them");
                self.note(&place, &text);
            }
            return Some(file.into());
        }
        Some(value)
    }

    fn refuse_unknown(&mut self, table: &str, name: &Spanned<DeString<'_>>, value: &DeValue<'_>) {
        let path = inner_path(table, name.get_ref());
        match value {
            // The keys say more about a misspelled section than its name.
            DeValue::Table(keys) if !keys.is_empty() && table.is_empty() => {
                for (name, value) in keys {
                    self.refuse_unknown(&path, name, value.get_ref());
                }
            }
            _ => {
                let place = self.place(name.span().start);
                let hint = nearest_key(&path);
                self.note(&place, &format!("unknown key \"{path}\" {place}: {hint}"));
            }
        }
    }

    /// The place of a byte offset in the file.
    pub(super) fn place(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let path = self.path.clone();
        Place::File { path, line, column }
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
        let Place::File { line, column, .. } = error.mistakes[0].place.clone() else {
            panic!("{error}")
        };
        assert_eq!((line, column), (1, 21));
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
