//! Lists of tables (`[[collection]]`, `[[journal]]`, …): what their values may be, and how they are read.
//!
//! Lists come from the file alone, so they are checked while they are read, each key with its line, by the rows of
//! the table in `field`. It never looks at anything but the parsed text.

use super::error::ConfigError;
use super::field::{Field, Need, ONE_OF, UNIQUE, fields_of};
use super::file::Source;
use super::kind::{Kind, Raw};
use super::{hint, name};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::ops::Range;
use tidings_actors::{NoticeKind, PATTERNS_MAX, UriPattern};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Collections, sinks of one sort, views of one, and values of one `in` at most.
const ITEMS_MAX: usize = 256;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A name that fits into URIs and tool names.
    Name,
    /// The same, and a URI scheme too.
    Scheme,
    /// The path of a file.
    File,
    /// A JSON pointer, or nothing.
    Pointer,
    /// A path to a field.
    Field,
    /// Text for people.
    Title,
    /// Text to look for.
    Text,
    /// Text, number or boolean.
    Scalar,
    /// Several of them.
    Scalars,
    /// A boolean.
    Flag,
    /// Patterns of URIs.
    Patterns,
    /// Names of kinds of news.
    News,
    /// Where a webhook goes.
    Url,
    /// The name of an environment variable.
    Variable,
    /// A value such as keys outside of lists have.
    Of(Kind),
    /// One table.
    Table,
    /// A list of tables.
    Tables,
}

impl Shape {
    /// Type and range in words.
    pub(super) fn expects(self) -> String {
        match self {
            Self::Name => {
                "a lower-case letter, then lower-case letters, digits, \"_\" or \"-\", 48 at most".to_owned()
            }
            Self::Scheme => {
                "a lower-case letter, then lower-case letters, digits or \"-\", 48 at most".to_owned()
            }
            Self::File => "a path in UTF-8".to_owned(),
            Self::Pointer => "a JSON pointer such as \"/items\", or \"\"".to_owned(),
            Self::Field => {
                "a path such as \"author.name\", or a JSON pointer such as \"/author/name\"".to_owned()
            }
            Self::Title => "a text of 1 to 256 bytes".to_owned(),
            Self::Text => "a text of 1 to 4096 bytes".to_owned(),
            Self::Scalar => "a text, a number, true or false".to_owned(),
            Self::Scalars => format!("a list of 1 to {ITEMS_MAX} texts, numbers, true or false"),
            Self::Flag => "true or false".to_owned(),
            Self::Patterns => format!(
                "a list of at most {PATTERNS_MAX} URIs, beginnings of URIs such as \"note://*\", or templates such as \"note://{{name}}\""
            ),
            Self::News => format!("a list of {}", NoticeKind::ALL.map(NoticeKind::name).join(", ")),
            Self::Url => {
                "an address such as \"https://hooks.example/tidings\", without user and password".to_owned()
            }
            Self::Variable => {
                "the name of an environment variable that does not begin with TIDINGS_".to_owned()
            }
            Self::Of(kind) => kind.expects(),
            Self::Table => "a table".to_owned(),
            Self::Tables => format!("a list of at most {ITEMS_MAX} tables"),
        }
    }

    fn check_text(self, text: &str) -> bool {
        match self {
            Self::Name => name::identifier(text),
            Self::Scheme => name::identifier(text) && !text.contains('_'),
            Self::File => !text.is_empty() && !text.contains('\0'),
            Self::Pointer => name::json_pointer(text),
            Self::Field => name::field_path(text),
            Self::Title => (1..=256).contains(&text.len()),
            Self::Text => (1..=4096).contains(&text.len()),
            Self::Scalar => true,
            Self::Url => name::webhook(text),
            Self::Variable => name::variable(text),
            Self::Scalars
            | Self::Flag
            | Self::Patterns
            | Self::News
            | Self::Of(_)
            | Self::Table
            | Self::Tables => false,
        }
    }

