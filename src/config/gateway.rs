//! The servers behind a gateway. Each is a table of its own, `[gateway.upstream.NAME]`.

use super::bounded::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The connection over which the calls of clients reach a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamIsolation {
    /// One for each client where the revision of the server has sessions.
    #[default]
    Auto,
    /// One for each client.
    Client,
    /// One for all clients, none of which the server may ask.
    Shared,
}

/// The consequence of a tool whose description or schema differs from the one that was seen first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolPinning {
    /// None.
    Off,
    /// The log says so.
    #[default]
    Warn,
    /// The log says so, and the tool is neither listed nor called until the gateway starts again.
    Block,
}

table! { GatewayConfig = "The servers behind `tidings gateway`, where its command line names none.";
    /// The servers, in the order in which their items are listed. NAME is the prefix of their tools, prompts
    /// and resources.
    #[schemars(extend("x-named" = true))]
    upstream: Vec<UpstreamConfig> = Vec::new();
}

table! { #[schemars(extend("x-one-of" = ["command", "url"]))]
    UpstreamConfig = "A server behind the gateway.";
    /// Its name, in the header of the table: the prefix of its items, and its label in metrics and logs.
    name: String = String::new(), "Checked::<UpstreamName>";
    /// Program that is an MCP server on its standard input and output, and its arguments.
    command: Option<Vec<String>> = None, "Checked::<List<Text<0, 4096>, 1, 256>>";
    /// Address of the server, in place of `command`.
    url: Option<String> = None, "Checked::<Text<1, 4096>>";
    /// File with a bearer token for the server at `url`, read again when it changes or is refused. A relative
    /// path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    token_file: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// Environment variable with such a token, in place of `token_file`.
    bearer_env: Option<String> = None, "Checked::<OrNone<Variable>>";
    /// Variables that the program gets. Secrets belong in files or in `pass_env`.
    env: BTreeMap<String, String> = BTreeMap::new(), "Checked::<Variables<64>>";
    /// Variables of the gateway's own environment that the program gets, besides PATH, HOME and their like.
    pass_env: Vec<String> = Vec::new(), "Checked::<List<Variable, 0, 64>>";
    /// Whether names and URIs begin with the name of the server; `"auto"` is so where there are several
    /// servers. One of several may be without.
    prefix: Option<bool> = None, "Checked::<AutoFlag>";
    /// Connections over which calls reach the server.
    isolation: UpstreamIsolation = UpstreamIsolation::default();
    /// Longest time between two reads of a subscribed resource, for changes that the server does not
    /// announce.
    poll: Duration = Duration::from_secs(30), "Checked::<Time<SECOND, HOUR>>";
    /// Such reads in a second. At the limit: The others are made later, so with more than `poll` times this
    /// many resources a change that the server does not announce is seen after a longer time than `poll`.
    poll_rate: usize = 20, "Checked::<Count<1, 10_000>>";
    /// Longest time of a call without an answer or progress.
    call_timeout: Duration = Duration::from_secs(300), "Checked::<Time<SECOND, HOUR>>";
    /// Time for which the items of a server that is down are listed as they were last.
    stale_lists: Duration = Duration::from_secs(60), "Checked::<Time<0, HOUR>>";
    /// Starts in a row that last less than a second. After them the server is tried every 30 s.
    restart_max: usize = 5, "Checked::<Count<1, 1000>>";
    /// Whether a call that a crash cut short is made once more, where its tool says that it is idempotent or
    /// only reads.
    idempotent_retry: bool = false;
    /// Time without a call after which the connection of a client is closed; its next call opens another.
    speaker_idle: Duration = Duration::from_secs(600), "Checked::<Time<SECOND, DAY>>";
    /// The consequence of a tool whose description or schema changes after it was first seen.
    tool_pinning: ToolPinning = ToolPinning::default();
}
