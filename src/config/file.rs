//! The TOML file: its text becomes entries of [`Written`], each with the line it stands on.
//!
//! It refuses what is no TOML and keys that are not in the table; whether a value fits its key is asked later,
//! in `written`, for all origins alike. It opens no other file than the one it is given.

use super::error::{ConfigError, Place};
use super::hint;
use super::key::{Key, SECTIONS};
use super::kind::Raw;
use super::written::{Entry, Written};
use super::{field, list};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// The text of the file.
pub(super) fn open(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads the text; `path` is for messages.
pub(super) fn read(path: &Path, text: &str, written: &mut Written) -> Result<(), ConfigError> {
    let source = Source { path, text };
    let document = DeTable::parse(text).map_err(|error| source.syntax(&error))?;
    written.set_file(path);
    for (name, value) in document.get_ref() {
        if let Some(list) = field::LISTS.iter().find(|list| **list == name.get_ref()) {
            written.set_list(list, list::read(&source, list, name.span(), value)?);
            continue;
        }
        source.read_section(name.get_ref(), name.span(), value, written)?;
    }
    Ok(())
}

/// The file while it is read.
pub(super) struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn read_section(
        &self,
        section: &str,
        span: Range<usize>,
        value: &Spanned<DeValue<'_>>,
        written: &mut Written,
    ) -> Result<(), ConfigError> {
        let known = SECTIONS.iter().any(|(name, _)| *name == section);
        match value.get_ref() {
            DeValue::Table(table) if known || !table.is_empty() => {
                for (name, value) in table {
                    let path = format!("{section}.{}", name.get_ref());
                    let key = Key::find(&path).ok_or_else(|| self.unknown(path, name.span()))?;
                    written.set(key, self.entry(value));
                }
                Ok(())
            }
            _ if known => Err(ConfigError::Value {
                key: section.to_owned(),
                value: self.entry(value).shown().to_owned(),
                place: self.place(span),
                expected: format!("a section, written [{section}]"),
            }),
            _ => Err(self.unknown(section.to_owned(), span)),
        }
    }

    /// A value that its key cannot have.
    pub(super) fn refused(&self, key: &str, span: Range<usize>, expected: String) -> ConfigError {
        let shown = self.text.get(span.clone()).unwrap_or_default();
        let place = self.place(span);
        ConfigError::Value {
            key: key.to_owned(),
            value: Entry::new(Raw::Other, shown, place.clone()).shown().to_owned(),
            place,
            expected,
        }
    }

    fn entry(&self, value: &Spanned<DeValue<'_>>) -> Entry {
        let shown = self.text.get(value.span()).unwrap_or_default();
        Entry::new(raw(value.get_ref()), shown, self.place(value.span()))
    }

    fn unknown(&self, key: String, span: Range<usize>) -> ConfigError {
        ConfigError::UnknownKey {
            hint: hint::for_key(&key),
            key,
            place: self.place(span),
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let (line, column) = self.position(error.span().map_or(0, |span| span.start));
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        ConfigError::Syntax {
            path: self.path.to_owned(),
            line,
            column,
            message,
        }
    }

    /// Where a piece of the text stands.
    pub(super) fn place(&self, span: Range<usize>) -> Place {
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

/// A value before anyone asked whether its key can have it.
pub(super) fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Integer(number) => integer(number).map_or(Raw::Other, Raw::Integer),
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Array(items) => {
            let texts = items
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<_>>().map_or(Raw::Other, Raw::List)
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => Raw::Other,
    }
}

/// A whole number, in whatever base it is written.
pub(super) fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn load(text: &str) -> Result<Config, ConfigError> {
        let mut written = Written::default();
        read(Path::new("tidings.toml"), text, &mut written)?;
        written.validate()
    }

    fn refusal(text: &str) -> String {
        load(text).unwrap_err().to_string()
    }

    #[test]
    fn dotted_keys_inline_tables_and_sections_are_the_same() {
        let expected = load("[session]\nmax = 0x10\n").unwrap();
        assert_eq!(expected.session.max, 16);
        assert_eq!(load("session.max = 16").unwrap(), expected);
        assert_eq!(load("session = { max = 1_6 }").unwrap(), expected);
        assert_eq!(load("[session]").unwrap(), Config::default());
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_its_neighbour() {
        assert_eq!(
            refusal("# mine\n[http]\nlisen = \"127.0.0.1:1\"\n"),
            "unknown key \"http.lisen\" in tidings.toml (line 3): did you mean \"http.listen\"?"
        );
        assert_eq!(
            refusal("\n[htpp]\nlisten = 1\n"),
            "unknown key \"htpp.listen\" in tidings.toml (line 3): did you mean \"http.listen\"?"
        );
        assert_eq!(
            refusal("page_size = 1"),
            "unknown key \"page_size\" in tidings.toml (line 1): did you mean \"mcp.page_size\"?"
        );
        assert_eq!(
            refusal("[stoer]"),
            "unknown key \"stoer\" in tidings.toml (line 1): did you mean \"store\"?"
        );
    }

    #[test]
    fn the_column_is_kept_in_characters() {
        let error = load("mcp = { name = \"é\", nam = 1 }").unwrap_err();
        let ConfigError::UnknownKey {
            place: Place::File { line, column, .. },
            ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!((line, column), (1, 21));
    }

    #[test]
    fn a_wrong_value_names_key_line_value_and_range() {
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
            "session.max = 99999999999999999999",
            "workspace.hidden = 'true'",
            "http.keep_alive = 15",
            "http.keep_alive = 07:30:00",
            "http.allowed_hosts = 'a.example'",
            "http.allowed_hosts = ['a.example', 1]",
            "http.listen = 'localhost:80'",
            "[http.listen]\nhost = 'a'",
            "[[mcp.name]]",
        ] {
            assert!(
                matches!(load(text), Err(ConfigError::Value { .. })),
                "{text}: {:?}",
                load(text)
            );
        }
    }

    #[test]
    fn a_section_is_a_table() {
        assert_eq!(
            refusal("http = 80"),
            "invalid value 80 for \"http\" in tidings.toml (line 1): expected a section, written [http]"
        );
        assert!(refusal("[[http]]").contains("expected a section, written [http]"));
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
}
