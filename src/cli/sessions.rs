//! `tidings sessions`, `why` and `subscribers`: the clients of a running service, the slowest first, and the
//! reason why one was not notified.

use clap::Args;
use clap::builder::styling::{AnsiColor, Style};
use reqwest::Method;
use serde_json::Value;

use super::server::{Service, ServiceArgs, items, resource_path, segment};
use super::table::{TextTable, age_cell, cell, print, print_json, print_painted};
use super::{CliError, block_on, output};
use crate::{ResourceUri, printable};

/// The heads of a table of sessions.
const HEADS: [&str; 11] = [
    "SESSION",
    "STATE",
    "PENDING",
    "OLDEST",
    "TOLD",
    "CONFLATED",
    "STREAMS",
    "SUBS",
    "REVISION",
    "AGE",
    "CLIENT",
];

/// The arguments of `tidings sessions`.
#[derive(Debug, Args)]
pub(super) struct SessionList {
    /// Only those that are subscribed to this resource
    #[arg(long)]
    uri: Option<ResourceUri>,
    /// Print this many at most, of 1,000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Print one JSON object a line
    #[arg(short, long)]
    json: bool,
    /// End this session; its client has to begin anew
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["uri", "limit", "json"])]
    end: Option<String>,
    #[command(flatten)]
    service: ServiceArgs,
}

impl SessionList {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("sessions")?;
        block_on(async {
            if let Some(id) = &self.end {
                let path = format!("/v1/sessions/{}", segment(id));
                service.ask(service.request(Method::DELETE, &path)).await?;
                return print(&format!("{} ended\n", printable::line(id)));
            }
            let mut path = format!("/v1/sessions?limit={}", self.limit);
            if let Some(uri) = &self.uri {
                path.push_str(&format!("&uri={}", segment(uri.as_str())));
            }
            show(&service.json(&path).await?, self.json)
        })
    }
}

/// Prints a list of sessions.
fn show(page: &Value, as_json: bool) -> Result<(), CliError> {
    let shown = items(page);
    if as_json {
        return print_json(shown);
    }
    print_painted(&table().part(shown.iter().map(row).collect()))?;
    // The rest is named, so that no reader takes a part for all.
    let total = page.get("total").and_then(Value::as_u64).unwrap_or(0);
    if total > shown.len() as u64 {
        let line = format!(
            "{} of {total} are shown, the slowest first; --limit shows more",
            shown.len()
        );
        output::status(&line)?;
    }
    Ok(())
}

/// Returns a table of sessions whose states have colours.
pub(super) fn table() -> TextTable {
    TextTable::new(&HEADS).painted(1, color_of_state)
}

fn color_of_state(state: &str) -> Style {
    match state {
        "stalled" => AnsiColor::Red.on_default().bold(),
        "behind" => AnsiColor::Yellow.on_default(),
        "away" => Style::new().dimmed(),
        _ => Style::new(),
    }
}

/// Returns the cells of a session.
pub(super) fn row(item: &Value) -> Vec<String> {
    vec![
        cell(item, "/id"),
        state(item).to_owned(),
        cell(item, "/pending/entries"),
        age_cell(item, "/pending/oldestMs"),
        cell(item, "/progress/told"),
        cell(item, "/progress/conflated"),
        cell(item, "/streams"),
        cell(item, "/subscriptions"),
        format!("{} {}", cell(item, "/revision"), cell(item, "/transport")),
        age_cell(item, "/progress/ageMs"),
        cell(item, "/label"),
    ]
}

/// Returns the state of a session in a word.
fn state(item: &Value) -> &'static str {
    let stalled = item.pointer("/progress/stalled").and_then(Value::as_bool);
    let pending = item.pointer("/pending/entries").and_then(Value::as_u64);
    let streams = item.pointer("/streams").and_then(Value::as_u64);
    match (stalled, pending, streams) {
        (Some(true), _, _) => "stalled",
        (_, Some(1..), Some(0)) => "away",
        (_, Some(1..), _) => "behind",
        _ => "current",
    }
}

/// The arguments of `tidings why`.
#[derive(Debug, Args)]
pub(super) struct Why {
    /// The session's id, as `tidings sessions` lists it
    session: String,
    /// The resource's URI
    uri: ResourceUri,
    /// Print the session and the explanation as one JSON object
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Why {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("why")?;
        block_on(self.explain(&service))
    }

    async fn explain(&self, service: &Service) -> Result<(), CliError> {
        let path = format!(
            "/v1/sessions/{}?uri={}",
            segment(&self.session),
            segment(self.uri.as_str())
        );
        let found = service.json(&path).await?;
        if self.json {
            return print_json([&found]);
        }
        let line = format!(
            "{} ({}): {}",
            cell(&found, "/id"),
            cell(&found, "/label"),
            cell(&found, "/explanation/text")
        );
        print(&format!("{}\n", printable::line(&line)))
    }
}

/// The arguments of `tidings subscribers`.
#[derive(Debug, Args)]
pub(super) struct Subscribers {
    /// List the subscribers of this resource; by default the sinks and other attached subscribers
    uri: Option<ResourceUri>,
    /// Print one JSON object a line
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Subscribers {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("subscribers")?;
        block_on(async {
            if let Some(uri) = &self.uri {
                let path = format!("{}/subscribers", resource_path(uri));
                return show(&service.json(&path).await?, self.json);
            }
            let page = service.json("/v1/subscribers").await?;
            if self.json {
                return print_json(items(&page));
            }
            let mut table = TextTable::new(&[
                "NAME",
                "HEALTH",
                "CLASS",
                "PENDING",
                "QUEUE",
                "DELIVERED",
                "LOST",
                "RETRIES",
                "ERROR",
            ]);
            print(&table.part(items(&page).iter().map(sink_row).collect()))
        })
    }
}

fn sink_row(item: &Value) -> Vec<String> {
    let pointers = [
        "/name",
        "/health",
        "/class",
        "/pending",
        "/queue",
        "/delivered",
        "/lost",
        "/retries",
        "/error",
    ];
    pointers.iter().map(|pointer| cell(item, pointer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn state_says_why_entries_wait() {
        for (stalled, pending, streams, expected) in [
            (true, 2, 1, "stalled"),
            (false, 2, 1, "behind"),
            (false, 2, 0, "away"),
            (false, 0, 1, "current"),
        ] {
            let item = json!({
                "progress": {"stalled": stalled},
                "pending": {"entries": pending},
                "streams": streams,
            });
            assert_eq!(state(&item), expected);
        }
        assert_eq!(row(&json!({})).len(), HEADS.len());
    }
}
