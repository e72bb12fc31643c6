//! The command line: the subcommands of `tidings`, one file each, their help and the exit codes.
//!
//! Results go to standard output, everything else to standard error.

mod serve;
mod gateway;
mod service_run;
mod resources;
mod publish;
mod sessions;
mod top;
mod health;
mod watch;
#[cfg(feature = "check")]
mod check;
#[cfg(feature = "bench")]
mod bench;
mod context;
mod cluster;
mod store;
mod policy;
mod token;
mod demo;
mod generate;

mod server;
mod address;
mod credentials;
mod duration;
mod table;
mod output;
mod examples;
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
use cluster::ClusterCommand;
use context::ContextCommand;
use duration::duration;
pub use exit::{CliError, Exit};
use gateway::GatewayArgs;
use output::OutputArgs;
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
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service: a bus with an HTTP API, and MCP over streamable HTTP or stdio
    #[command(after_help = examples::SERVE)]
    Serve(Serve),
    /// Stand in front of any MCP server: its clients get etags, subscriptions and true list changes
    #[command(after_help = examples::GATEWAY)]
    Gateway(Box<GatewayArgs>),
    /// List the resources of a running service
    #[command(after_help = examples::LS)]
    Ls(resources::Ls),
    /// Print the body of a resource of a running service
    #[command(after_help = examples::GET)]
    Get(resources::Get),
    /// Write a resource of a running service
    #[command(visible_alias = "publish", after_help = examples::PUT)]
    Put(Publish),
    /// Remove resources of a running service
    #[command(after_help = examples::RM)]
    Rm(resources::Change),
    /// Announce resources of a running service as changed, with the same bodies
    #[command(after_help = examples::TOUCH)]
    Touch(resources::Change),
    /// List the sessions of a running service, the slowest first
    #[command(after_help = examples::SESSIONS)]
    Sessions(sessions::SessionList),
    /// Explain whether a session was notified of a resource, and why not
    #[command(after_help = examples::WHY)]
    Why(sessions::Why),
    /// List the sinks of a running service, or the subscribers of a resource
    #[command(after_help = examples::SUBSCRIBERS)]
    Subscribers(sessions::Subscribers),
    /// Follow the sessions and rates of a running service in the terminal
    #[command(after_help = examples::TOP)]
    Top(top::Top),
    /// Tell by the exit status whether a service works: 0 if it does, else 1
    #[command(after_help = examples::HEALTH)]
    Health(health::Health),
    /// Print every change of some resources of any MCP server, until interrupted
    #[command(after_help = examples::WATCH)]
    Watch(Watch),
    #[cfg(feature = "check")]
    /// Test how any MCP server tells of changes
    #[command(after_help = examples::CHECK)]
    Check(Check),
    #[cfg(feature = "bench")]
    /// Load any MCP server with sessions and updates, and measure how fast all of them are notified
    #[command(after_help = examples::BENCH)]
    Bench(Box<Bench>),
    /// Save the addresses of services and the credentials for them
    #[command(subcommand, after_help = examples::CONTEXT)]
    Context(ContextCommand),
    /// Show the cluster of a running service
    #[command(subcommand, after_help = examples::CLUSTER)]
    Cluster(ClusterCommand),
    /// Check, back up, restore or compact what `serve --data DIR` keeps
    #[command(subcommand, after_help = examples::STORE)]
    Store(StoreCommand),
    /// Ask what the rules of a configuration allow
    #[command(subcommand, after_help = examples::POLICY)]
    Policy(policy::PolicyCommand),
    /// Make the tokens by which clients are known to a service
    #[command(subcommand, after_help = examples::TOKEN)]
    Token(TokenCommand),
    /// Print the completions of a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(generate::Completions),
    /// Print the man page, or write one for each subcommand
    #[command(after_help = examples::MAN)]
    Man(generate::Man),
    /// Tell a story on a bus of its own: one resource, registered once and updated twice
    #[command(after_help = examples::DEMO)]
    Demo(demo::Demo),
}

