//! `tidings store`: check, back up, restore and compact the store of a data directory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::{Method, StatusCode};

use super::server::{Service, ServiceArgs};
use super::{CliError, block_on};
use crate::store;

/// The name of standard input and output in the place of a file.
const STANDARD: &str = "-";

/// The subcommands of `tidings store`.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Verify every line and body of a store that no service uses, and print the counts
    Check(StoreFolder),
    /// Write everything in a store as text, one JSON object per line
    Backup(Box<Backup>),
    /// Make a store of a backup, in a new or an empty folder
    Restore(Restore),
    /// Give free pages of a store that no service uses back to the file system
    Compact(StoreFolder),
}

/// The folder of a store.
#[derive(Debug, Args)]
pub(super) struct StoreFolder {
    /// Folder of the store
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// The arguments of `tidings store backup`.
#[derive(Debug, Args)]
pub(super) struct Backup {
    /// File for the backup; "-" or nothing is standard output
    file: Option<PathBuf>,
    /// Folder of a store that no service uses [default: the store of a running service]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "context"])]
    data: Option<PathBuf>,
    /// A running service goes on meanwhile
    #[command(flatten)]
    service: ServiceArgs,
}

/// The arguments of `tidings store restore`.
#[derive(Debug, Args)]
pub(super) struct Restore {
    /// File with the backup; "-" or nothing is standard input
    file: Option<PathBuf>,
    /// Folder for the store, new or empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl StoreCommand {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            StoreCommand::Check(folder) => check(&folder.data),
            StoreCommand::Backup(backup) => backup.run(),
            StoreCommand::Restore(restore) => restore.run(),
            StoreCommand::Compact(folder) => compact(&folder.data),
        }
    }
}

fn check(dir: &Path) -> Result<(), CliError> {
    let report = store::check(dir).map_err(CliError::failed)?;
    let mut out = io::stdout();
    for (name, count) in [
        ("live URIs", report.live),
        ("removed URIs", report.removed),
        ("bodies", report.bodies),
        ("bytes of bodies", report.body_bytes),
        ("files of bodies", report.body_files),
        ("files without use", report.orphans),
        ("changes in the log", report.changes),
        ("cursors", report.cursors),
        ("lives", report.lives),
        ("last offset", report.offset),
    ] {
        writeln!(out, "{name:<18} {count}")?;
    }
    writeln!(out, "no fault was found")?;
    Ok(())
}

fn compact(dir: &Path) -> Result<(), CliError> {
    let (before, after) = store::compact(dir).map_err(CliError::failed)?;
    writeln!(io::stdout(), "{before} bytes before, {after} bytes after")?;
    Ok(())
}

impl Backup {
    fn run(&self) -> Result<(), CliError> {
        let Some(file) = file_of(self.file.as_deref()) else {
            return self.write(&mut BufWriter::new(io::stdout().lock()));
        };
        // Under another name first, so that a backup that was cut off replaces no whole one.
        let unfinished = file.with_extension("unfinished");
        let mut out =
            BufWriter::new(store::create_private(&unfinished).map_err(|error| no_file(&unfinished, &error))?);
        self.write(&mut out)?;
        out.get_ref().sync_all()?;
        std::fs::rename(&unfinished, file).map_err(|error| no_file(file, &error))
    }

    fn write(&self, out: &mut dyn Write) -> Result<(), CliError> {
        match &self.data {
            None => block_on(download(&self.service.open("store")?, out)),
            Some(dir) => match store::backup(dir, out) {
                Ok(_counts) => Ok(()),
                Err(store::BackupError::Text(error)) => Err(error.into()),
                Err(error) => Err(CliError::failed(error)),
            },
        }
    }
}

/// Copies the backup of a running service to `out`.
async fn download(service: &Service, out: &mut dyn Write) -> Result<(), CliError> {
    let answer = service
        .send(service.request(Method::GET, "/v1/store/backup"))
        .await?;
    if answer.status() == StatusCode::NOT_FOUND {
        let text = format!(
            "{} has no store to back up (HTTP 404); a service has one with `serve --data DIR`",
            service.url
        );
        return Err(CliError::Failed(text));
    }
    let mut answer = service.success(answer).await?;
    let mut last = LastLine::default();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) => {
                out.write_all(&chunk)?;
                last.take(&chunk);
            }
            Ok(None) => break,
            Err(error) => return Err(CliError::Failed(format!("the backup was cut off: {error}"))),
        }
    }
    out.flush()?;
    match last.ends_backup() {
        true => Ok(()),
        // The service closes the stream without its last line when its store fails meanwhile.
        false => Err(CliError::Failed(
            "the backup was cut off; the log of the service says why".into(),
        )),
    }
}

/// The start of the last line that was received.
#[derive(Default)]
struct LastLine {
    start: Vec<u8>,
    /// True if its end was received.
    is_ended: bool,
}

impl LastLine {
    /// The bytes that are kept: a line may have a whole body.
    const LEN_MAX: usize = 64;

    fn take(&mut self, chunk: &[u8]) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.is_ended {
                self.start.clear();
            }
            let room = LastLine::LEN_MAX - self.start.len();
            self.start.extend_from_slice(&part[..part.len().min(room)]);
            self.is_ended = part.ends_with(b"\n");
        }
    }

    /// Returns true if it is the line that ends a whole backup.
    fn ends_backup(&self) -> bool {
        self.is_ended && self.start.starts_with(b"{\"end\"")
    }
}

impl Restore {
    fn run(&self) -> Result<(), CliError> {
        let mut input: Box<dyn BufRead> = match file_of(self.file.as_deref()) {
            Some(file) => {
                let opened = File::open(file).map_err(|error| no_file(file, &error))?;
                Box::new(BufReader::new(opened))
            }
            None => Box::new(io::stdin().lock()),
        };
        let (counts, offset) = store::restore(&self.data, &mut *input).map_err(CliError::failed)?;
        writeln!(
            io::stdout(),
            "restored {} URIs and {} changes into {}; its next start begins a new epoch, in which positions up to \
             offset {offset} stay good and later ones belong to another history",
            counts.lines,
            counts.changes,
            self.data.display()
        )?;
        Ok(())
    }
}

/// Returns the file, or none for standard input or output.
fn file_of(file: Option<&Path>) -> Option<&Path> {
    file.filter(|file| file.as_os_str() != STANDARD)
}

fn no_file(file: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("cannot use {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_is_found_across_chunks() {
        for (chunks, whole) in [
            (&["a\n{\"end\"", ":1}\n"][..], true),
            (&["a\n", "{\"end\":1}\n"], true),
            (&["a", "\n{\"e", "nd\":1}", "\n"], true),
            (&["{\"end\":1}"], false),
            (&["{\"end\":1}\n", "more"], false),
            (&["a", "{\"end\":1}\n"], false),
            (&[], false),
        ] {
            let mut last = LastLine::default();
            for chunk in chunks {
                last.take(chunk.as_bytes());
            }
            assert_eq!(last.ends_backup(), whole, "{chunks:?}");
        }
    }
}
