//! `tidings serve`: reads the configuration from file, environment and command line, and runs the service
//! with it.
//!
//! The whole configuration is checked before anything is started.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::service_run::{self, ServiceRun};
use super::{CliError, environment, usage};
use crate::config::{Config, ConfigError};
use crate::service::{self, ServeOptions};
use crate::telemetry;

/// The arguments of `tidings serve`.
#[derive(Debug, Clone, Args)]
pub(super) struct Serve {
    /// Folder whose files are served; without one only the HTTP API writes
    dir: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceRun,
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
        self.service.load(env, self.dir.clone())
    }

    fn options(&self, config: Config) -> ServeOptions {
        let serve = self.clone();
        self.service
            .options(config, None, move || serve.load(environment()))
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
        service_run::run(self.options(config))
    }
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
