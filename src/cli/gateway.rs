//! `tidings gateway`: stands in front of another MCP server and serves its clients.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::address;
use super::credentials::CredentialsArgs;
use super::service_run::{self, ServiceRun};
use super::{CliError, duration, environment, usage};
use crate::client::{Credentials, Target};
use crate::config::{Config, UpstreamConfig};
use crate::gateway::{GatewayOptions, Isolation, UpstreamOptions};

const USAGE: &str = "tidings gateway [OPTIONS] URL\n       tidings gateway [OPTIONS] -- COMMAND [ARGUMENT]...\n       \
    tidings gateway [OPTIONS] --config FILE";

/// The arguments of `tidings gateway`.
#[derive(Debug, Clone, Args)]
#[command(override_usage = USAGE)]
pub(super) struct GatewayArgs {
    /// Address of the server, such as http://127.0.0.1:3000/mcp
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Program that is an MCP server on its standard input and output, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Variable of the environment that the program gets, besides PATH, HOME and their like; may be given
    /// several times
    #[arg(long, value_name = "NAME", requires = "command")]
    env: Vec<String>,
    /// Connections over which calls reach the server
    #[arg(long, value_enum, default_value_t = IsolationName::Auto)]
    isolation: IsolationName,
    /// Longest time between two reads of a subscribed resource, for changes that the server does not announce
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    poll: Duration,
    /// Longest time of a call without an answer or progress
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    call_timeout: Duration,
    #[command(flatten)]
    service: ServiceRun,
    #[command(flatten)]
    credentials: CredentialsArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IsolationName {
    /// A connection for each client where the revision of the server has sessions
    Auto,
    /// A connection for each client
    Client,
    /// One connection for all clients, none of which the server may ask
    Shared,
}

impl From<IsolationName> for Isolation {
    fn from(name: IsolationName) -> Isolation {
        match name {
            IsolationName::Auto => Isolation::Auto,
            IsolationName::Client => Isolation::Client,
            IsolationName::Shared => Isolation::Shared,
        }
    }
}

impl GatewayArgs {
    fn target(&self) -> Result<(Target, Credentials), CliError> {
        // By hand: clap cannot say that exactly one of a positional argument and the rest of the line is
        // needed.
        match (&self.url, self.command.as_slice()) {
            (Some(url), []) => {
                let url = address::endpoint(url).map_err(|reason| usage("gateway", &reason))?;
                let credentials = self.credentials.read("gateway", url.as_str())?;
                Ok((Target::Http(url.into()), credentials))
            }
            (None, [_, ..]) if !self.credentials.is_empty() => Err(usage(
                "gateway",
                "credentials are for a server at an address; give a COMMAND its own by --env NAME",
            )),
            (None, [_, ..]) => {
                let target = Target::command(self.command.clone());
                let target = target.map_err(|error| usage("gateway", &error.to_string()))?;
                Ok((target, Credentials::default()))
            }
            (Some(_), _) => Err(usage(
                "gateway",
                "an address and a COMMAND name each a server: leave one",
            )),
            (None, []) => Err(usage(
                "gateway",
                "name the server: its URL, or -- and the command that starts it, or a --config FILE with \
                 [gateway.upstream.NAME]",
            )),
        }
    }

    /// Returns the server of the command line.
    fn named_server(&self) -> Result<UpstreamOptions, CliError> {
        let (target, credentials) = self.target()?;
        let mut options = UpstreamOptions::new(target);
        options.credentials = credentials;
        options.environment.clone_from(&self.env);
        options.isolation = self.isolation.into();
        options.poll = self.poll;
        options.call_timeout = self.call_timeout;
        Ok(options)
    }

    /// Returns the servers of the command line or of the configuration.
    fn servers(&self, config: &Config) -> Result<Vec<UpstreamOptions>, CliError> {
        let tables = &config.gateway.upstream;
        // Two places that name servers would leave open which of them are meant.
        let is_named = self.url.is_some() || !self.command.is_empty();
        match (is_named, tables.is_empty()) {
            (false, false) => {
                let are_several = tables.len() > 1;
                tables
                    .iter()
                    .map(|table| configured(table, are_several))
                    .collect()
            }
            (true, false) => Err(usage(
                "gateway",
                "the command line names a server, and the configuration has [gateway.upstream]: leave one",
            )),
            (_, true) => Ok(vec![self.named_server()?]),
        }
    }

