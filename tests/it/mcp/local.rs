//! A bus and an MCP endpoint in this process, for tests that use the bus directly. Every server has its own
//! port and its own threads, so tests run side by side.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value};
use tidings::mcp::{Endpoint, McpOptions};
use tidings::status::SubscriberInfo;
use tidings::{Builder, Bus, Limits, Outcome, Prompt, PromptMessage, Resource, Store, Tool, ToolOutput};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::http::{DEADLINE, within};

/// The time of every etag.
pub(crate) const NOW: u64 = 1_700_000_000;

/// A server in this process.
pub(crate) struct Local {
    pub(crate) bus: Bus,
    pub(crate) server: SocketAddr,
    carrier: JoinHandle<()>,
}

impl Local {
    pub(crate) async fn start() -> Local {
        Local::with(|_| ()).await
    }

    /// Starts it with other options.
    pub(crate) async fn with(change: impl FnOnce(&mut McpOptions)) -> Local {
        let mut options = McpOptions::default();
        change(&mut options);
        Local::serve(builder().start().expect("a bus"), options).await
    }

    /// Starts it on a bus with a store.
    pub(crate) async fn stored(store: impl Store) -> Local {
        let bus = builder().store(store).start().expect("a bus");
        Local::serve(bus, McpOptions::default()).await
    }

    /// Serves a bus.
    pub(crate) async fn serve(bus: Bus, options: McpOptions) -> Local {
        let endpoint = Endpoint::new(bus.clone(), options);
        let app = axum::Router::new().route_service("/mcp", endpoint);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = listener.local_addr().expect("an address");
        let carrier = tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
        Local { bus, server, carrier }
    }

    /// Creates or replaces a text resource.
    pub(crate) async fn put(&self, uri: &str, text: &str) -> Outcome {
        let resource = Resource::text(uri, text).expect("a URI");
        self.bus.upsert(resource).await.expect("it is stored")
    }

    /// One resource, one tool, one prompt.
    pub(crate) async fn fill_all_lists(&self) {
        self.put("demo://a", "1").await;
        self.bus.add_tool(tool("echo")).await.expect("a tool");
        self.bus.add_prompt(prompt("tell")).await.expect("a prompt");
    }

    pub(crate) async fn sessions(&self) -> Vec<SubscriberInfo> {
        self.bus.sessions().await.expect("the bus runs")
    }

    /// Waits until the list of sessions satisfies `holds`.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&[SubscriberInfo]) -> bool) {
        within(what, async {
            while !holds(&self.sessions().await) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

fn builder() -> Builder {
    let mut limits = Limits::default();
    limits.shards = 2;
    Bus::builder().limits(limits).clock(|| NOW)
}

impl Drop for Local {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

impl Local {
    /// Stops the bus; everything pending is delivered first.
    pub(crate) async fn shutdown(&self) {
        let report = within(
            "the shutdown",
            self.bus.shutdown(DEADLINE - Duration::from_secs(1)),
        )
        .await;
        assert_eq!(report.streams_cut, 0);
    }
}

/// A tool that answers its arguments.
pub(crate) fn tool(name: &str) -> Tool {
    Tool::new(name, |arguments: Map<String, Value>| async {
        Ok(ToolOutput::structured(Value::Object(arguments)))
    })
}

/// A prompt of one message.
pub(crate) fn prompt(name: &str) -> Prompt {
    Prompt::new(name, |_: Map<String, Value>| async {
        Ok(vec![PromptMessage::user("Say it.")])
    })
}
