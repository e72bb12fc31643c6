//! The service: a bus, its sources and its faces, started from a configuration.
//!
//! Receives a checked [`Config`] from the command line and runs until it is told to stop. It never reads the
//! environment or a configuration file itself.

use crate::config::Config;

/// What to serve, and over what.
#[derive(Debug)]
pub struct ServeOptions {
    /// The checked configuration.
    pub config: Config,
    /// Whether one client is served on standard input and output.
    pub stdio: bool,
    /// Whether clients are served over HTTP.
    pub http: bool,
}

/// Runs the service until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part of it fails.
pub async fn run(options: ServeOptions) -> Result<(), anyhow::Error> {
    let ServeOptions { stdio, http, .. } = options;
    anyhow::bail!("not built yet (stdio: {stdio}, http: {http})")
}
