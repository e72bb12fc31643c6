//! `tidings token`: makes the tokens by which clients are known to a service.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};

use super::CliError;
use crate::auth::NewToken;
use crate::timestamp;

/// The subcommands of `tidings token`.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token. It is printed once and kept nowhere: the service knows its hash alone
    New(New),
}

/// The arguments of `tidings token new`.
#[derive(Debug, Args)]
pub(super) struct New {
    /// Name of its holder, for a comment beside the hash
    #[arg(value_parser = plain_name)]
    name: String,
    /// Token file (auth.token.file) to which the line with the hash is appended; without it the line is
    /// printed after the token
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Time at which the token ends, such as 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = future_time)]
    not_after: Option<SystemTime>,
}

impl TokenCommand {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            TokenCommand::New(new) => new.run(),
        }
    }
}

impl New {
    fn run(&self) -> Result<(), CliError> {
        let made = NewToken::make(&self.name, self.not_after).map_err(CliError::failed)?;
        let mut out = io::stdout().lock();
        match &self.file {
            // Before the token is printed, so that every token that was shown is good.
            Some(file) => append(file, &made.line)
                .map_err(|error| CliError::Failed(format!("cannot use {}: {error}", file.display())))?,
            None => {
                writeln!(out, "{}\n{}", made.token, made.line)?;
                return Ok(());
            }
        }
        writeln!(out, "{}", made.token)?;
        Ok(())
    }
}

/// Appends a line to a file, which only its owner may read if it is new.
fn append(file: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(file)?;
    let mut text = format!("{line}\n");
    if file.metadata()?.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.insert(0, '\n');
        }
    }
    // One write, so that a service that reads the file meanwhile sees no half of a line.
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn plain_name(text: &str) -> Result<String, String> {
    match !text.is_empty() && text.len() <= 64 && text.chars().all(is_of_name) {
        true => Ok(text.to_owned()),
        false => Err("expected 1 to 64 letters, digits, \"-\", \"_\", \".\" or \"@\"".into()),
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.@".contains(c)
}

fn future_time(text: &str) -> Result<SystemTime, String> {
    let Some(time) = timestamp::parse(text) else {
        return Err("expected a time such as 2027-01-31T00:00:00Z".into());
    };
    match time > SystemTime::now() {
        true => Ok(time),
        false => Err("the time is over; name one that is to come".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn line_is_appended_to_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ci");
        append(&file, "one").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        append(&file, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        fs::write(&file, "unended").unwrap();
        append(&file, "three").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "unended\nthree\n");
    }

    #[test]
    fn name_cannot_forge_a_line() {
        assert!(plain_name("ci-1@example.org").is_ok());
        for name in ["", "a b", "a\nsha256:", "a#"] {
            assert!(plain_name(name).is_err(), "{name}");
        }
    }
}