    /// Checks a list of texts.
    fn check_texts(self, texts: &[String]) -> bool {
        match self {
            Self::Patterns => {
                texts.len() <= PATTERNS_MAX && texts.iter().all(|text| text.parse::<UriPattern>().is_ok())
            }
            Self::News => texts.iter().all(|text| NoticeKind::from_name(text).is_some()),
            _ => false,
        }
    }

    /// The value of a default, which is text as an environment variable would carry it.
    pub(super) fn default(self, text: &str) -> Value {
        match self {
            Self::Of(kind) => kind
                .check(&Raw::from_text(kind, text))
                .expect("every default is allowed: a test reads them"),
            Self::Patterns | Self::News => Value::Array(Vec::new()),
            Self::Flag => Value::from(text == "true"),
            _ => Value::from(text),
        }
    }
}

/// Reads one of the [`LISTS`] as JSON values that fit the structs of `collection` and `sink`.
pub(super) fn read(
    source: &Source<'_>,
    list: &'static str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<Value>, ConfigError> {
    Reader { source }.tables(list, span, value.get_ref())
}

struct Reader<'a> {
    source: &'a Source<'a>,
}

impl Reader<'_> {
    fn tables(&self, path: &str, span: Range<usize>, value: &DeValue<'_>) -> Result<Vec<Value>, ConfigError> {
        let refused = || ConfigError::Value {
            key: path.to_owned(),
            value: "of another type".to_owned(),
            place: self.source.place(span.clone()),
            expected: format!("{}, each written [[{path}]]", Shape::Tables.expects()),
        };
        let DeValue::Array(items) = value else {
            return Err(refused());
        };
        if items.len() > ITEMS_MAX {
            return Err(refused());
        }
        let mut taken = BTreeSet::new();
        let mut tables = Vec::new();
        for item in items {
            let DeValue::Table(table) = item.get_ref() else {
                return Err(refused());
            };
            self.unique(path, table, &mut taken)?;
            tables.push(self.table(path, item.span(), table)?);
        }
        Ok(tables)
    }

    fn table(&self, path: &str, span: Range<usize>, table: &DeTable<'_>) -> Result<Value, ConfigError> {
        let mut read = Map::new();
        for (name, value) in table {
            let key = format!("{path}.{}", name.get_ref());
            let Some(field) = fields_of(path).find(|field| field.path == key) else {
                return Err(ConfigError::UnknownKey {
                    hint: hint::for_field(path, name.get_ref()),
                    key,
                    place: self.source.place(name.span()),
                });
            };
            read.insert(field.name().to_owned(), self.value(field, value)?);
        }
        for field in fields_of(path).filter(|field| !table.contains_key(field.name())) {
            match field.need {
                Need::Required => {
                    return Err(ConfigError::MissingKey {
                        key: field.path.to_owned(),
                        place: self.source.place(span),
                        expected: field.shape.expects(),
                    });
                }
                Need::Default(text) => drop(read.insert(field.name().to_owned(), field.shape.default(text))),
                Need::Optional => {}
            }
        }
        self.one_of(path, span, table)?;
        Ok(Value::Object(read))
    }

    fn value(&self, field: &Field, value: &Spanned<DeValue<'_>>) -> Result<Value, ConfigError> {
        let checked = match (field.shape, value.get_ref()) {
            (Shape::Tables, tables) => {
                return self.tables(field.path, value.span(), tables).map(Value::from);
            }
            (Shape::Table, DeValue::Table(table)) => return self.table(field.path, value.span(), table),
            (Shape::Flag | Shape::Scalar, DeValue::Boolean(flag)) => Some(Value::from(*flag)),
            (Shape::Scalar, number) if !matches!(number, DeValue::String(_)) => scalar(number),
            (Shape::Scalars, DeValue::Array(items)) if (1..=ITEMS_MAX).contains(&items.len()) => {
                let items = items.iter().map(|item| scalar(item.get_ref()));
                items.collect::<Option<Vec<_>>>().map(Value::from)
            }
            (Shape::Of(kind), value) => kind.check(&super::file::raw(value)),
            (shape @ (Shape::Patterns | Shape::News), value) => match super::file::raw(value) {
                Raw::List(texts) if shape.check_texts(&texts) => Some(Value::from(texts)),
                _ => None,
            },
            (shape, DeValue::String(text)) if shape.check_text(text) => Some(Value::from(text.as_ref())),
            _ => None,
        };
        checked.ok_or_else(|| {
            self.source
                .refused(field.path, value.span(), field.shape.expects())
        })
    }

    fn one_of(&self, path: &str, span: Range<usize>, table: &DeTable<'_>) -> Result<(), ConfigError> {
        let Some((_, keys)) = ONE_OF.iter().find(|(parent, _)| *parent == path) else {
            return Ok(());
        };
        let there = keys.iter().filter(|key| table.contains_key(**key)).count();
        if there == 1 {
            return Ok(());
        }
        Err(ConfigError::OneOf {
            table: path.to_owned(),
            place: self.source.place(span),
            keys: keys.join(", "),
        })
    }

    fn unique(
        &self,
        path: &str,
        table: &DeTable<'_>,
        taken: &mut BTreeSet<(&'static str, String)>,
    ) -> Result<(), ConfigError> {
        for (key, reserved) in UNIQUE {
            let Some((_, name)) = key.rsplit_once('.').filter(|(parent, _)| *parent == path) else {
                continue;
            };
            let Some(value) = table.get(name) else { continue };
            let text = value.get_ref().as_str().unwrap_or_default();
            if reserved.contains(&text) || !taken.insert((*key, text.to_owned())) {
                return Err(ConfigError::Taken {
                    key: (*key).to_owned(),
                    value: text.to_owned(),
                    place: self.source.place(value.span()),
                });
            }
        }
        Ok(())
    }
}

