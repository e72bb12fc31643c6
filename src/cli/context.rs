//! `tidings context`: addresses of services with the credentials for them, saved under names.
//!
//! They stand in one file of the user's configuration folder, which its owner alone can read. No token is
//! printed.

mod file;

use std::io::Read;

use clap::{Args, Subcommand};
use serde_json::json;

use super::address::ServiceUrl;
use super::credentials::CredentialsArgs;
use super::table::{TextTable, print, print_json};
use super::{CliError, usage};
use crate::printable;
pub(super) use file::Contexts;
use file::SavedContext;

/// The limit on the size of a token that is read from standard input, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The subcommands of `tidings context`.
#[derive(Debug, Subcommand)]
pub(super) enum ContextCommand {
    /// Save an address and the credentials for it under a name, in place of those that had it
    Save(Box<Save>),
    /// List the saved contexts; the one in use has a star
    Ls {
        /// Print one JSON object a line
        #[arg(short, long)]
        json: bool,
    },
    /// Use a context in every command that names no other server
    Use {
        /// Its name
        name: String,
    },
    /// Show a context, without its secrets; the one in use unless a name is given
    Show {
        /// Its name
        name: Option<String>,
    },
    /// Remove a context
    Rm {
        /// Its name
        name: String,
    },
}

/// The arguments of `tidings context save`.
#[derive(Debug, Args)]
pub(super) struct Save {
    /// Name of the context: letters, digits, dots, dashes and underscores
    #[arg(value_parser = plain_name)]
    name: String,
    /// Address of the service, with or without /mcp
    url: ServiceUrl,
    /// Use it from now on
    #[arg(long = "use")]
    select: bool,
    /// Save the bearer token that standard input has
    #[arg(long, conflicts_with = "token_file")]
    token_stdin: bool,
    #[command(flatten)]
    credentials: CredentialsArgs,
}

fn plain_name(text: &str) -> Result<String, String> {
    match (1..=64).contains(&text.len()) && text.chars().all(is_of_name) {
        true => Ok(text.to_owned()),
        false => Err("expected 1 to 64 letters, digits, dots, dashes and underscores".to_owned()),
    }
}

fn is_of_name(c: char) -> bool {
    // Such names need no quotes in any shell.
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

impl ContextCommand {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            ContextCommand::Save(save) => save.run(),
            ContextCommand::Ls { json } => list(&Contexts::load()?, *json),
            ContextCommand::Use { name } => {
                let mut contexts = Contexts::load()?;
                contexts.get(name)?;
                contexts.current = Some(name.clone());
                contexts.save()
            }
            ContextCommand::Show { name } => show(&Contexts::load()?, name.as_deref()),
            ContextCommand::Rm { name } => {
                let mut contexts = Contexts::load()?;
                contexts.take(name)?;
                // A name in use without its context would make every later command fail.
                if contexts.current.as_ref() == Some(name) {
                    contexts.current = None;
                }
                contexts.save()
            }
        }
    }
}

impl Save {
    fn run(&self) -> Result<(), CliError> {
        self.url.accept("context")?;
        // The context is used from any folder, so relative paths would name other files.
        let mut credentials = self.credentials.clone();
        credentials.make_absolute()?;
        if self.token_stdin {
            credentials.set_token(read_token()?);
        }
        // Checked here, so that a mistake is not found by each command that uses the context.
        credentials.read("context", self.url.as_str())?;
        let mut contexts = Contexts::load()?;
        let saved = SavedContext {
            url: self.url.as_str().to_owned(),
            credentials,
        };
        contexts.context.insert(self.name.clone(), saved);
        if self.select {
            contexts.current = Some(self.name.clone());
        }
        contexts.save()
    }
}

fn read_token() -> Result<String, CliError> {
    let mut token = String::new();
    let mut input = std::io::stdin().take(TOKEN_BYTES_MAX);
    let read = input.read_to_string(&mut token);
    read.map_err(|error| CliError::Failed(format!("cannot read standard input: {error}")))?;
    match token.trim() {
        "" => Err(usage("context", "standard input has no token")),
        token => Ok(token.to_owned()),
    }
}

fn list(contexts: &Contexts, as_json: bool) -> Result<(), CliError> {
    let mut rows = Vec::new();
    let mut items = Vec::new();
    for (name, saved) in &contexts.context {
        let in_use = contexts.current.as_ref() == Some(name);
        let url = printable::without_secrets(&saved.url).into_owned();
        items.push(json!({"name": name, "url": url, "current": in_use}));
        rows.push(vec![
            if in_use { "*" } else { "" }.to_owned(),
            name.clone(),
            url,
            saved.credentials.describe().join(", "),
        ]);
    }
    if as_json {
        return print_json(&items);
    }
    if rows.is_empty() {
        return print("no context is saved; save one with `tidings context save NAME URL`\n");
    }
    print(&TextTable::new(&["", "NAME", "URL", "CREDENTIALS"]).part(rows))
}

fn show(contexts: &Contexts, name: Option<&str>) -> Result<(), CliError> {
    let Some(name) = name.or(contexts.current.as_deref()) else {
        let message = "no context is in use: name one, or choose one with `tidings context use NAME`";
        return Err(usage("context", message));
    };
    let saved = contexts.get(name)?;
    let mut lines = format!("name: {name}\nurl: {}\n", printable::without_secrets(&saved.url));
    for line in saved.credentials.describe() {
        lines.push_str(&line);
        lines.push('\n');
    }
    print(&printable::lines(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["prod", "eu-1.b_2"] {
            assert!(plain_name(name).is_ok());
        }
        for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert!(plain_name(name).is_err(), "{name}");
        }
    }
}