    pub(super) fn run(&self) -> Result<(), CliError> {
        let config = self.service.load(environment(), None)?;
        let mut upstreams = self.servers(&config)?;
        // A client on stdio is alone, so the server has no other client to be kept apart from, and the
        // changes that its calls make are in its lists.
        if self.service.is_for_one_client() {
            for upstream in &mut upstreams {
                if upstream.isolation == Isolation::Auto {
                    upstream.isolation = Isolation::Sole;
                }
            }
        }
        let service = self.service.clone();
        let load = move || service.load(environment(), None);
        let options = GatewayOptions { upstreams };
        service_run::run(self.service.options(config, Some(options), load))
    }
}

/// Returns the options of a server of the configuration.
fn configured(table: &UpstreamConfig, are_several: bool) -> Result<UpstreamOptions, CliError> {
    let refused = |reason: &str| usage("gateway", &format!("[gateway.upstream.{}]: {reason}", table.name));
    let mut credentials = Credentials::default();
    let target = match (&table.url, &table.command) {
        (Some(url), _) => {
            let url = address::endpoint(url).map_err(|reason| refused(&reason))?;
            if let Some(file) = &table.token_file {
                credentials = credentials.with_token_file(file);
            }
            if let Some(variable) = &table.bearer_env {
                // Read once: a variable that is missing is seen before anything starts.
                let token = std::env::var(variable);
                let token = token.map_err(|_| refused(&format!("the variable {variable} is not set")))?;
                credentials = credentials
                    .with_token(&token)
                    .map_err(|error| refused(&error.to_string()))?;
            }
            Target::Http(url.into())
        }
        (None, command) => {
            let words = command.iter().flatten().map(OsString::from).collect();
            Target::command(words).map_err(|error| refused(&error.to_string()))?
        }
    };
    let mut options = UpstreamOptions::of_table(table, target);
    options.credentials = credentials;
    options.has_prefix = table.prefix.unwrap_or(are_several);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(line: &str) -> GatewayArgs {
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Gateway(gateway) => *gateway,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn server_is_an_address_or_a_command() {
        let (target, _) = parse("tidings gateway 127.0.0.1:1").target().unwrap();
        assert_eq!(target, Target::Http("http://127.0.0.1:1/mcp".to_owned()));
        let (target, _) = parse("tidings gateway --stdio --env TOKEN -- server --listen x")
            .target()
            .unwrap();
        let expected = ["server", "--listen", "x"].map(OsString::from).to_vec();
        assert_eq!(target, Target::Command(expected));
        for line in ["tidings gateway", "tidings gateway 127.0.0.1:1 -- server"] {
            assert!(parse(line).target().is_err(), "{line}");
        }
    }

    #[test]
    fn servers_are_of_the_configuration_or_the_line() {
        let mut config = Config::default();
        let tables = ["files", "notes"].map(|name| UpstreamConfig {
            name: name.to_owned(),
            command: Some(vec!["server".to_owned()]),
            ..UpstreamConfig::default()
        });
        config.gateway.upstream = tables.to_vec();
        config.gateway.upstream[1].prefix = Some(false);
        let servers = parse("tidings gateway").servers(&config).unwrap();
        let prefixes: Vec<bool> = servers.iter().map(|server| server.has_prefix).collect();
        assert_eq!(prefixes, [true, false]);
        assert!(parse("tidings gateway 127.0.0.1:1").servers(&config).is_err());
        config.gateway.upstream.truncate(1);
        assert!(!parse("tidings gateway").servers(&config).unwrap()[0].has_prefix);
        config.gateway.upstream[0].bearer_env = Some("TEST_VARIABLE_THAT_NO_ONE_SETS".to_owned());
        config.gateway.upstream[0].url = Some("127.0.0.1:1".to_owned());
        let refusal = parse("tidings gateway").servers(&config).unwrap_err();
        assert!(
            refusal
                .to_string()
                .contains("TEST_VARIABLE_THAT_NO_ONE_SETS is not set"),
            "{refusal}"
        );
    }

    #[test]
    fn credentials_are_of_addresses_alone() {
        let gateway = parse("tidings gateway --header a:b -- server");
        assert!(gateway.target().is_err());
    }
}
