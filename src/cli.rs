//! The command line: the subcommands of `tidings`, one file each, their help and the exit codes.
//!
//! Results go to standard output, everything else to standard error.

mod serve;
mod policy;
mod publish;
mod watch;
#[cfg(feature = "check")]
mod check;
#[cfg(feature = "bench")]
mod bench;
mod store;
mod token;
mod demo;
mod credentials;
mod exit;
mod signal;

use std::ffi::OsString;
use std::future::Future;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

#[cfg(feature = "bench")]
use bench::Bench;
#[cfg(feature = "check")]
use check::Check;
pub use exit::{CliError, Exit};
use publish::Publish;
use serve::Serve;
use store::StoreCommand;
use token::TokenCommand;
use watch::Watch;

/// One change in, every client told: an event bus for the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(name = "tidings", version, after_help = exit::HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service: a bus with an HTTP API, and MCP over streamable HTTP or stdio
    #[command(after_help = exit::HELP)]
    Serve(Serve),
    /// Write a resource of a running service
    #[command(after_help = exit::HELP)]
    Publish(Publish),
    /// Print every change of some resources of any MCP server, until interrupted
    #[command(after_help = exit::HELP)]
    Watch(Watch),
    #[cfg(feature = "check")]
    /// Test how any MCP server tells of changes
    #[command(after_help = exit::HELP)]
    Check(Check),
    #[cfg(feature = "bench")]
    /// Load any MCP server with sessions and updates, and measure how fast all of them are notified
    #[command(after_help = exit::HELP)]
    Bench(Box<Bench>),
    /// Check, back up, restore or compact what `serve --data DIR` keeps
    #[command(subcommand, after_help = exit::HELP)]
    Store(StoreCommand),
    /// Ask what the rules of a configuration allow
    #[command(subcommand, after_help = exit::HELP)]
    Policy(policy::PolicyCommand),
    /// Make the tokens by which clients are known to a service
    #[command(subcommand, after_help = exit::HELP)]
    Token(TokenCommand),
    /// Tell a story on a bus of its own: one resource, registered once and updated twice
    #[command(subcommand, after_help = exit::HELP)]
    Demo(demo::Story),
}

/// Runs the program with `arguments`, of which the first is its name. Prints errors before it returns.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let ended = match Cli::try_parse_from(arguments) {
        Ok(cli) => run(cli),
        Err(error) => Err(CliError::Usage(explain_left_out(error))),
    };
    match ended {
        Ok(exit) => exit,
        Err(error) => {
            error.print();
            error.exit()
        }
    }
}

/// The subcommands that a build may lack: each is a feature of the same name.
const OPTIONAL_SUBCOMMANDS: [&str; 2] = ["check", "bench"];

/// Adds the remedy to the error about a subcommand that this build was made without.
fn explain_left_out(error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    if !OPTIONAL_SUBCOMMANDS.contains(&name.as_str()) {
        return error;
    }
    let message = format!("this build has no subcommand '{name}'; build it with `--features {name}`");
    Cli::command().error(ErrorKind::InvalidSubcommand, message)
}

fn run(cli: Cli) -> Result<Exit, CliError> {
    let ended = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Publish(publish) => publish.run(),
        Command::Watch(watch) => watch.run(),
        #[cfg(feature = "check")]
        Command::Check(check) => return check.run(),
        #[cfg(feature = "bench")]
        Command::Bench(bench) => return bench.run(),
        Command::Store(command) => command.run(),
        Command::Policy(policy) => return policy.run(),
        Command::Token(command) => command.run(),
        Command::Demo(story) => story.run(),
    };
    ended.map(|()| Exit::Ok)
}