fn scalar(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::Boolean(flag) => Some(Value::from(*flag)),
        DeValue::String(text) => Some(Value::from(text.as_ref())),
        DeValue::Integer(number) => super::file::integer(number).map(Value::from),
        DeValue::Float(number) => {
            let number: f64 = number.as_str().replace('_', "").parse().ok()?;
            serde_json::Number::from_f64(number).map(Value::from)
        }
        DeValue::Array(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::field::{FIELDS, LISTS};
    use crate::config::{Config, FilterTest, ViewKind};
    use std::path::Path;

    const HEAD: &str = "[[collection]]\nname = 'notes'\nitem = 'note'\nfile = 'n.json'\n";

    fn load(text: &str) -> Result<Config, ConfigError> {
        let mut written = super::super::written::Written::default();
        super::super::file::read(Path::new("tidings.toml"), text, &mut written)?;
        written.validate()
    }

    fn refusal(text: &str) -> String {
        load(text).unwrap_err().to_string()
    }

    #[test]
    fn a_collection_is_read_with_its_defaults_and_views() {
        let text = format!(
            "{HEAD}[[collection.view]]\nname = 'open'\nfilter = {{ field = 'status', equals = 'open' }}\n\
             [[collection.view]]\nname = 'page'\ngroup_by = 'pageUrl'\n[[collection]]\nname = 'b'\nitem = 'c'\nfile = 'd'\n"
        );
        let config = load(&text).unwrap();
        let [first, second] = &config.collection[..] else {
            panic!("{:?}", config.collection)
        };
        assert_eq!((first.pointer.as_str(), first.id.as_str()), ("", "id"));
        assert_eq!((first.title.as_deref(), second.views.len()), (None, 0));
        let ViewKind::Filter(filter) = &first.views[0].kind else {
            panic!("{first:?}")
        };
        assert_eq!(filter.test, FilterTest::Equals("open".into()));
        assert_eq!(first.views[1].kind, ViewKind::GroupBy("pageUrl".to_owned()));
        let again = load(&config.to_toml()).unwrap();
        assert_eq!(again, config, "{}", config.to_toml());
    }

    #[test]
    fn every_test_is_printed_as_it_is_read() {
        for test in [
            "equals = 'a\"b'",
            "equals = 1.5",
            "not_equals = true",
            "in = [1, 'two', false]",
            "exists = false",
            "contains = 'x'",
        ] {
            let text =
                format!("{HEAD}[[collection.view]]\nname = 'v'\nfilter = {{ field = '/a~1b/c', {test} }}\n");
            let config = load(&text).unwrap();
            assert_eq!(load(&config.to_toml()).unwrap(), config, "{test}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_neighbour() {
        assert_eq!(
            refusal(&format!("{HEAD}titel = 'N'\n")),
            "unknown key \"collection.titel\" in tidings.toml (line 5): did you mean \"title\"?"
        );
        assert_eq!(
            refusal(&format!("{HEAD}[[collection.view]]\nname = 'v'\ngroupby = 'x'\n")),
            "unknown key \"collection.view.groupby\" in tidings.toml (line 7): did you mean \"group_by\"?"
        );
        assert_eq!(
            refusal(&format!(
                "{HEAD}[[collection.view]]\nname = 'v'\nfilter = {{ field = 'a', zzz = 1 }}\n"
            )),
            "unknown key \"collection.view.filter.zzz\" in tidings.toml (line 7): \
             the keys here are field, equals, not_equals, in, exists, contains"
        );
        assert!(refusal("[[colection]]\nname = 'a'\n").ends_with("did you mean \"collection\"?"));
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        assert_eq!(
            refusal("\n[[collection]]\nname = 'a'\nitem = 'b'\n"),
            "\"collection.file\" is missing in tidings.toml (line 2): expected a path in UTF-8"
        );
        assert_eq!(
            refusal(&format!("{HEAD}[[collection.view]]\nname = 'v'\n")),
            "[collection.view] in tidings.toml (line 5) needs exactly one of filter, group_by"
        );
        let both = "filter = { field = 'a', equals = 1, exists = true }";
        assert!(
            refusal(&format!("{HEAD}[[collection.view]]\nname = 'v'\n{both}\n"))
                .contains("needs exactly one of equals, not_equals, in, exists, contains")
        );
    }

    #[test]
    fn names_are_used_once() {
        assert_eq!(
            refusal(&format!("{HEAD}{HEAD}")),
            "\"collection.name\" cannot be \"notes\" in tidings.toml (line 6): the name is taken, choose another"
        );
        assert!(
            refusal(&format!(
                "{HEAD}[[collection.view]]\nname = 'all'\ngroup_by = 'x'\n"
            ))
            .contains("taken")
        );
        assert!(refusal(&HEAD.replace("'notes'", "'workspace'")).contains("workspace.scheme"));
    }

    #[test]
    fn wrong_values_are_refused() {
        for (from, to) in [
            ("'notes'", "'Notes'"),
            ("'notes'", "'my_notes'"),
            ("'notes'", "1"),
            ("'note'", "'a b'"),
            ("'n.json'", "''"),
            ("file = 'n.json'", "file = 'n.json'\npointer = 'items'"),
            ("file = 'n.json'", "file = 'n.json'\nid = 'a..b'"),
            ("file = 'n.json'", "file = 'n.json'\nview = 3"),
        ] {
            let text = HEAD.replace(from, to);
            assert!(
                matches!(load(&text), Err(ConfigError::Value { .. })),
                "{text}: {:?}",
                load(&text)
            );
        }
        assert!(refusal("[collection]\nname = 'a'\n").contains("each written [[collection]]"));
    }

    #[test]
    fn each_path_stands_once_and_below_one_that_has_keys() {
        let paths: BTreeSet<_> = FIELDS.iter().map(|field| field.path).collect();
        assert_eq!(paths.len(), FIELDS.len());
        for field in FIELDS {
            let (parent, _) = field.path.rsplit_once('.').unwrap();
            let holds =
                |other: &&Field| other.path == parent && matches!(other.shape, Shape::Table | Shape::Tables);
            assert!(
                LISTS.contains(&parent) || FIELDS.iter().any(|other| holds(&other)),
                "{parent}"
            );
            assert!(
                field.meaning.ends_with('.') && !field.meaning.contains(['|', '\n']),
                "{}",
                field.path
            );
        }
    }
}
