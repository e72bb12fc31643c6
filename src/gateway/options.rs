//! The options of a gateway.

use std::time::Duration;

use crate::client::Target;
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

/// The options of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The server behind the gateway.
    pub target: Target,
    /// The credentials of the gateway itself; those of clients are never sent on.
    pub credentials: Credentials,
    /// The names of the variables of the gateway's environment that the server's program gets, besides those
    /// that every program needs.
    pub environment: Vec<String>,
    /// The connection over which calls are sent.
    pub isolation: Isolation,
    /// The longest time between two reads of a subscribed resource (default 30 s). It bounds how long a
    /// change can stay unseen that the server does not announce.
    pub poll: Duration,
    /// The longest time without an answer or progress of a call (default 5 min).
    pub call_timeout: Duration,
}

impl GatewayOptions {
    /// Makes the default options for a server.
    pub fn new(target: Target) -> GatewayOptions {
        GatewayOptions {
            target,
            credentials: Credentials::default(),
            environment: Vec::new(),
            isolation: Isolation::Auto,
            poll: Duration::from_secs(30),
            call_timeout: Duration::from_secs(300),
        }
    }
}
