//! The benches: the cost of each hop, with the cost of a bare twin beside it.
//!
//! Each row is a module. `cargo bench` runs every row, `cargo bench -- http --sessions 5000 --json` one of
//! them. All connections stay on the loopback device. Twins that are servers are processes of this
//! executable, started with `serve-rmcp`, `serve-bare`, `serve-h2` or `serve-axum`.

#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod outbox;
mod bus_scope;
mod publish;
mod list;
mod http;
mod h2;
mod million;
mod floods;
mod flat;
mod scale;
mod scope;
mod stalled;
mod tls;
mod border;
mod reload;
mod jwt;
mod hidden;
mod audience;
mod storm;
mod memory;
mod pipeline;
mod sockets;
mod start;
mod etag;
mod resources;
mod batch;
mod durable;
mod restore;
mod cluster;
mod request_load;
mod server_process;
mod ready_server;
mod guard;
mod twin;
mod support;

use anyhow::{Context, bail};

use crate::support::Table;

/// The options on the command line.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The rows to run; all if empty.
    rows: Vec<String>,
    /// The number of subscribers or connections, in place of a row's own.
    pub(crate) sessions: Option<usize>,
    /// The number of connections that the streams of the rows `h2` and `million` share, in place of its own.
    pub(crate) connections: Option<usize>,
    /// The seconds of each flood of the row `floods`, in place of its own.
    pub(crate) seconds: Option<u64>,
    /// A part of the names of the floods of the row `floods` to run, in place of all.
    pub(crate) flood: Option<String>,
    /// Print one JSON object per line instead of tables.
    json: bool,
    /// True if `cargo bench` runs this program, rather than `cargo test --all-targets`.
    bench: bool,
}

/// A row: its name, and the function that measures it.
type Row = (&'static str, fn(&Options) -> anyhow::Result<Table>);

const ROWS: &[Row] = &[
    ("outbox", outbox::run),
    ("bus-scope", bus_scope::run),
    ("publish", publish::run),
    ("list", list::run),
    ("http", http::run),
    ("h2", h2::run),
    ("million", million::run),
    ("floods", floods::run),
    ("memory", memory::run),
    ("flat", flat::run),
    ("scale", scale::run),
    ("scope", scope::run),
    ("stalled", stalled::run),
    ("tls", tls::run),
    ("border", border::run),
    ("border-outbox", border::run_outbox),
    ("reload", reload::run),
    ("jwt", jwt::run),
    ("hidden", hidden::run),
    ("audience", audience::run),
    ("storm", storm::run),
    ("start", start::run),
    ("etag", etag::run),
    ("get", resources::run_get),
    ("put", resources::run_put),
    ("batch", batch::run),
    ("durable", durable::run),
    ("restore", restore::run),
    ("cluster", cluster::run),
    ("cluster-heard", cluster::run_heard),
    ("cluster-cpu", cluster::run_cpu),
    ("cluster-start", cluster::run_start),
];

/// Rows that run only when they are named: they take minutes, much of the disk, or most of the memory.
const BY_NAME: &[&str] = &["floods", "million", "restore"];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("hold-sessions") => return memory::hold(&arguments[1..]),
        Some("only-publish") => return publish::publish(count(&arguments, 1)?),
        Some("only-tell") => {
            let drain_every = match arguments.len() {
                0..=3 => None,
                _ => Some(count(&arguments, 3)?),
            };
            return outbox::notify(count(&arguments, 1)?, count(&arguments, 2)?, drain_every);
        }
        Some("serve-rmcp") => return sockets::serve_rmcp(),
        Some("serve-bare") => return sockets::serve_bare(&arguments[1..]),
        Some("serve-h2") => return sockets::serve_http2(),
        Some("serve-axum") => return etag::serve_axum(&arguments[1..]),
        _ => {}
    }
    let options = Options::parse(&arguments)?;
    // `cargo test --all-targets` runs this program too, and expects it to end soon.
    if !options.bench && options.rows.is_empty() {
        println!("nothing measured: run `cargo bench`, or name a row");
        return Ok(());
    }
    for (name, run) in ROWS.iter().copied() {
        let is_named = options.rows.iter().any(|row| row == name);
        let is_default = options.rows.is_empty() && !BY_NAME.contains(&name);
        if !is_named && !is_default {
            continue;
        }
        let table = run(&options).with_context(|| format!("row {name} could not be measured"))?;
        print!("{}", if options.json { table.json() } else { table.text() });
    }
    Ok(())
}

/// Returns the number at a place of the arguments.
fn count(arguments: &[String], place: usize) -> anyhow::Result<usize> {
    let count = arguments.get(place).map(|count| count.parse());
    match count {
        Some(Ok(count)) => Ok(count),
        _ => bail!("{} needs a number as word {place}, such as 10", arguments[0]),
    }
}

/// Returns the number after an option.
fn number(option: &str, word: Option<&String>) -> anyhow::Result<usize> {
    match word.map(|word| word.parse()) {
        Some(Ok(number)) if number > 0 => Ok(number),
        _ => bail!("{option} needs a number above 0, such as 1000"),
    }
}

impl Options {
    /// Returns the sizes of a row: the one asked for, or the row's own.
    pub(crate) fn sizes(&self, own: &[usize]) -> Vec<usize> {
        match self.sessions {
            Some(sessions) => vec![sessions],
            None => own.to_vec(),
        }
    }

    fn parse(arguments: &[String]) -> anyhow::Result<Options> {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--bench" => options.bench = true,
                "--json" => options.json = true,
                "--sessions" => options.sessions = Some(number(argument, rest.next())?),
                "--connections" => options.connections = Some(number(argument, rest.next())?),
                "--seconds" => options.seconds = Some(number(argument, rest.next())? as u64),
                "--flood" => {
                    let name = rest.next().context("--flood needs a name, such as PING")?;
                    options.flood = Some(name.clone());
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
