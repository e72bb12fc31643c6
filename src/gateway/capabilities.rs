//! Clients as the server behind the gateway is told of them.

use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, RequestMetaObject};
use rmcp::service::RequestContext;
use serde_json::json;

type Context = RequestContext<RoleServer>;

/// The fields of `_meta` that belong to one connection: they are made anew for the other one.
const OF_CONNECTION: [&str; 4] = [
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
];

/// Returns the client of the gateway's own requests. It has every capability, since a server may list only
/// what its client can use, and its lists are for all clients.
#[expect(
    deprecated,
    reason = "rmcp marks roots and sampling for a later revision; all five of ours have them"
)]
pub(super) fn watcher() -> ClientConfig {
    let capabilities = ClientCapabilities::builder()
        .enable_roots()
        .enable_roots_list_changed()
        .enable_sampling()
        .enable_elicitation()
        .build();
    ClientConfig::new(capabilities, gateway_name())
}

/// The name and version of the gateway itself.
pub(super) fn gateway_name() -> Implementation {
    Implementation::new("tidings", env!("CARGO_PKG_VERSION"))
}

/// Returns the client of a request, by its own name and with its own capabilities.
pub(super) fn client_of(context: &Context) -> ClientConfig {
    let name = context.client_info().unwrap_or_else(gateway_name);
    ClientConfig::new(context.client_capabilities().unwrap_or_default(), name)
}

/// Returns true if the revision of the request has no sessions.
pub(super) fn is_stateless(context: &Context) -> bool {
    matches!(context.protocol_version(), Some(version) if version >= ProtocolVersion::V_2026_07_28)
}

/// Returns the `_meta` of a request for a connection of that kind.
pub(super) fn meta_for(context: &Context, is_stateless: bool) -> RequestMetaObject {
    let mut meta = context.meta.clone();
    // rmcp adds those of the connection, where its revision has them.
    for name in OF_CONNECTION {
        meta.0.0.remove(name);
    }
    if is_stateless {
        // In place of the gateway's own: what the server may ask depends on the client.
        let client = client_of(context);
        let fields = [
            (OF_CONNECTION[2], json!(client.client_info)),
            (OF_CONNECTION[3], json!(client.capabilities)),
        ];
        for (name, value) in fields {
            meta.0.0.insert(name.to_owned(), value);
        }
    }
    meta
}
