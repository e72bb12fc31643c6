//! The check of a configuration against the files that it names, without starting anything.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::auth::{BorderFault, ConfiguredBorder};
use crate::config::Config;
use crate::http::{Tls, TlsError};
use crate::sink::{SinkError, Sinks};
use crate::source::workspace::WorkspaceError;

/// Returns a line for each mistake in the files and folders that `config` names. It starts nothing, listens
/// nowhere and writes no file.
pub fn check_files(config: &Config) -> Vec<String> {
    let mut mistakes = Vec::new();
    for error in Tls::check(&config.tls) {
        mistakes.push(format!("TLS cannot be set up: {error}"));
    }
    for fault in ConfiguredBorder::check(&config.auth) {
        mistakes.push(format!("the section [auth] cannot be used: {fault}"));
    }
    mistakes.extend(Sinks::check(config).iter().map(SinkError::to_string));
    if let Some(dir) = &config.workspace.dir
        && !dir.is_dir()
    {
        mistakes.push(format!("workspace.dir: there is no folder {}", dir.display()));
    }
    for collection in &config.collection {
        // The file itself may come later; its folder is watched from the start.
        mistakes.extend(missing_folder("collection.file", &collection.file));
    }
    mistakes.extend(config.store.dir.as_deref().and_then(blocked_store));
    for (key, file) in written_files(config) {
        mistakes.extend(unwritable(key, file));
    }
    mistakes
}

/// The files that the service appends to, with the keys that name them.
fn written_files(config: &Config) -> impl Iterator<Item = (&'static str, &Path)> {
    let journals = config
        .journal
        .iter()
        .map(|sink| ("journal.file", Some(&sink.file)));
    let letters = config.webhook.iter();
    let letters = letters.map(|sink| ("webhook.dead_letters", sink.dead_letters.as_ref()));
    let logs = config
        .debug_log
        .iter()
        .map(|sink| ("debug_log.file", sink.file.as_ref()));
    let audit = std::iter::once(("audit.file", config.audit.file.as_ref()));
    let all = journals.chain(letters).chain(logs).chain(audit);
    all.filter_map(|(key, file)| Some((key, file?.as_path())))
}

fn unwritable(key: &str, file: &Path) -> Option<String> {
    let shown = file.display();
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => Some(format!("{key}: {shown} is a folder; name a file")),
        // Opening a pipe would wait for its reader.
        Ok(found) if found.is_file() => {
            let opened = fs::OpenOptions::new().append(true).open(file);
            let error = opened.err()?;
            Some(format!("{key}: {shown} cannot be written: {error}"))
        }
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => missing_folder(key, file),
        Err(error) => Some(format!("{key}: {shown} cannot be written: {error}")),
    }
}

fn missing_folder(key: &str, file: &Path) -> Option<String> {
    let folder = file.parent()?;
    let is_there = folder.as_os_str().is_empty() || folder.is_dir();
    (!is_there).then(|| format!("{key}: there is no folder {}", folder.display()))
}

/// A store makes its folder and those above it, which a file in its way prevents.
fn blocked_store(dir: &Path) -> Option<String> {
    let there = dir.ancestors().find(|above| above.exists())?;
    let is_blocked = !there.is_dir() && !there.as_os_str().is_empty();
    is_blocked.then(|| format!("store.dir: {} is no folder", there.display()))
}

/// Returns true if a start failed for something that the configuration or a file that it names says.
pub fn is_misconfiguration(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<SinkError>()
            || cause.is::<TlsError>()
            || cause.is::<BorderFault>()
            || cause.is::<WorkspaceError>()
    })
}
