//! `tidings serve`: reads the configuration from file, environment and command line, and runs the service
//! with it.
//!
//! The whole configuration is checked before anything is started.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use super::{CliError, address, environment, output, usage};
use crate::config::{Config, ConfigError, Overrides};
use crate::service::{self, Reload, ServeOptions};
use crate::telemetry;

/// The arguments of `tidings serve`.
#[derive(Debug, Clone, Args)]
pub(super) struct Serve {
    /// Folder whose files are served; without one only the HTTP API writes
    dir: Option<PathBuf>,
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
    /// Check the configuration, name all of its mistakes, and end
    #[arg(long)]
    check_config: bool,
    /// Print the configuration in effect as TOML, and end
    #[arg(long, conflicts_with = "check_config")]
    print_config: bool,
    /// Print the JSON Schema of the configuration file, and end
    #[arg(long, conflicts_with_all = ["print_config", "check_config"])]
    print_config_schema: bool,
}

impl Serve {
    /// Returns the address of the command line.
    fn listen(&self) -> Option<SocketAddr> {
        match (self.listen, self.port) {
            (None, Some(port)) => Some((Ipv4Addr::LOCALHOST, port).into()),
            (listen, _) => listen,
        }
    }

    /// Refuses a file in the place of the folder, most often the configuration.
    fn check_dir(&self) -> Result<(), CliError> {
        match &self.dir {
            Some(dir) if dir.is_file() => {
                let dir = dir.display();
                let message = format!("{dir} is a file, not a folder; did you mean --config {dir}?");
                Err(usage("serve", &message))
            }
            _ => Ok(()),
        }
    }

    /// Loads the configuration; `env` are the variables of the environment.
    fn load(&self, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigError> {
        let overrides = Overrides {
            listen: self.listen(),
            workspace_dir: self.dir.clone(),
            data_dir: self.data.clone(),
            log_level: output::log_level()
                .map(str::to_owned)
                .or_else(|| self.log.clone()),
        };
        Config::load(self.config.as_deref(), env, &overrides)
    }

    fn options(&self, config: Config) -> ServeOptions {
        ServeOptions {
            config,
            stdio: self.stdio,
            // A client starts one process for itself over stdio; a second one could not bind the same port.
            http: !self.stdio || self.listen().is_some(),
            // Without a file nothing can have changed.
            reload: match &self.config {
                Some(file) => {
                    let serve = self.clone();
                    Some(Reload::new(file, move || serve.load(environment())))
                }
                None => None,
            },
        }
    }

    pub(super) fn run(&self) -> Result<(), CliError> {
        if self.print_config_schema {
            return print(&Config::json_schema());
        }
        self.check_dir()?;
        let config = self.load(environment())?;
        if self.check_config {
            let mut mistakes = service::check_files(&config);
            mistakes.extend(telemetry::check(&config.log).err().map(|error| error.to_string()));
            return match mistakes.as_slice() {
                [] => print("the configuration is good\n"),
                mistakes => Err(CliError::Settings(mistakes.join("\n"))),
            };
        }
        if self.print_config {
            return print(&config.to_toml_without_secrets());
        }
        telemetry::install(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let served = runtime.block_on(service::run(self.options(config)));
        // Dropping the runtime would wait for the thread that reads stdin: the read cannot be cancelled and
        // may never return.
        runtime.shutdown_background();
        served.map_err(|error| match service::is_misconfiguration(&error) {
            true => CliError::Settings(described(&error)),
            false => CliError::Failed(described(&error)),
        })
    }
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

fn print(text: &str) -> Result<(), CliError> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Serve {
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Serve(serve) => serve,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_override_the_environment() {
        let serve = parse("tidings serve notes --listen 127.0.0.1:3 --data kept --log debug");
        let env = [
            ("TIDINGS_HTTP__LISTEN", "127.0.0.1:2"),
            ("TIDINGS_SESSION__MAX", "7"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = serve.load(env.into_iter()).unwrap();
        assert_eq!(config.http.listen.port(), 3);
        assert_eq!(config.session.max, 7);
        assert_eq!(config.workspace.dir, Some("notes".into()));
        assert_eq!(config.store.dir, Some("kept".into()));
        assert_eq!(config.log.level, "debug");
    }

    #[test]
    fn http_is_served_unless_stdio_stands_alone() {
        for (line, stdio, http) in [
            ("tidings serve", false, true),
            ("tidings serve --listen 127.0.0.1:1", false, true),
            ("tidings serve --stdio", true, false),
            ("tidings serve --stdio --listen 127.0.0.1:1", true, true),
        ] {
            let options = parse(line).options(Config::default());
            assert_eq!((options.stdio, options.http), (stdio, http), "{line}");
        }
    }

    #[test]
    fn print_options_exclude_each_other() {
        assert!(parse("tidings serve --print-config").print_config);
        assert!(parse("tidings serve --print-config-schema").print_config_schema);
        let both = "tidings serve --print-config --print-config-schema";
        assert!(Cli::try_parse_from(both.split_whitespace()).is_err());
    }

    #[test]
    fn variables_of_kubernetes_do_not_stop_the_start() {
        let serve = parse("tidings serve");
        let variable = |name: &str| [(name.to_owned(), "tcp://10.0.0.1:8808".to_owned())].into_iter();
        assert!(serve.load(variable("TIDINGS_PORT")).is_ok());
        assert!(serve.load(variable("TIDINGS_SERVICE_HOST")).is_ok());
        assert!(serve.load(variable("TIDINGS_HTTP_LISTEN")).is_err());
    }
}
