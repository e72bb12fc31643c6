//! The check of a configuration against the files that it names, without starting anything.

use crate::auth::{BorderFault, ConfiguredBorder};
use crate::config::{AuditConfig, Config};
use crate::http::{Tls, TlsError};
use crate::sink::{SinkError, Sinks};
use crate::source::workspace::WorkspaceError;

/// Returns a line for each mistake in the files and folders that `config` names. It starts nothing, listens
/// nowhere and writes no file.
pub fn check_files(config: &Config) -> Vec<String> {
    let mut mistakes = Vec::new();
    if let Err(error) = Tls::load(&config.tls) {
        mistakes.push(format!("TLS cannot be set up: {error}"));
    }
    // Opening the audit would create its file.
    if let Err(error) = ConfiguredBorder::new(&config.auth, &AuditConfig::default()) {
        mistakes.push(format!("the section [auth] cannot be used: {error}"));
    }
    mistakes.extend(Sinks::check(config).iter().map(SinkError::to_string));
    if let Some(dir) = &config.workspace.dir
        && !dir.is_dir()
    {
        mistakes.push(format!("workspace.dir: there is no folder {}", dir.display()));
    }
    for collection in &config.collection {
        // The file itself may come later; its folder is watched from the start.
        let folder = collection.file.parent();
        if let Some(folder) = folder
            && !folder.as_os_str().is_empty()
            && !folder.is_dir()
        {
            mistakes.push(format!(
                "collection.file: there is no folder {}",
                folder.display()
            ));
        }
    }
    mistakes
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
