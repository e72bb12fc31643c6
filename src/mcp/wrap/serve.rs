//! Wrapped servers on the transports of the bus: the endpoint and the byte streams of [`serve_stdio`].
//!
//! [`serve_stdio`]: crate::mcp::serve_stdio

use std::sync::{Arc, Weak};

use rmcp::ServerHandler;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Wrap, WrappedServers};
use crate::auth::Caller;
use crate::config::{HttpConfig, QuotaConfig};
use crate::http::{Access, SharedLimits, WriteDeadline};
use crate::mcp::handler::Handler;
use crate::mcp::http::{Endpoint, http_context};
use crate::mcp::stdio::serve_handler;

impl Wrap {
    /// Makes an endpoint that serves clients over streamable HTTP, each with a server that `make` makes: one
    /// per session, and one per request on 2026-07-28. One more is made at once, and asked for its name
    /// alone. The endpoint answers requests whose `Host` is a loopback name.
    ///
    /// It is the endpoint of [`Endpoint::new`], with its limits, streams and metrics: the acknowledgement of
    /// `subscriptions/listen` names what the client really gets, and an open stream keeps its session.
    ///
    /// ```
    /// # use rmcp::ServerHandler;
    /// # #[derive(Clone)] struct MyServer; impl ServerHandler for MyServer {}
    /// # async fn run(my_server: MyServer) -> Result<(), Box<dyn std::error::Error>> {
    /// use tidings::mcp::{McpOptions, Wrap};
    /// let wrap = Wrap::new(tidings::Bus::builder().start()?, McpOptions::default()).await?;
    /// let endpoint = wrap.endpoint(move || my_server.clone());
    /// # let _: axum::Router =
    /// axum::Router::new().route_service("/mcp", endpoint);
    /// # Ok(()) }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(MyServer)).unwrap();
    /// ```
    pub fn endpoint<H: ServerHandler>(
        &self,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> Endpoint<WrappedServers<H>> {
        self.endpoint_with_access(make, Access::default())
    }

    /// Makes an endpoint like [`endpoint`](Self::endpoint) that answers the hosts and origins of `access`,
    /// too.
    pub fn endpoint_with_access<H: ServerHandler>(
        &self,
        make: impl Fn() -> H + Send + Sync + 'static,
        access: Access,
    ) -> Endpoint<WrappedServers<H>> {
        let session = &self.state.options.session;
        let limits = SharedLimits::new(&HttpConfig::default(), session, &QuotaConfig::default());
        self.endpoint_with_limits(make, access, limits)
    }

    /// Makes an endpoint like [`endpoint_with_access`](Self::endpoint_with_access) that shares `limits` with
    /// others. They replace the `per_peer_max` of the options.
    pub fn endpoint_with_limits<H: ServerHandler>(
        &self,
        make: impl Fn() -> H + Send + Sync + 'static,
        access: Access,
        limits: SharedLimits,
    ) -> Endpoint<WrappedServers<H>> {
        let server = http_context(self.state.bus.clone(), self.state.options.clone(), limits.clone());
        let served = WrappedServers::new(self.clone(), server.clone(), make);
        Endpoint::build(served, server, access, (limits, None))
    }

    /// Serves one client of `server` on `input` and `output`, the program's own or any other pair, until the
    /// input ends or the bus stops. It is [`serve_stdio`](crate::mcp::serve_stdio) for a wrapped server.
    ///
    /// ```
    /// # use rmcp::ServerHandler;
    /// # struct MyServer; impl ServerHandler for MyServer {}
    /// # async fn run(my_server: MyServer) -> Result<(), Box<dyn std::error::Error>> {
    /// # let (input, output) = (tokio::io::empty(), tokio::io::sink());
    /// use tidings::mcp::{McpOptions, Wrap};
    /// let wrap = Wrap::new(tidings::Bus::builder().start()?, McpOptions::default()).await?;
    /// // A program gives `tokio::io::stdin()` and `tokio::io::stdout()`.
    /// wrap.serve_stdio(my_server, input, output).await?;
    /// # Ok(()) }
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    /// # runtime.unwrap().block_on(run(MyServer)).unwrap();
    /// ```
    ///
    /// # Errors
    /// A connection that broke before it was initialised.
    pub async fn serve_stdio<H, R, W>(&self, server: H, input: R, output: W) -> std::io::Result<()>
    where
        H: ServerHandler,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_stdio_as(server, Caller::unlimited(None), input, output)
            .await
    }

    /// Serves one client like [`serve_stdio`](Self::serve_stdio), with the rights of `caller`, as
    /// [`serve_stdio_as`](crate::mcp::serve_stdio_as) does.
    ///
    /// # Errors
    /// Those of [`serve_stdio`](Self::serve_stdio).
    pub async fn serve_stdio_as<H, R, W>(
        &self,
        server: H,
        caller: Caller,
        input: R,
        output: W,
    ) -> std::io::Result<()>
    where
        H: ServerHandler,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        // No write time-out: the process that started this one ends it.
        let output = WriteDeadline::new(output, None);
        let bus = self.state.bus.clone();
        let progress = output.progress().clone();
        let bus_handler = Handler::of_connection(bus, self.state.options.clone(), caller, progress);
        let handler = Arc::new(self.handler_over(bus_handler, Arc::new(server), Weak::new()));
        serve_handler(handler, input, output).await
    }
}