/// Returns the variables of the environment that are UTF-8.
fn environment() -> impl Iterator<Item = (String, String)> {
    // `std::env::vars` panics on a variable of another program that is not UTF-8.
    let variables = std::env::vars_os();
    variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Makes the error that clap prints for a misuse which its own rules cannot express.
fn usage(subcommand: &str, message: &str) -> CliError {
    let mut command = Cli::command();
    command.build();
    let command = command
        .find_subcommand_mut(subcommand)
        .expect("every caller is a subcommand: a test misuses each");
    CliError::Usage(command.error(ErrorKind::ValueValidation, message))
}

/// Runs a client subcommand, for which one thread is enough.
fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(CliError::failed)?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_of_arguments_is_valid() {
        Cli::command().debug_assert();
    }

    fn exit_of(line: &str) -> i32 {
        let arguments = line.split_whitespace().map(OsString::from);
        match Cli::try_parse_from(arguments) {
            Ok(_) => -1,
            Err(error) => error.exit_code(),
        }
    }

    #[test]
    fn command_lines_have_their_exit_codes() {
        for line in [
            "tidings serve",
            "tidings serve dir --listen 127.0.0.1:1 --config f --stdio --data d --print-config --log info",
            "tidings publish demo://a",
            "tidings publish demo://a - --if-match v1-2 --media-type text/plain --title T",
            "tidings publish demo://a --create --url http://127.0.0.1:1",
            "tidings publish --batch",
            "tidings publish --batch changes.ndjson --url http://127.0.0.1:1",
            #[cfg(feature = "check")]
            "tidings check http://127.0.0.1:1/mcp --json --era legacy",
            #[cfg(feature = "check")]
            "tidings check -- server",
            #[cfg(feature = "bench")]
            "tidings bench",
            #[cfg(feature = "bench")]
            "tidings bench http://127.0.0.1:1/mcp --sessions 5 --era modern --json -",
            "tidings store check --data d",
            "tidings store backup --data d file",
            "tidings store backup --url http://127.0.0.1:1",
            "tidings store backup --url http://127.0.0.1:1 --header a:b --token-file f",
            "tidings store restore --data d",
            "tidings store compact --data d",
            "tidings token new ci",
            "tidings token new ci --file tokens/ci --not-after 2999-01-31T00:00:00Z",
            "tidings demo push",
            "tidings demo poll",
        ] {
            assert_eq!(exit_of(line), -1, "{line}");
        }
        for line in [
            "tidings",
            "tidings fly",
            "tidings serve --listen nowhere",
            "tidings serve a b",
            "tidings publish",
            "tidings publish demo://a f --create --if-match v1-2",
            "tidings publish --batch f demo://a",
            "tidings publish --batch f --title T",
            "tidings watch",
            "tidings watch http://127.0.0.1:1/mcp demo://a --era old",
            "tidings store check",
            "tidings store backup",
            "tidings store backup --data d --url http://127.0.0.1:1",
            "tidings token",
            "tidings token new",
            "tidings token new ci --not-after 2020-01-31T00:00:00Z",
            "tidings token new ci --not-after tomorrow",
            "tidings demo",
            "tidings demo sing",
        ] {
            assert_eq!(exit_of(line), 2, "{line}");
        }
        for line in ["tidings --help", "tidings --version", "tidings watch --help"] {
            assert_eq!(exit_of(line), 0, "{line}");
        }
    }

    #[cfg(not(feature = "check"))]
    #[test]
    fn left_out_subcommand_names_its_feature() {
        let Err(error) = Cli::try_parse_from(["tidings", "check", "x"]) else {
            panic!("the subcommand is there");
        };
        let text = explain_left_out(error).to_string();
        assert!(text.contains("build it with `--features check`"), "{text}");
    }

    #[test]
    fn help_names_every_exit_code() {
        let help = Cli::command().render_help().to_string();
        for exit in [
            Exit::Ok,
            Exit::Failure,
            Exit::Usage,
            Exit::Warnings,
            Exit::Unavailable,
            Exit::Denied,
            Exit::Config,
        ] {
            let line = format!("{:>3}  ", exit as u8);
            assert!(
                help.lines()
                    .any(|found| found.trim_start().starts_with(line.trim_start())),
                "{line} in {help}"
            );
        }
    }
}
