//! The routes of the service besides those of the API: the one table by which routers are mounted, the page
//! is answered, and the OpenAPI document is made. A route that is not in it is not served.

use super::{events, ws};

macro_rules! routes {
    ($($(#[$doc:meta])+ $name:ident: $template:expr, $allow:literal;)+) => {
        /// A route of the service that is not one of the API itself.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum ServiceRoute {
            $($(#[$doc])+ $name,)+
        }

        impl ServiceRoute {
            /// Every route.
            pub(crate) const ALL: &[ServiceRoute] = &[$(ServiceRoute::$name,)+];

            /// The path, with the name of its part that varies.
            pub(crate) const fn template(self) -> &'static str {
                match self {
                    $(ServiceRoute::$name => $template,)+
                }
            }

            /// The methods that are possible, as the `Allow` header names them.
            pub(crate) const fn allow(self) -> &'static str {
                match self {
                    $(ServiceRoute::$name => $allow,)+
                }
            }
        }
    };
}

routes! {
    /// The MCP endpoint.
    Mcp: "/mcp", "GET,POST,DELETE";
    /// The stream of changes.
    Events: events::PATH, "GET,HEAD,OPTIONS";
    /// The WebSocket.
    Socket: ws::PATH, "GET,HEAD";
    /// A backup of the store.
    Backup: "/v1/store/backup", "GET,HEAD";
    /// The text of the metrics exporter.
    Metrics: "/metrics", "GET,HEAD";
    /// The metadata of the service as a protected resource.
    Metadata: "/.well-known/oauth-protected-resource", "GET,HEAD";
    /// The same, at the path that belongs to the MCP endpoint.
    MetadataOfMcp: "/.well-known/oauth-protected-resource/mcp", "GET,HEAD";
    /// Leads to the page.
    Root: "/", "GET,HEAD";
    /// Leads to the page.
    PageFolder: "/ui", "GET,HEAD";
    /// The page.
    Page: "/ui/", "GET,HEAD";
    /// A file of the page.
    PageFile: "/ui/{file}", "GET,HEAD";
    /// The viewer of the page, and its login.
    Login: "/ui/login", "GET,HEAD,POST";
    /// The end of a login.
    Logout: "/ui/logout", "POST";
}
