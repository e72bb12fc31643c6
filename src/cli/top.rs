//! `tidings top`: the figures of a running service and its sessions, the slowest first, kept up to date in a
//! terminal. `q` quits.
//!
//! Without a terminal it prints one look as plain text.

mod sample;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;

use super::duration::positive;
use super::server::{Service, ServiceArgs};
use super::table::{print_json, print_painted};
use super::{CliError, block_on, cluster, sessions, signal};
use crate::printable;
use sample::{TopSample, upstream};
use screen::{Screen, TopKey};

/// The shortest interval, so that a service is not asked in a tight loop.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The arguments of `tidings top`.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Time between two looks, 100ms at least; the service takes its figures every 5 seconds
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = positive)]
    interval: Duration,
    /// Show this many sessions at most, of 1,000; in a terminal as many as it has room for
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Print one look as plain text, also in a terminal
    #[arg(short, long)]
    once: bool,
    /// Print one look as a JSON object
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Top {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let service = self.service.open("top")?;
        // Both are needed: keys are read from one, and the screen is drawn on the other.
        let in_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        block_on(async {
            match in_terminal && !self.once && !self.json {
                true => self.follow(&service).await,
                false => self.look_once(&service).await,
            }
        })
    }

    fn interval(&self) -> Duration {
        self.interval.max(INTERVAL_MIN)
    }

    async fn look_once(&self, service: &Service) -> Result<(), CliError> {
        let sample = TopSample::take(service, self.limit).await?;
        if self.json {
            return print_json([&sample.json()]);
        }
        print_painted(&(text(&sample).join("\n") + "\n"))
    }

    /// Looks again and again until a key or a signal ends it.
    async fn follow(&self, service: &Service) -> Result<(), CliError> {
        // Before the screen is taken, so that its error stands in the usual place.
        let mut now = TopSample::take(service, self.limit).await?;
        let mut fault: Option<String> = None;
        let mut screen = Screen::open()?;
        let interrupted = signal::interrupted();
        tokio::pin!(interrupted);
        loop {
            let mut lines = vec![self.head(service, fault.as_deref())];
            lines.extend(text(&now));
            screen.show(&lines)?;
            let pause = tokio::time::sleep(self.interval());
            tokio::select! {
                biased;
                () = &mut interrupted => return Ok(()),
                key = screen.key() => match key {
                    TopKey::Quit => return Ok(()),
                    TopKey::Redraw => continue,
                },
                () = pause => {}
            }
            match TopSample::take(service, self.limit).await {
                Ok(next) => {
                    now = next;
                    fault = None;
                }
                // The service may be starting again: the last look stays until it answers.
                Err(error) => fault = Some(error.to_string()),
            }
        }
    }

    fn head(&self, service: &Service, fault: Option<&str>) -> String {
        let line = match fault {
            None => format!("{}   every {:?}   q quits", service.url, self.interval()),
            Some(fault) => format!("{}   NO ANSWER: {fault}", service.url),
        };
        printable::line(&line).into_owned()
    }
}

/// Returns the lines of a look.
fn text(sample: &TopSample) -> Vec<String> {
    let mut lines = sample.figures();
    lines.extend(sample.upstreams.iter().map(upstream));
    if let Some(report) = &sample.cluster {
        lines.push(cluster::log_line(report));
        lines.push(String::new());
        lines.extend(cluster::nodes_table(report).lines().map(str::to_owned));
    }
    lines.push(String::new());
    let table = sessions::table().part(sample.sessions.iter().map(sessions::row).collect());
    lines.extend(table.lines().map(str::to_owned));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn look_at_a_node_has_the_nodes_of_its_cluster() {
        let mut sample = TopSample::for_tests(Some(json!({})), Vec::new());
        sample.cluster = Some(json!({
            "namespace": "default", "health": "no_quorum", "applied": 4, "head": 9, "durable": false,
            "nodes": [{"node": "a\u{1b}[2J", "own": true, "applied": 4, "differs": []}],
            "leases": [{"name": "upkeep", "holder": "a"}],
        }));
        let lines = text(&sample);
        let log = "cluster default   log no quorum   applied 4 of 9   NOT DURABLE   upkeep a";
        assert_eq!(lines[2], log);
        assert!(lines[4].starts_with("NODE "), "{lines:?}");
        assert!(
            lines[5].contains("equal") && lines[5].contains(" 5 "),
            "{lines:?}"
        );
        assert!(!lines[5].contains("\u{1b}[2J"), "{lines:?}");
        assert_eq!(sample.json()["cluster"]["head"], 9);
    }

    #[test]
    fn look_at_a_gateway_has_a_line_for_its_server() {
        let mut sample = TopSample::for_tests(Some(json!({})), Vec::new());
        let mut server = json!({
            "name": "files\u{1b}[2J", "state": "up", "restarts": 1, "subscriptions": 3, "speakers": 2,
            "inflight": 0, "last_error": "the connection ended",
        });
        sample.upstreams = vec![server.clone()];
        let line = "upstream files [2J   up   restarts 1   subscriptions 3   speakers 2   calls under way 0";
        assert_eq!(text(&sample)[2], line);
        server["state"] = "down".into();
        sample.upstreams = vec![server];
        let lines = text(&sample);
        assert!(lines[2].contains("   DOWN   restarts 1   "), "{lines:?}");
        assert!(lines[2].ends_with("   the connection ended"), "{lines:?}");
        assert_eq!(sample.json()["upstreams"][0]["restarts"], 1);
    }

    #[test]
    fn look_has_figures_and_sessions() {
        let sessions = vec![json!({"id": "s1", "label": "a\u{1b}[2J"})];
        let lines = text(&TopSample::for_tests(Some(json!({})), sessions));
        assert!(lines[0].starts_with("sessions 1 "), "{lines:?}");
        assert_eq!(lines[2], "");
        assert!(
            lines[4].starts_with("s1 ") && lines[4].ends_with("a [2J"),
            "{lines:?}"
        );
    }
}
