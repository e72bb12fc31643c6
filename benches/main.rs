//! What each hop costs, with a bare twin beside each figure.
//!
//! Owns: the command line and the order of the rows; each row is a module. Never: judges a figure, or reaches beyond
//! this machine's loopback. `cargo bench` runs every row, `cargo bench -- http --sessions 5000 --json` one of them.
//! Three of its own twins are servers: this executable starts itself again with `serve-rmcp`, `serve-bare` or
//! `serve-axum`.

#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod outbox;
mod bus_scope;
mod publish;
mod list;
mod http;
mod flat;
mod scale;
mod scope;
mod stalled;
mod storm;
mod memory;
mod pipeline;
mod sockets;
mod child;
mod start;
mod etag;
mod support;

use anyhow::{Context, bail};

use crate::support::Table;

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The rows to run; none named: all.
    rows: Vec<String>,
    /// Subscribers, in place of a row's own number.
    pub(crate) sessions: Option<usize>,
    /// One JSON object per line instead of tables.
    json: bool,
    /// Whether cargo's benching asked, rather than its testing of all targets.
    bench: bool,
}

/// One row: its name, and what measures it.
type Row = (&'static str, fn(&Options) -> anyhow::Result<Table>);

const ROWS: &[Row] = &[
    ("outbox", outbox::run),
    ("bus-scope", bus_scope::run),
    ("publish", publish::run),
    ("list", list::run),
    ("http", http::run),
    ("memory", memory::run),
    ("flat", flat::run),
    ("scale", scale::run),
    ("scope", scope::run),
    ("stalled", stalled::run),
    ("storm", storm::run),
    ("start", start::run),
    ("etag", etag::run),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("hold-sessions") => return memory::hold(&arguments[1..]),
        Some("only-publish") => return publish::publish(count(&arguments, 1)?),
        Some("only-tell") => {
            let (size, rounds) = (count(&arguments, 1)?, count(&arguments, 2)?);
            let drain_every = (arguments.len() > 3).then(|| count(&arguments, 3)).transpose()?;
            return outbox::tell(size, rounds, drain_every);
        }
        Some("serve-rmcp") => return sockets::serve_rmcp(),
        Some("serve-bare") => return sockets::serve_bare(&arguments[1..]),
        Some("serve-axum") => return etag::serve_axum(&arguments[1..]),
        _ => {}
    }
    let options = Options::parse(&arguments)?;
    if !options.bench && options.rows.is_empty() {
        println!("nothing measured: run `cargo bench`, or name a row");
        return Ok(());
    }
    for (name, run) in ROWS.iter().copied() {
        if !options.rows.is_empty() && !options.rows.iter().any(|row| row == name) {
            continue;
        }
        let table = run(&options).with_context(|| format!("row {name} could not be measured"))?;
        print!("{}", if options.json { table.json() } else { table.text() });
    }
    Ok(())
}

/// How often to do what is done for those who count instructions.
fn count(arguments: &[String], place: usize) -> anyhow::Result<usize> {
    let count = arguments.get(place).and_then(|count| count.parse().ok());
    count.with_context(|| format!("{} needs a number as word {place}, such as 10", arguments[0]))
}

impl Options {
    /// The sizes of a row: the one asked for, or the row's own.
    pub(crate) fn sizes(&self, own: &[usize]) -> Vec<usize> {
        self.sessions
            .map_or_else(|| own.to_vec(), |sessions| vec![sessions])
    }

    fn parse(arguments: &[String]) -> anyhow::Result<Options> {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--bench" => options.bench = true,
                "--json" => options.json = true,
                "--sessions" => {
                    let number = rest.next().context("--sessions needs a number, such as 1000")?;
                    let sessions = number.parse().ok().filter(|sessions| *sessions > 0);
                    options.sessions = Some(sessions.with_context(|| {
                        format!("--sessions {number:?} is no number above 0, such as 1000")
                    })?);
                }
                name if ROWS.iter().any(|(row, _)| *row == name) => options.rows.push(name.to_owned()),
                other => {
                    let rows: Vec<&str> = ROWS.iter().map(|(row, _)| *row).collect();
                    bail!("no row or option {other:?}: name one of {}", rows.join(", "))
                }
            }
        }
        Ok(options)
    }
}
