//! Tables for people, and lines of JSON for programs.
//!
//! Names come from other parties, so every cell is cleaned of the characters that steer a terminal.

use std::io::Write;

use clap::builder::styling::Style;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::CliError;
use crate::printable;

/// The spaces between two columns.
const GAP: usize = 2;

/// A table whose rows may come in several parts; each part is as wide as those before it at least.
pub(super) struct TextTable {
    heads: &'static [&'static str],
    widths: Vec<usize>,
    begun: bool,
    /// A column whose cells have a colour each.
    paint: Option<Paint>,
}

/// The colours of a column, by the text of a cell.
type Paint = (usize, fn(&str) -> Style);

impl TextTable {
    pub(super) fn new(heads: &'static [&'static str]) -> TextTable {
        TextTable {
            heads,
            widths: heads.iter().map(|head| head.width()).collect(),
            begun: false,
            paint: None,
        }
    }

    /// Gives the cells of a column colours, by their text; to be printed by [`print_painted`].
    pub(super) fn painted(mut self, column: usize, paint: fn(&str) -> Style) -> TextTable {
        self.paint = Some((column, paint));
        self
    }

    /// Returns the next rows as text, with the heads before the first ones.
    pub(super) fn part(&mut self, rows: Vec<Vec<String>>) -> String {
        // Cleaned before it is measured: a character that is left out must not count.
        let mut cleaned: Vec<Vec<String>> = Vec::with_capacity(rows.len());
        for row in rows {
            cleaned.push(
                row.iter()
                    .map(|cell| printable::line(cell).into_owned())
                    .collect(),
            );
        }
        for row in &cleaned {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let mut text = String::new();
        if !self.begun {
            self.begun = true;
            let heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
            self.push_row(&mut text, &heads, None);
        }
        for row in &cleaned {
            self.push_row(&mut text, row, self.paint);
        }
        text
    }

    fn push_row(&self, text: &mut String, row: &[String], paint: Option<Paint>) {
        let start = text.len();
        for (column, (width, cell)) in self.widths.iter().zip(row).enumerate() {
            match paint {
                Some((painted, style)) if painted == column => {
                    let style = style(cell);
                    text.push_str(&format!("{style}{cell}{style:#}"));
                }
                _ => text.push_str(cell),
            }
            text.push_str(&" ".repeat(width - cell.width() + GAP));
        }
        // Spaces at the end of a line would wrap in a narrow terminal.
        let end = text[start..].trim_end().len();
        text.truncate(start + end);
        text.push('\n');
    }
}

/// Returns the value at a JSON pointer as a cell: texts as they are, nothing as `-`.
pub(super) fn cell(item: &Value, pointer: &str) -> String {
    match item.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns a number of milliseconds at a JSON pointer as a short text, such as `1.5s`.
pub(super) fn age_cell(item: &Value, pointer: &str) -> String {
    match item.pointer(pointer).and_then(Value::as_u64) {
        Some(millis) => age(millis),
        None => "-".to_owned(),
    }
}

/// Writes a number of milliseconds with two or three digits and a unit.
pub(super) fn age(millis: u64) -> String {
    // Two or three digits suffice to see which of many sessions is slow.
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..10 => format!("{seconds}.{}s", millis % 1000 / 100),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Writes to standard output at once, as a program at the other end of a pipe may wait for it.
pub(super) fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes text with colours of our own, as far as standard output takes them.
pub(super) fn print_painted(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes items as JSON, one a line.
pub(super) fn print_json<'v>(items: impl IntoIterator<Item = &'v Value>) -> Result<(), CliError> {
    let mut text = String::new();
    for item in items {
        text.push_str(&printable::json(&item.to_string()));
        text.push('\n');
    }
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        cells
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
            .collect()
    }

    #[test]
    fn columns_are_aligned_over_all_parts() {
        let mut table = TextTable::new(&["URI", "ETAG", "NAME"]);
        let first = table.part(rows(&[&["demo://日本", "v1", "a"], &["demo://b", "v22", ""]]));
        assert_eq!(
            first,
            "URI          ETAG  NAME\ndemo://日本  v1    a\ndemo://b     v22\n"
        );
        assert_eq!(table.part(rows(&[&["x", "y", "z"]])), "x            y     z\n");
    }

    #[test]
    fn ages_are_short() {
        for (millis, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_540, "1.5s"),
            (61_000, "61s"),
            (180_000, "3m"),
            (7_200_000, "2h"),
            (200_000_000, "2d"),
        ] {
            assert_eq!(age(millis), expected);
        }
        assert_eq!(cell(&json!({"a": {"b": 3}}), "/a/b"), "3");
        assert_eq!(age_cell(&json!({}), "/a"), "-");
    }

    #[test]
    fn painted_cells_keep_their_columns() {
        fn bold(cell: &str) -> Style {
            match cell {
                "b" => Style::new().bold(),
                _ => Style::new(),
            }
        }
        let mut table = TextTable::new(&["A", "STATE", "C"]).painted(1, bold);
        let text = table.part(rows(&[&["a", "b", "c"], &["a", "x", "c"]]));
        assert_eq!(text, "A  STATE  C\na  \u{1b}[1mb\u{1b}[0m      c\na  x      c\n");
    }

    proptest! {
        #[test]
        fn hostile_cells_forge_no_row(cells in proptest::collection::vec(any::<String>(), 1..20)) {
            let mut table = TextTable::new(&["NAME"]);
            let count = cells.len();
            let text = table.part(cells.into_iter().map(|cell| vec![cell]).collect());
            prop_assert_eq!(text.lines().count(), count + 1);
            prop_assert_eq!(printable::lines(&text), text.as_str());
        }
    }
}
