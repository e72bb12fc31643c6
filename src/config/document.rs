//! The TOML file: its text becomes the values of a [`Draft`], each with the place it was written at.

use super::error::{Mistake, Place};
use super::hint;
use super::load::{Draft, Written};
use super::schema::{Form, Key, Table};
use super::syntax::TABLES_MAX;
use serde_json::{Map, Number, Value};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Most characters of a refused value that a message repeats.
pub(super) const SHOWN_MAX: usize = 60;

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
            let text = format!("cannot read the configuration file {}: {error}", path.display());
            draft.mistakes.push(Mistake::new(place, text));
        }
    }
}

/// Reads the text of a file into `draft`; `path` is for messages and for the paths in it.
pub(super) fn read_text(path: &Path, text: &str, draft: &mut Draft) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        path,
        text,
        draft,
        taken: BTreeSet::new(),
    };
    for error in &errors {
        reader.syntax(error);
    }
    // Beyond a fault of syntax the parser guesses, and a guess is nothing to judge.
    if errors.is_empty() {
        let tree = reader.root(document.get_ref());
        draft.tree = tree;
        draft.file = Some(path.to_owned());
    }
}

/// The file while it is read.
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    draft: &'a mut Draft,
    /// Names that are to be used once, and files that one sink alone may write.
    taken: BTreeSet<(String, String)>,
}

