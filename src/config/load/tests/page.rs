//! Compares `docs/configuration.md` with the structs.
//!
//! The tables of the page are generated: `TIDINGS_UPDATE_DOCS=1 cargo test --lib config::load::tests::page`
//! writes them again. The text around them is written by hand.

use super::super::environment::ALIASES;
use super::super::keys::{Key, is_required};
use super::super::print::literal;
use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");

fn page() -> String {
    std::fs::read_to_string(PAGE).unwrap()
}

fn section_row(key: &Key) -> String {
    let (meaning, at_limit) = key.words();
    let at_limit = if at_limit.is_empty() { "–" } else { &at_limit };
    let default = default_cell(key);
    let allowed = key.allowed();
    let row = format!(
        "| `{}` | {meaning} | {default} | {allowed} | {at_limit} |\n",
        key.path
    );
    row + &key.keys.iter().map(section_row).collect::<String>()
}

fn default_cell(key: &Key) -> String {
    match &key.schema["default"] {
        _ if is_required(&key.schema) => "required".to_owned(),
        Value::Null => "–".to_owned(),
        Value::Array(_) if key.is_list() => "–".to_owned(),
        value => format!("`{}`", literal(value)),
    }
}

/// The keys of a table of a list, then those of the tables within.
fn list_rows(table: &Key) -> String {
    let mut rows = String::new();
    for key in &table.keys {
        let default = default_cell(key);
        let (meaning, _) = key.words();
        rows += &format!("| `{}` | {meaning} | {default} | {} |\n", key.path, key.allowed());
    }
    rows + &table.keys.iter().map(list_rows).collect::<String>()
}

/// The table under the heading of a section or list.
fn generated(table: &Key) -> String {
    if table.is_list() {
        let rows = list_rows(table);
        return format!("| Key | Meaning | Default | Allowed |\n|---|---|---|---|\n{rows}");
    }
    let rows: String = table.keys.iter().map(section_row).collect();
    format!("| Key | Meaning | Default | Allowed | At the limit |\n|---|---|---|---|---|\n{rows}")
}

/// The page with each table, and the summary above it, replaced by the one that the structs give.
fn written_anew(page: &str) -> String {
    let mut anew = page.to_owned();
    for key in &ROOT.keys {
        let heading = match key.is_list() {
            false => format!("\n### [{}]\n", key.path),
            true => format!("\n### [[{}]]\n", key.path),
        };
        let (before, rest) = anew
            .split_once(&heading)
            .unwrap_or_else(|| panic!("the page lacks{heading}"));
        let (text, table) = rest.split_once("\n| ").unwrap_or((rest, ""));
        let after = table.split_once("\n\n").unwrap_or_default().1;
        let about = match key.is_list() {
            // Lists are introduced by hand, with links to their pages.
            true => text.to_owned(),
            false => format!("{}\n", key.words().0),
        };
        let gap = if after.is_empty() { "" } else { "\n" };
        anew = format!("{before}{heading}{about}\n{}{gap}{after}", generated(key));
    }
    anew
}

#[test]
fn page_has_the_tables_of_the_structs() {
    let page = page();
    let anew = written_anew(&page);
    if std::env::var_os("TIDINGS_UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &anew).unwrap();
        return;
    }
    let differing = anew.lines().find(|line| !page.contains(&format!("{line}\n")));
    assert!(
        page == anew,
        "docs/configuration.md is not up to date; run \
         `TIDINGS_UPDATE_DOCS=1 cargo test --lib config::load::tests::page`. It lacks:\n{differing:?}"
    );
}

#[test]
fn page_has_no_other_key() {
    let page = page();
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `") && !line.starts_with("| `TIDINGS_"));
    let keys: usize = ROOT.keys.iter().map(|table| all_keys(table).len()).sum();
    assert_eq!(rows.count(), keys);
    let headings = page.lines().filter(|line| line.starts_with("### ["));
    assert_eq!(headings.count(), ROOT.keys.len());
}

#[test]
fn page_has_the_aliases() {
    let page = page();
    for (name, meaning) in ALIASES {
        assert!(
            page.contains(&format!("| `{name}` | {meaning} |\n")),
            "docs/configuration.md lacks {name}"
        );
    }
    let rows = page.lines().filter(|line| line.starts_with("| `TIDINGS_"));
    assert_eq!(rows.count(), ALIASES.len());
}

/// The first block of code of the page that begins with `fence`.
fn block<'a>(page: &'a str, fence: &str) -> &'a str {
    let (_, rest) = page.split_once(fence).expect("the page has this example");
    rest.split("```").next().unwrap_or_default()
}

#[test]
fn examples_of_the_page_load() {
    let page = page();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(block(&page, "```toml\n").as_bytes()).unwrap();
    let examples = block(&page, "```sh\n");
    let variables = examples.lines().filter_map(|line| line.split_once('='));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(Some(file.path()), variables, &Overrides::default()).unwrap();
    assert_eq!(config.http.allowed_hosts, ["bus.example", "10.0.0.7"]);
    assert_eq!(config.workspace.file_bytes_max, 1 << 20);
}

/// Bounds at which nothing is to be counted, or that are counted under another name.
const NOT_COUNTED: [(&str, &str); 18] = [
    ("tools.address_space_max", "the system refuses the tool"),
    ("tools.processes_max", "the system refuses the tool"),
    ("tools.open_files_max", "the system refuses the tool"),
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
    ("http.h2_header_bytes_max", "the HTTP library refuses the request"),
    ("bus.shards", "nothing is refused"),
    ("cluster.in_flight_max", "tidings_cluster_proposals_in_flight"),
    ("cluster.publish_timeout", "tidings_cluster_unknown_total"),
    ("cluster.heartbeat", "tidings_cluster_consumer_restarts_total"),
    ("cluster.max_bytes", "tidings_cluster_refused_total"),
    ("cluster.read", "tidings_cluster_not_latest_total"),
    ("mcp.page_size", "nothing is refused"),
];

#[test]
fn every_limit_has_its_counter() {
    let metrics = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"));
    let row = metrics
        .lines()
        .find(|line| line.starts_with("| `tidings_limit_reached_total` |"))
        .expect("the page has this metric");
    for key in Key::of_sections().filter(|key| !key.words().1.is_empty()) {
        let excused = NOT_COUNTED.iter().any(|(path, _)| *path == key.path);
        let counted = row.contains(&format!(" {},", key.path));
        assert!(counted != excused, "{} reaches its limit uncounted", key.path);
    }
}
