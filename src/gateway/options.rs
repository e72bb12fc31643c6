//! The options of a gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::Target;
use crate::config::{ToolPinning, UpstreamConfig, UpstreamIsolation};
use crate::credentials::Credentials;

/// The connection over which a client's calls reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// One connection for all clients where the revision of the server has no sessions (2026-07-28), and one
    /// for each client otherwise.
    #[default]
    Auto,
    /// A connection for each client.
    Client,
    /// One connection for all clients: for servers whose calls leave no state behind. What the server asks
    /// in the middle of a call is refused there, since it cannot be told which client is meant.
    Shared,
    /// One connection for the only client, which the server may ask.
    Sole,
}

impl Isolation {
    /// The name, as the command line takes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Isolation::Auto => "auto",
            Isolation::Client => "client",
            Isolation::Shared => "shared",
            Isolation::Sole => "sole",
        }
    }
}

impl From<UpstreamIsolation> for Isolation {
    fn from(isolation: UpstreamIsolation) -> Isolation {
        match isolation {
            UpstreamIsolation::Auto => Isolation::Auto,
            UpstreamIsolation::Client => Isolation::Client,
            UpstreamIsolation::Shared => Isolation::Shared,
        }
    }
}

/// The options of a gateway: its servers, in the order in which their items are listed.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The servers; at least one.
    pub upstreams: Vec<UpstreamOptions>,
}

impl GatewayOptions {
    /// Returns true if a server has the client on stdin alone.
    pub(crate) fn have_sole_client(&self) -> bool {
        self.upstreams
            .iter()
            .any(|upstream| upstream.isolation == Isolation::Sole)
    }
}

/// One server behind a gateway.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// The name that the operator gave it; without one it goes by its own.
    pub name: Option<String>,
    /// True if its tools, prompts and resources begin with that name.
    pub has_prefix: bool,
    /// The program or address.
    pub target: Target,
    /// The credentials of the gateway itself; those of clients are never sent on.
    pub credentials: Credentials,
    /// The names of the variables of the gateway's environment that the server's program gets, besides those
    /// that every program needs.
    pub environment: Vec<String>,
    /// More variables of the program.
    pub variables: BTreeMap<String, String>,
    /// The connection over which calls are sent.
    pub isolation: Isolation,
    /// The longest time between two reads of a subscribed resource (default 30 s). It bounds how long a
    /// change can stay unseen that the server does not announce.
    pub poll: Duration,
    /// Such reads in a second (default 20). With more than `poll` times as many resources, the reads of each
    /// are further apart than `poll`; that is counted.
    pub poll_rate: usize,
    /// The longest time without an answer or progress of a call (default 5 min).
    pub call_timeout: Duration,
    /// The time for which the items of a server that is down are listed as they were last (default 60 s).
    pub stale_lists: Duration,
    /// Starts in a row that last less than a second (default 5). After them the server is tried every 30 s.
    pub restart_max: usize,
    /// True if a call that a crash cut short is made once more, where its tool says that it may be.
    pub idempotent_retry: bool,
    /// The time without a call after which the connection of a client is closed (default 10 min).
    pub speaker_idle: Duration,
    /// The consequence of a tool that changes after it was first seen.
    pub tool_pinning: ToolPinning,
}

impl UpstreamOptions {
    /// Makes the default options for a server.
    pub fn new(target: Target) -> UpstreamOptions {
        UpstreamOptions::of_table(&UpstreamConfig::default(), target)
    }

    /// Makes the options of a table of the configuration, for the server and without the credentials that it
    /// names.
    pub fn of_table(table: &UpstreamConfig, target: Target) -> UpstreamOptions {
        UpstreamOptions {
            name: (!table.name.is_empty()).then(|| table.name.clone()),
            // Decided where all servers of the gateway are known.
            has_prefix: false,
            target,
            credentials: Credentials::default(),
            environment: table.pass_env.clone(),
            variables: table.env.clone(),
            isolation: table.isolation.into(),
            poll: table.poll,
            poll_rate: table.poll_rate,
            call_timeout: table.call_timeout,
            stale_lists: table.stale_lists,
            restart_max: table.restart_max,
            idempotent_retry: table.idempotent_retry,
            speaker_idle: table.speaker_idle,
            tool_pinning: table.tool_pinning,
        }
    }
}
