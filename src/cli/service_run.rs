//! The part that `tidings serve` and `tidings gateway` have in common: the configuration, the listener, and
//! the run of the service until its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use super::{CliError, address, output};
use crate::client::ConnectError;
use crate::config::{Config, ConfigError, Overrides};
use crate::gateway::GatewayOptions;
use crate::service::{self, Reload, ServeOptions};
use crate::telemetry;

/// The arguments of a command that runs the service.
#[derive(Debug, Clone, Args)]
pub(super) struct ServiceRun {
    /// Address to listen on for HTTP [default: 127.0.0.1:8808]
    #[arg(short, long, value_name = "ADDR", value_parser = address::listen)]
    listen: Option<SocketAddr>,
    /// Port to listen on, for this machine alone; 0 is any free one
    #[arg(short, long, conflicts_with = "listen")]
    port: Option<u16>,
    /// Configuration file (TOML); variables such as TIDINGS_HTTP__LISTEN override its keys
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve one client on standard input and output; HTTP only where --listen or --port is given too
    #[arg(long)]
    stdio: bool,
    /// Folder where versions outlive the process [default: none, all is forgotten at the end]
    #[arg(short, long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Level of the log, or directives such as info,tidings=debug [env: TIDINGS_LOG] [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

impl ServiceRun {
    /// Returns the address of the command line.
    fn listen(&self) -> Option<SocketAddr> {
        match (self.listen, self.port) {
            (None, Some(port)) => Some((Ipv4Addr::LOCALHOST, port).into()),
            (listen, _) => listen,
        }
    }

    /// Returns true if the only client is the one on standard input and output.
    pub(super) fn is_for_one_client(&self) -> bool {
        self.stdio && self.listen().is_none()
    }

    /// Loads the configuration; `env` are the variables of the environment.
    pub(super) fn load(
        &self,
        env: impl Iterator<Item = (String, String)>,
        workspace_dir: Option<PathBuf>,
    ) -> Result<Config, ConfigError> {
        let overrides = Overrides {
            listen: self.listen(),
            workspace_dir,
            data_dir: self.data.clone(),
            log_level: output::log_level()
                .map(str::to_owned)
                .or_else(|| self.log.clone()),
        };
        Config::load(self.config.as_deref(), env, &overrides)
    }

    /// Returns the parts that are to run; `load` loads the configuration again.
    pub(super) fn options(
        &self,
        config: Config,
        gateway: Option<GatewayOptions>,
        load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> ServeOptions {
        ServeOptions {
            config,
            stdio: self.stdio,
            // A client starts one process for itself over stdio; a second one could not bind the same port.
            http: !self.stdio || self.listen().is_some(),
            gateway,
            // Without a file nothing can have changed.
            reload: self.config.as_ref().map(|file| Reload::new(file, load)),
        }
    }
}

/// Runs the service until its end.
pub(super) fn run(options: ServeOptions) -> Result<(), CliError> {
    // Before anything that logs.
    telemetry::install(&options.config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(service::run(options));
    // Dropping the runtime would wait for the thread that reads stdin: the read cannot be cancelled and
    // may never return.
    runtime.shutdown_background();
    served.map_err(|error| match error.downcast::<ConnectError>() {
        Ok(error) => error.into(),
        Err(error) if service::is_misconfiguration(&error) => CliError::Settings(described(&error)),
        Err(error) => CliError::Failed(described(&error)),
    })
}

/// Returns an error and its causes, each text once: many errors print their cause themselves.
fn described(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        match text.as_str() {
            "" => text = cause,
            said if said.contains(&cause) => {}
            _ => text.push_str(&format!(": {cause}")),
        }
    }
    text
}
