//! `tidings cluster`: the state of a running node in its cluster.

#[cfg(feature = "nats")]
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Style};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::server::ServiceArgs;
use super::table::{TextTable, age_cell, cell, print, print_json, print_painted};
use super::{CliError, block_on};
use crate::printable;

/// The subcommands of `tidings cluster`.
#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Show a running node, its place in the log, and the other nodes that it hears
    Status(Box<ClusterStatus>),
    /// Take the content of a single node's store into an empty cluster, with versions and etags
    #[cfg(feature = "nats")]
    Import(ClusterImport),
}

/// The arguments of `tidings cluster status`.
#[derive(Debug, Args)]
pub(super) struct ClusterStatus {
    /// Print one JSON object
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

/// The arguments of `tidings cluster import`.
#[cfg(feature = "nats")]
#[derive(Debug, Args)]
pub(super) struct ClusterImport {
    /// Folder of a store that no service uses
    dir: PathBuf,
    /// Configuration with the section [cluster]; TIDINGS_CLUSTER__* set its keys too
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[cfg(feature = "nats")]
impl ClusterImport {
    fn run(&self) -> Result<(), CliError> {
        let overrides = crate::config::Overrides::default();
        let config = crate::config::Config::load(self.config.as_deref(), super::environment(), &overrides);
        let config = config.map_err(CliError::failed)?;
        // With all causes, since the outermost of them says only where it failed.
        let import = async {
            let imported = crate::service::import_store(&config, &self.dir).await;
            imported.map_err(|error| CliError::Failed(format!("{error:#}")))
        };
        let report = block_on(import)?;
        let mut text = String::new();
        for (name, count) in [
            ("resources", report.resources),
            ("published again by their sources", report.of_sources),
            ("removed, with their versions", report.removed),
            ("known from an import before", report.known),
        ] {
            text.push_str(&format!("{name:<34} {count}\n"));
        }
        print(&text)
    }
}

impl ClusterCommand {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            ClusterCommand::Status(status) => status.run(),
            #[cfg(feature = "nats")]
            ClusterCommand::Import(import) => import.run(),
        }
    }
}

impl ClusterStatus {
    fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("cluster")?;
        let report = block_on(service.json("/v1/cluster"))?;
        if self.json {
            return print_json([&report]);
        }
        print(&printable::lines(&summary(&report)))?;
        print_painted(&nodes_table(&report))?;
        let leases = array(&report, "/leases");
        if leases.is_empty() {
            return Ok(());
        }
        let rows = leases
            .iter()
            .map(|lease| vec![cell(lease, "/name"), cell(lease, "/holder")]);
        print("\n")?;
        print(&TextTable::new(&["LEASE", "HOLDER"]).part(rows.collect()))
    }
}

/// Returns the table of the nodes in a report.
pub(super) fn nodes_table(report: &Value) -> String {
    let mut table = TextTable::new(&[
        "NODE", "LISTS", "APPLIED", "BEHIND", "HEARD", "VERSION", "ADDRESS",
    ])
    .painted(1, color_of_lists);
    let nodes = array(report, "/nodes");
    table.part(nodes.iter().map(|node| node_row(node, report)).collect())
}

fn array<'v>(report: &'v Value, pointer: &str) -> &'v [Value] {
    match report.pointer(pointer) {
        Some(Value::Array(items)) => items,
        _ => &[],
    }
}

/// Returns the lines about the node that was asked.
fn summary(report: &Value) -> String {
    let caught_up = match report.pointer("/caughtUp") {
        Some(Value::Bool(true)) => "caught up",
        _ => "still reading",
    };
    let durable = match report.pointer("/durable") {
        Some(Value::Bool(true)) => "yes",
        Some(Value::Bool(false)) => "no",
        _ => "unknown",
    };
    let mut text = String::new();
    for (name, value) in [
        ("node", cell(report, "/node")),
        ("cluster", cell(report, "/namespace")),
        (
            "log",
            format!("{}, {caught_up}", cell(report, "/health").replace('_', " ")),
        ),
        (
            "applied",
            format!("{} of {}", cell(report, "/applied"), cell(report, "/head")),
        ),
        ("behind", behind(report, report)),
        ("in flight", cell(report, "/inFlight")),
        ("epoch", cell(report, "/epoch")),
        ("durable", durable.to_owned()),
    ] {
        text.push_str(&format!("{name:<10} {value}\n"));
    }
    text.push('\n');
    text
}

/// Returns the line about the log for `tidings top`.
pub(super) fn log_line(report: &Value) -> String {
    let durable = match report.pointer("/durable") {
        Some(Value::Bool(true)) => "durable",
        Some(Value::Bool(false)) => "NOT DURABLE",
        _ => "durability unknown",
    };
    let leases = array(report, "/leases");
    let leases: Vec<String> = leases
        .iter()
        .map(|lease| format!("{} {}", cell(lease, "/name"), cell(lease, "/holder")))
        .collect();
    let line = format!(
        "cluster {}   log {}   applied {} of {}   {durable}   {}",
        cell(report, "/namespace"),
        cell(report, "/health").replace('_', " "),
        cell(report, "/applied"),
        cell(report, "/head"),
        leases.join(", "),
    );
    printable::line(line.trim_end()).into_owned()
}

/// Returns the records that a node has not applied, of those that the log has.
fn behind(node: &Value, report: &Value) -> String {
    let applied = node.pointer("/applied").and_then(Value::as_u64);
    match (applied, report.pointer("/head").and_then(Value::as_u64)) {
        (Some(applied), Some(head)) => head.saturating_sub(applied).to_string(),
        _ => "-".to_owned(),
    }
}

fn node_row(node: &Value, report: &Value) -> Vec<String> {
    let name = match node.pointer("/own") {
        Some(Value::Bool(true)) => format!("{} *", cell(node, "/node")),
        _ => cell(node, "/node"),
    };
    let differs: Vec<_> = array(node, "/differs").iter().filter_map(Value::as_str).collect();
    let lists = match differs.is_empty() {
        true => "equal".to_owned(),
        false => format!("other {}", differs.join(", ")),
    };
    vec![
        name,
        lists,
        cell(node, "/applied"),
        behind(node, report),
        age_cell(node, "/heardMs"),
        cell(node, "/version"),
        cell(node, "/address"),
    ]
}

fn color_of_lists(lists: &str) -> Style {
    match lists {
        "equal" => Style::new(),
        _ => AnsiColor::Yellow.on_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn summary_tells_how_far_the_node_is() {
        let report = json!({
            "node": "a", "namespace": "default", "health": "no_quorum", "caughtUp": false, "applied": 5,
            "head": 9, "inFlight": 2, "epoch": 1,
        });
        let text = summary(&report);
        for line in [
            "log        no quorum, still reading",
            "applied    5 of 9",
            "behind     4",
            "durable    unknown",
        ] {
            assert!(
                text.lines().any(|shown| shown == line),
                "{line} is missing in\n{text}"
            );
        }
        assert!(summary(&json!({})).contains("applied    - of -"));
    }

    #[test]
    fn rows_mark_the_own_node_and_other_lists() {
        let report = json!({ "head": 9 });
        let own = json!({ "node": "a", "own": true, "applied": 9, "heardMs": 12, "differs": [] });
        assert_eq!(node_row(&own, &report)[..4], ["a *", "equal", "9", "0"]);
        let other = json!({ "node": "b", "own": false, "applied": 7, "differs": ["tools", "prompts"] });
        assert_eq!(
            node_row(&other, &report)[..4],
            ["b", "other tools, prompts", "7", "2"]
        );
    }
}