impl Reader<'_> {
    fn root(&mut self, document: &DeTable<'_>) -> Map<String, Value> {
        let mut tree = Map::new();
        for (name, value) in document {
            match (Key::at(name.get_ref()), value.get_ref()) {
                (Some(key), DeValue::Table(_)) if key.form == Form::Table => {
                    tree.insert(key.path.clone(), self.value(key, &key.path, value));
                }
                (Some(key), DeValue::Array(tables)) if key.form == Form::Tables => {
                    tree.insert(key.path.clone(), self.tables(key, &key.path, name.span(), tables));
                }
                (Some(key), _) => self.refuse(key, name.span(), &value.span()),
                // The keys say more about a misspelled section than its name.
                (None, DeValue::Table(table)) if !table.is_empty() => {
                    for key in table.keys() {
                        self.unknown(&format!("{}.{}", name.get_ref(), key.get_ref()), key.span());
                    }
                }
                (None, _) => self.unknown(name.get_ref(), name.span()),
            }
        }
        tree
    }

    /// Reads the value of a key; `path` is the dotted path of it with indices.
    fn value(&mut self, key: &Key, path: &str, value: &Spanned<DeValue<'_>>) -> Value {
        match (key.form, value.get_ref()) {
            (Form::Table, DeValue::Table(table)) => {
                let known = Table::at(&key.path).expect("each key of this form has its table");
                Value::Object(self.table(known, path, value.span(), table))
            }
            (Form::Tables, DeValue::Array(tables)) => self.tables(key, path, value.span(), tables),
            (Form::Table | Form::Tables, _) => {
                self.refuse(key, value.span(), &value.span());
                self.draft.refused.insert(path.to_owned());
                Value::Null
            }
            (_, written) => {
                let place = self.place(value.span());
                let shown = self.text.get(value.span()).unwrap_or_default();
                self.draft
                    .written
                    .insert(path.to_owned(), Written::new(shown, place));
                self.place_file(key, plain(written))
            }
        }
    }

    fn tables(&mut self, key: &Key, path: &str, span: Range<usize>, tables: &DeArray<'_>) -> Value {
        let known = Table::at(&key.path).expect("each key of this form has its tables");
        let mut read = Vec::new();
        let are_tables = tables.iter().all(|table| table.get_ref().is_table());
        if !are_tables || tables.len() > TABLES_MAX {
            self.refuse(key, span.clone(), &span);
            return Value::Array(read);
        }
        for (index, table) in tables.iter().enumerate() {
            if let DeValue::Table(inner) = table.get_ref() {
                let path = format!("{path}[{index}]");
                read.push(Value::Object(self.table(known, &path, table.span(), inner)));
            }
        }
        // The same name may be used again in the list of another table.
        self.taken
            .retain(|(taken, _)| !taken.starts_with(&format!("{}.", key.path)));
        Value::Array(read)
    }

    fn table(
        &mut self,
        known: &Table,
        path: &str,
        span: Range<usize>,
        table: &DeTable<'_>,
    ) -> Map<String, Value> {
        let mut read = Map::new();
        for (name, value) in table {
            let inner = format!("{path}.{}", name.get_ref());
            let Some(key) = known.key(name.get_ref()) else {
                self.unknown(&format!("{}.{}", known.path, name.get_ref()), name.span());
                self.draft.refused.insert(inner);
                continue;
            };
            let value_read = self.value(key, &inner, value);
            self.once(key, &value_read, value.span());
            read.insert(key.name().to_owned(), value_read);
        }
        let place = self.place(span);
        for key in &known.keys {
            if key.required && !read.contains_key(key.name()) {
                let text = format!("\"{}\" is missing {place}: expected {}", key.path, key.allowed);
                self.draft.mistakes.push(Mistake::new(place.clone(), text));
            }
        }
        let there = known
            .one_of
            .iter()
            .filter(|name| read.contains_key(*name))
            .count();
        let misspelled = table.len() > read.len();
        if !known.one_of.is_empty() && there != 1 && !(there == 0 && misspelled) {
            let text = format!(
                "[{}] {place} needs exactly one of {}",
                known.path,
                known.one_of.join(", ")
            );
            self.draft.mistakes.push(Mistake::new(place, text));
        }
        read
    }

    /// Refuses a name or a file that another table has already.
    fn once(&mut self, key: &Key, value: &Value, span: Range<usize>) {
        let Some(text) = value.as_str().filter(|text| !text.is_empty()) else {
            return;
        };
        let place = self.place(span);
        if let Some(reserved) = key.marks.get("x-unique") {
            let is_reserved = reserved
                .as_array()
                .is_some_and(|reserved| reserved.contains(value));
            if is_reserved || !self.taken.insert((key.path.clone(), text.to_owned())) {
                let text = format!(
                    "\"{}\" cannot be \"{text}\" {place}: the name is taken, choose another",
                    key.path
                );
                self.draft.mistakes.push(Mistake::new(place, text));
            }
        } else if key.marks.get("x-path").is_some_and(|mark| mark == "written")
            && !self.taken.insert(("written".to_owned(), text.to_owned()))
        {
            let text = format!("two sinks write to {text}: choose another file for one of them");
            self.draft.mistakes.push(Mistake::new(place, text));
        }
    }

    /// Makes the path of a file that is found from the folder of the configuration file absolute, so that the printed
    /// configuration means the same in any folder.
    fn place_file(&self, key: &Key, value: Value) -> Value {
        match value.as_str() {
            Some(text) if !text.is_empty() && key.marks.contains_key("x-path") => {
                beside(self.path, Path::new(text)).to_string_lossy().into()
            }
            _ => value,
        }
    }

    fn refuse(&mut self, key: &Key, span: Range<usize>, shown: &Range<usize>) {
        let shown = match key.form {
            Form::Tables => "of another type".to_owned(),
            _ => cut(self.text.get(shown.clone()).unwrap_or_default()),
        };
        let written = match key.form {
            Form::Tables => format!(", each written [[{}]]", key.path),
            _ => String::new(),
        };
        let place = self.place(span);
        let text = format!(
            "invalid value {shown} for \"{}\" {place}: expected {}{written}",
            key.path, key.allowed
        );
        self.draft.mistakes.push(Mistake::new(place, text));
    }

    fn unknown(&mut self, path: &str, span: Range<usize>) {
        let place = self.place(span);
        let text = format!("unknown key \"{path}\" {place}: {}", hint::for_key(path));
        self.draft.mistakes.push(Mistake::new(place, text));
    }

    fn syntax(&mut self, error: &toml::de::Error) {
        let start = error.span().map_or(0, |span| span.start);
        let (line, column) = self.position(start);
        let text = format!(
            "{} is not valid TOML (line {line}, column {column}): {}",
            self.path.display(),
            error.message()
        );
        self.draft
            .mistakes
            .push(Mistake::new(self.place(start..start), text));
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

/// `file` as found from the folder of the file `origin`.
pub(super) fn beside(origin: &Path, file: &Path) -> std::path::PathBuf {
    let joined = match origin.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.join(file),
        // Both were named from the folder in which the service was started, and stay as they are.
        _ => return file.to_owned(),
    };
    std::path::absolute(&joined).unwrap_or(joined)
}

/// The first line of a value, cut when long.
pub(super) fn cut(shown: &str) -> String {
    let line = shown.lines().next().unwrap_or_default();
    let mut cut: String = line.chars().take(SHOWN_MAX).collect();
    if cut.len() < shown.len() {
        cut.push('…');
    }
    cut
}

/// A value of TOML as JSON. Types that no key has become an empty object, which no rule allows.
fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => Value::Object(Map::new()),
        },
        DeValue::Float(number) => match number
            .as_str()
            .replace('_', "")
            .parse()
            .ok()
            .and_then(Number::from_f64)
        {
            Some(number) => Value::Number(number),
            None => Value::Object(Map::new()),
        },
        DeValue::Array(items) => items.iter().map(|item| plain(item.get_ref())).collect(),
        DeValue::Datetime(_) | DeValue::Table(_) => Value::Object(Map::new()),
    }
}
