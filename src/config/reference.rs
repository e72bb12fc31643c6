//! Holds `docs/configuration.md` against the table of keys.
//!
//! Tests alone: the page is written by people, its tables must be the ones made here.

use super::environment::OTHER_VARIABLES;
use super::field::{FIELDS, Field, Need};
use super::key::{KEYS, Key, SECTIONS};
use super::kind::Raw;
use super::list::Shape;
use super::{Config, Overrides, print};
use std::io::Write;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md"));

/// The default as a file would have it.
fn default(key: &Key) -> String {
    let value = key
        .kind
        .check(&Raw::from_text(key.kind, key.default))
        .expect("every default is allowed");
    print::literal(key.kind, &value)
}

fn row(key: &Key) -> String {
    let limit = if key.at_limit.is_empty() {
        "–"
    } else {
        key.at_limit
    };
    let Key {
        path, meaning, kind, ..
    } = key;
    format!(
        "| `{path}` | {meaning} | `{}` | {} | {limit} |",
        default(key),
        kind.expects()
    )
}

fn section_text(section: &str, about: &str) -> String {
    let head = "| Key | Meaning | Default | Allowed | At the limit |\n|---|---|---|---|---|";
    let rows: Vec<_> = KEYS
        .iter()
        .filter(|key| key.section() == section)
        .map(row)
        .collect();
    format!("### [{section}]\n{about}\n\n{head}\n{}\n", rows.join("\n"))
}

fn field_row(field: &Field) -> String {
    let Field {
        path, meaning, shape, ..
    } = field;
    let default = match field.need {
        Need::Required => "required".to_owned(),
        Need::Default(text) => {
            let value = shape.default(text);
            let written = match shape {
                Shape::Of(kind) => print::literal(*kind, &value),
                _ => value.to_string(),
            };
            format!("`{written}`")
        }
        Need::Optional => "–".to_owned(),
    };
    format!("| `{path}` | {meaning} | {default} | {} |", shape.expects())
}

#[test]
fn the_page_has_every_key_of_lists() {
    let missing: Vec<_> = FIELDS
        .iter()
        .map(field_row)
        .filter(|row| !PAGE.contains(&format!("{row}\n")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/configuration.md lacks these rows:\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_page_has_every_key_with_default_and_range() {
    let texts = SECTIONS
        .iter()
        .map(|(section, about)| section_text(section, about));
    let missing: Vec<_> = texts.filter(|text| !PAGE.contains(text)).collect();
    assert!(
        missing.is_empty(),
        "docs/configuration.md lacks this text:\n\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_page_has_no_other_key() {
    let rows = PAGE
        .lines()
        .filter(|line| line.starts_with("| `") && !line.starts_with("| `TIDINGS_"));
    assert_eq!(rows.count(), KEYS.len() + FIELDS.len());
    let headings = PAGE
        .lines()
        .filter(|line| line.starts_with("### [") && !line.starts_with("### [["));
    assert_eq!(headings.count(), SECTIONS.len());
}

#[test]
fn the_page_has_the_variables_outside_the_pattern() {
    for (name, meaning) in OTHER_VARIABLES {
        assert!(
            PAGE.contains(&format!("| `{name}` | {meaning} |\n")),
            "docs/configuration.md lacks {name}"
        );
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| `TIDINGS_"));
    assert_eq!(rows.count(), OTHER_VARIABLES.len());
}

#[test]
fn the_examples_of_the_page_load() {
    let block = |fence: &str| {
        let (_, rest) = PAGE.split_once(fence).expect("the page has this example");
        rest.split("```").next().unwrap_or_default()
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(block("```toml\n").as_bytes()).unwrap();
    let variables = block("```sh\n").lines().filter_map(|line| line.split_once('='));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(Some(file.path()), variables, &Overrides::default()).unwrap();
    assert_eq!(config.http.allowed_hosts, ["bus.example", "10.0.0.7"]);
    assert_eq!(config.workspace.file_bytes_max, 1 << 20);
}

/// Bounds at which nothing is to be counted, or that are counted under another name.
const NOT_COUNTED: [(&str, &str); 9] = [
    (
        "events.history_max",
        "tidings_events_gaps_total, where it matters",
    ),
    (
        "events.history_bytes_max",
        "tidings_events_gaps_total, where it matters",
    ),
    ("http.listen", "the service does not start"),
    ("metrics.listen", "the service does not start"),
    ("http.allowed_hosts", "tidings_http_requests_total, status 4xx"),
    ("http.allowed_origins", "tidings_http_requests_total, status 4xx"),
    (
        "http.not_sent_low_water",
        "the kernel's; tidings_conflated_total shows what comes of it",
    ),
    ("bus.shards", "nothing is refused"),
    ("mcp.page_size", "nothing is refused"),
];

#[test]
fn every_limit_has_its_counter() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"));
    let row = page
        .lines()
        .find(|line| line.starts_with("| `tidings_limit_reached_total` |"))
        .expect("the page has this metric");
    for key in KEYS.iter().filter(|key| !key.at_limit.is_empty()) {
        let excused = NOT_COUNTED.iter().any(|(path, _)| *path == key.path);
        let counted = row.contains(&format!(" {},", key.path));
        assert!(counted != excused, "{} reaches its limit uncounted", key.path);
    }
}