/// Runs the program with `arguments`, of which the first is its name. Prints errors before it returns.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    output::apply_color(&arguments);
    let ended = match Cli::try_parse_from(arguments) {
        Ok(cli) => {
            cli.output.apply();
            run(cli)
        }
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
    // The others install a log of their own.
    if !matches!(
        cli.command,
        Command::Serve(_) | Command::Gateway(_) | Command::Watch(_)
    ) {
        output::install_log()?;
    }
    let ended = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Gateway(gateway) => gateway.run(),
        Command::Ls(ls) => ls.run(),
        Command::Get(get) => get.run(),
        Command::Put(publish) => publish.run(),
        Command::Rm(change) => change.remove(),
        Command::Touch(change) => change.touch(),
        Command::Sessions(sessions) => sessions.run(),
        Command::Why(why) => why.run(),
        Command::Subscribers(subscribers) => subscribers.run(),
        Command::Top(top) => top.run(),
        Command::Health(health) => health.run(),
        Command::Watch(watch) => watch.run(),
        #[cfg(feature = "check")]
        Command::Check(check) => return check.run(),
        #[cfg(feature = "bench")]
        Command::Bench(bench) => return bench.run(),
        Command::Context(command) => command.run(),
        Command::Cluster(command) => command.run(),
        Command::Store(command) => command.run(),
        Command::Policy(policy) => return policy.run(),
        Command::Token(command) => command.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
        Command::Demo(demo) => demo.run(),
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
            "tidings serve -p 0 --check-config",
            "tidings gateway http://127.0.0.1:1/mcp -p 0 --isolation client --poll 5s --call-timeout 1m",
            "tidings gateway --stdio -- server --its-own",
            "tidings ls demo:// -n 5 --json",
            "tidings get demo://a -o file -i -u :9000",
            "tidings put demo://a",
            "tidings rm demo://a demo://b --if-match v1-2",
            "tidings touch demo://a -c prod",
            "tidings sessions --uri demo://a -n 5 -j",
            "tidings sessions --end s1",
            "tidings why s1 demo://a",
            "tidings subscribers",
            "tidings subscribers demo://a",
            "tidings top -i 500ms -n 5 --once",
            "tidings health -r -q --timeout 500ms",
            "tidings context save prod https://h --token-file f --use",
            "tidings context ls",
            "tidings context use prod",
            "tidings context show",
            "tidings context rm prod",
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
            "tidings cluster status --json -u :9000",
            #[cfg(feature = "nats")]
            "tidings cluster import kept --config f",
            "tidings store check --data d",
            "tidings store backup",
            "tidings store backup --data d file",
            "tidings store backup --url http://127.0.0.1:1",
            "tidings store backup --url http://127.0.0.1:1 --header a:b --token-file f",
            "tidings store restore --data d",
            "tidings store compact --data d",
            "tidings token new ci",
            "tidings token new ci --file tokens/ci --not-after 2999-01-31T00:00:00Z",
            "tidings completions bash",
            "tidings man",
            "tidings man --dir d",
            "tidings demo --fast",
            "tidings demo push",
            "tidings demo poll",
        ] {
            assert_eq!(exit_of(line), -1, "{line}");
        }
        for line in [
            "tidings",
            "tidings fly",
            "tidings serve --listen nowhere",
            "tidings serve --listen 9000 --port 9000",
            "tidings get",
            "tidings rm",
            "tidings why s1",
            "tidings sessions --limit 0",
            "tidings top --interval 0s",
            "tidings health --timeout soon",
            "tidings ls --url 9 --context c",
            "tidings context save a",
            "tidings context save 'a b' 9000",
            "tidings context use",
            "tidings serve a b",
            "tidings gateway 9000 --isolation none",
            "tidings publish",
            "tidings publish demo://a f --create --if-match v1-2",
            "tidings publish --batch f demo://a",
            "tidings publish --batch f --title T",
            "tidings watch http://127.0.0.1:1/mcp demo://a --era old",
            "tidings cluster",
            "tidings store check",
            "tidings store backup --data d --url http://127.0.0.1:1",
            "tidings token",
            "tidings token new",
            "tidings token new ci --not-after 2020-01-31T00:00:00Z",
            "tidings token new ci --not-after tomorrow",
            "tidings completions dos",
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
