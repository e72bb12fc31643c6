//! A service with a border: rules, and a static token for each of its principals, as files.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use tempfile::TempDir;
use tidings::auth::NewToken;
use tidings::wire::http1::HttpTarget;

use crate::server_process::{ListeningServer, serve_command};

/// The name of the configuration file in the folder of a server.
pub(crate) const CONFIG: &str = "tidings.toml";

/// The principal that may do everything.
pub(crate) const OPS: &str = "ops";
/// The rule that lets it.
pub(crate) const OPS_RULE: &str = "[[auth.rule]]\nroles = ['ops']\n\
    may = ['list', 'read', 'subscribe', 'publish', 'call', 'admin', 'metrics']\n\
    match = ['*', 'tool:*', 'prompt:*']\n";

/// The credentials of a service, and its configuration without the rules.
pub(crate) struct Guard {
    section: String,
    tokens: Vec<(String, String)>,
}

impl Guard {
    /// Makes a token for each name, which is also its role, and writes the files to `folder`.
    pub(crate) fn write(folder: &Path, names: &[&str], rules: &str) -> anyhow::Result<Guard> {
        let mut guard = Guard {
            section: "[auth]\nanonymous = 'none'\n".to_owned(),
            tokens: Vec::new(),
        };
        for name in names {
            let made = NewToken::make(name, None)?;
            fs::write(folder.join(name), made.line)?;
            guard.section +=
                &format!("[[auth.token]]\nname = '{name}'\nfile = '{name}'\nroles = ['{name}']\n");
            guard.tokens.push(((*name).to_owned(), made.token));
        }
        guard.write_rules(folder, rules)?;
        Ok(guard)
    }

    /// Replaces the rules in the configuration file.
    pub(crate) fn write_rules(&self, folder: &Path, rules: &str) -> anyhow::Result<()> {
        Ok(fs::write(folder.join(CONFIG), self.text(rules))?)
    }

    /// Returns the configuration with these rules.
    pub(crate) fn text(&self, rules: &str) -> String {
        format!("{}{rules}", self.section)
    }

    /// Has every request to `target` carry the token of a principal.
    pub(crate) fn authorize(&self, target: &HttpTarget, name: &str) -> anyhow::Result<()> {
        let found = self.tokens.iter().find(|(of, _)| of == name);
        let (_, token) = found.with_context(|| format!("{name} has no token"))?;
        authorize(target, token);
        Ok(())
    }
}

/// Has every request to `target` carry a token.
pub(crate) fn authorize(target: &HttpTarget, token: &str) {
    let value = format!("Bearer {token}");
    target.headers.set([("authorization", value.as_bytes())]);
}

/// Returns the command that serves a part of `folder` with the configuration in it.
pub(crate) fn guarded_command(folder: &Path) -> anyhow::Result<Command> {
    let served = folder.join("served");
    fs::create_dir(&served)?;
    let mut command = serve_command(&served);
    command.arg("--config").arg(folder.join(CONFIG));
    Ok(command)
}

/// Starts a service with these principals and rules.
pub(crate) fn start(names: &[&str], rules: &str) -> anyhow::Result<(ListeningServer, Guard)> {
    let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
    let guard = Guard::write(folder.path(), names, rules)?;
    Ok((start_in(folder)?, guard))
}

/// Starts the service whose configuration stands in `folder`.
pub(crate) fn start_in(folder: TempDir) -> anyhow::Result<ListeningServer> {
    let command = guarded_command(folder.path())?;
    ListeningServer::start(command, folder)
}
