//! Polls of a wrapped server's resources: the server is read again, and the answer is that of rmcp's path.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rmcp::model::{
    Implementation, InitializeResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, ServerCapabilities, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::*;
use crate::mcp::{Wrap, WrappedServers};

/// A server with one resource, whose content is a number.
#[derive(Clone, Default)]
struct Meter {
    value: Arc<AtomicUsize>,
    /// The server has a tool under the name of the poll.
    polls_itself: Arc<AtomicBool>,
}

impl ServerHandler for Meter {
    fn get_info(&self) -> InitializeResult {
        let capabilities = ServerCapabilities::builder().enable_resources().enable_tools();
        InitializeResult::new(capabilities.build()).with_server_info(Implementation::new("meter", "3"))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != "demo://a" {
            return Err(ErrorData::resource_not_found("no such meter", None));
        }
        let value = self.value.load(Ordering::SeqCst).to_string();
        Ok(ReadResourceResult::new(vec![ResourceContents::text(value, request.uri)]).into())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = Vec::new();
        if self.polls_itself.load(Ordering::SeqCst) {
            tools.push(Tool::new(GetResourceEtag::NAME, "its own", Map::new()));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }
}

async fn wrapped(meter: &Meter) -> PollBench<WrappedServers<Meter>> {
    let bus = Bus::builder().clock(|| NOW).start().unwrap();
    let wrap = Wrap::new(bus.clone(), McpOptions::default()).await.unwrap();
    let meter = meter.clone();
    PollBench::with(bus, wrap.endpoint(move || meter.clone())).await
}

#[tokio::test]
async fn plain_poll_of_wrapped_server_has_answer_of_rmcp() {
    let meter = Meter::default();
    let bench = wrapped(&meter).await;
    for revision in Revision::ALL {
        let poll = bench.plain(revision.as_str()).request();
        assert!(bench.is_fast(&poll).await, "{revision:?}");
        bench.assert_same(&poll).await;
        // The server announces nothing.
        let value = meter.value.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = bench.fast(&poll).await;
        let version = format!(r#""version":{}"#, value + 1);
        assert!(answer.contains(&version), "{answer:?}");
        bench.assert_same(&poll).await;
    }
    let named = bench.fast(&bench.plain("2026-07-28").request()).await;
    assert!(named.contains(r#""name":"meter""#), "{named:?}");
}

#[tokio::test]
async fn unknown_resource_is_refused_by_rmcp() {
    let bench = wrapped(&Meter::default()).await;
    for revision in COMPARED {
        let mut parts = bench.plain(revision);
        parts.set("uri", Some(r#""demo://nowhere""#));
        assert!(!bench.is_fast(&parts.request()).await);
        bench.assert_same(&parts.request()).await;
    }
}

#[tokio::test]
async fn tool_of_wrapped_server_is_never_answered_for() {
    let meter = Meter::default();
    meter.polls_itself.store(true, Ordering::SeqCst);
    let bench = wrapped(&meter).await;
    for revision in COMPARED {
        let poll = bench.plain(revision).request();
        assert!(!bench.is_fast(&poll).await, "{revision}");
        bench.assert_same(&poll).await;
    }
}
