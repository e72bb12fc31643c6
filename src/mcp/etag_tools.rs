//! The fallback for clients that ignore notifications: tools that every client can call, over the same truth.
//!
//! Owns: `get_resource_etag`, `get_resource_etags`, `read_resource`, `wait_for_resource_change`, and the wrapper that
//! gives any tool a `client_etag`. Never: keeps etags of its own. Publishes its tools to the bus; asks the bus.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::metrics::{self, Limit};
use crate::{
    Body, BoxFuture, Bus, CallContext, CallTool, CallbackError, Closed, Drained, Etag, OpenError,
    PublishError, ResourceUri, SessionOptions, SubscribeError, SubscriberKind, Tool, ToolOutput, WeakBus,
    WithContext,
};

/// The bounds of the etag tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtagToolLimits {
    /// Items of one call (default 100). More are a tool error naming the limit.
    pub items_max: usize,
    /// The longest `wait_for_resource_change` (default and most 25 s, since hosts cut longer calls). A longer
    /// `timeout_ms` is shortened to it.
    pub wait_max: Duration,
}

impl Default for EtagToolLimits {
    fn default() -> EtagToolLimits {
        EtagToolLimits {
            items_max: 100,
            wait_max: Duration::from_secs(25),
        }
    }
}

/// Registers the etag tools at `bus`.
///
/// # Errors
/// [`PublishError`] when the bus has too many tools, or has stopped.
pub async fn install(bus: &Bus, limits: EtagToolLimits) -> Result<(), PublishError> {
    let limits = Arc::new(limits);
    let item = json!({
        "type": "object",
        "properties": { "uri": uri_schema(), "client_etag": client_etag_schema() },
        "required": ["uri"],
    });
    let items = json!({ "type": "array", "items": item, "minItems": 1, "maxItems": limits.items_max });
    let list_of_items = json!({ "type": "object", "properties": { "items": items }, "required": ["items"] });
    let mut wait_input = list_of_items.clone();
    wait_input["properties"]["timeout_ms"] = json!({
        "type": "integer",
        "minimum": 0,
        "description": format!("How long to wait, at most {} ms", limits.wait_max.as_millis()),
    });
    let hints = json!({ "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false });

    let poll = GetResourceEtag { bus: bus.downgrade() };
    let etag = Tool::new(GetResourceEtag::NAME, poll)
        .title("Get a resource's etag")
        .description(
            "Tells whether a resource changed since the client_etag was taken, without sending its body.",
        )
        .input_schema(item.clone());
    let etags = tool("get_resource_etags", bus, &limits, get_resource_etags)
        .title("Get the etags of resources")
        .description("Tells which of several resources changed since their client_etag was taken.")
        .input_schema(list_of_items);
    let read = tool("read_resource", bus, &limits, read_resource)
        .title("Read a resource")
        .description("Reads a resource with its etag; with a client_etag that is current, answers not_modified instead.")
        .input_schema(item);
    let wait = tool("wait_for_resource_change", bus, &limits, wait_for_resource_change)
        .title("Wait for a change")
        .description(
            "Waits until one of the resources differs from its client_etag, or the timeout has passed.",
        )
        .input_schema(wait_input);
    for tool in [etag, etags, read, wait] {
        bus.add_tool(tool.annotations(hints.clone())).await?;
    }
    Ok(())
}

/// Gives `tool` a `client_etag` argument: a caller that holds the current etag of the resource that `uri_of` finds in
/// the arguments is answered `not_modified` and the tool does not run; any other gets the tool's answer with the etag
/// that was current before it ran, as `etag_encoded` in its structured answer.
///
/// ```
/// # async fn run() -> Result<(), tidings::CallbackError> {
/// use serde_json::{Map, Value, json};
/// use tidings::etag_tools::with_client_etag;
/// use tidings::{Bus, CallContext, Resource, Tool, ToolOutput};
/// let bus = Bus::builder().start()?;
/// let etag = bus.register(Resource::text("demo://report", "…")?).await?.etag;
/// let report = Tool::new("report", |_: Map<String, Value>| async { Ok(ToolOutput::text("a long report")) });
/// let report = with_client_etag(&bus, report, |_| Some("demo://report".parse().ok()?));
/// let arguments = json!({ "client_etag": etag.to_string() }).as_object().cloned().unwrap_or_default();
/// let answer = report.call(arguments, CallContext::default()).await?;
/// assert_eq!(answer.structured.unwrap()["not_modified"], true);
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
pub fn with_client_etag(
    bus: &Bus,
    tool: Tool,
    uri_of: impl Fn(&Map<String, Value>) -> Option<ResourceUri> + Send + Sync + 'static,
) -> Tool {
    let item = tool.item();
    let mut schema = item["inputSchema"].clone();
    schema["properties"]["client_etag"] = client_etag_schema();
    let (weak, inner, uri_of) = (bus.downgrade(), Arc::new(tool), Arc::new(uri_of));
    let handler = {
        let inner = inner.clone();
        move |mut arguments: Map<String, Value>, context: CallContext| {
            let (weak, inner, uri_of) = (weak.clone(), inner.clone(), uri_of.clone());
            async move {
                let client_etag = arguments.remove("client_etag").filter(|held| !held.is_null());
                let Some(uri) = uri_of(&arguments) else {
                    return inner.call(arguments, context).await;
                };
                let etag = weak.upgrade()?.etag(&uri).await?;
                let known = client_etag.as_ref().and_then(Value::as_str);
                if !etag.is_stale(known) {
                    return Ok(ToolOutput::structured(not_modified(&uri, etag)));
                }
                let mut output = inner.call(arguments, context).await?;
                if let Value::Object(fields) = output.structured.get_or_insert_with(|| json!({})) {
                    fields.insert("etag_encoded".into(), json!(etag.to_string()));
                }
                Ok(output)
            }
        }
    };
    inner.with_handler(WithContext(handler)).input_schema(schema)
}

/// A tool whose handler is handed the bus.
fn tool<F, R>(name: &str, bus: &Bus, limits: &Arc<EtagToolLimits>, answer: F) -> Tool
where
    F: Fn(Bus, Arc<EtagToolLimits>, Value) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<Value, CallbackError>> + Send + 'static,
{
    // Weak: the bus holds its tools, so a tool that held the bus would keep it running for ever.
    let (weak, limits): (WeakBus, _) = (bus.downgrade(), limits.clone());
    let handler = move |arguments: Map<String, Value>| {
        let (weak, limits) = (weak.clone(), limits.clone());
        async move {
            let bus = weak.upgrade()?;
            Ok(ToolOutput::structured(
                answer(bus, limits, Value::Object(arguments)).await?,
            ))
        }
    };
    Tool::new(name, handler)
}

fn uri_schema() -> Value {
    json!({ "type": "string", "description": "The resource's URI" })
}

fn client_etag_schema() -> Value {
    json!({ "type": ["string", "null"], "description": "The etag the client holds, if any" })
}

#[derive(Deserialize)]
struct Item {
    uri: String,
    #[serde(default)]
    client_etag: Option<String>,
}

#[derive(Deserialize)]
struct Items {
    items: Vec<Item>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

impl Items {
    fn parse(arguments: Value, limits: &EtagToolLimits) -> Result<Items, CallbackError> {
        let items: Items = parse(arguments)?;
        if items.items.is_empty() || items.items.len() > limits.items_max {
            let (len, max) = (items.items.len(), limits.items_max);
            if len > max {
                metrics::limit_reached(Limit::EtagItems);
            }
            return Err(format!("items has {len} entries: give 1 to {max}").into());
        }
        Ok(items)
    }

    fn uris(&self) -> Result<Vec<ResourceUri>, CallbackError> {
        self.items
            .iter()
            .map(|item| ResourceUri::new(&item.uri).map_err(Into::into))
            .collect()
    }
}

fn parse<T: for<'a> Deserialize<'a>>(arguments: Value) -> Result<T, CallbackError> {
    serde_json::from_value(arguments).map_err(|error| format!("invalid arguments: {error}").into())
}

/// What answers the calls of `get_resource_etag`.
#[derive(Debug, Clone)]
pub(crate) struct GetResourceEtag {
    bus: WeakBus,
}

impl GetResourceEtag {
    pub(crate) const NAME: &str = "get_resource_etag";

    /// The answer, where it can be given without asking anybody: not for members of templates, and not for what does
    /// not exist.
    pub(crate) fn at_once<'a>(&self, uri: &'a str, client_etag: Option<&str>) -> Option<Verdict<'a>> {
        let etag = self.bus.upgrade().ok()?.cached_etag(uri).ok()??;
        Some(Verdict::new(uri, client_etag, etag))
    }
}

impl CallTool for GetResourceEtag {
    fn call(
        &self,
        arguments: Map<String, Value>,
        _: CallContext,
    ) -> BoxFuture<Result<ToolOutput, CallbackError>> {
        let poll = self.clone();
        Box::pin(async move {
            let item: Item = parse(Value::Object(arguments))?;
            if let Some(verdict) = poll.at_once(&item.uri, item.client_etag.as_deref()) {
                return Ok(ToolOutput::structured(json!(verdict)));
            }
            let uri = ResourceUri::new(&item.uri)?;
            let etags = known_etags(&poll.bus.upgrade()?, std::slice::from_ref(&uri)).await?;
            Ok(ToolOutput::structured(verdict(&item, etags[0])))
        })
    }
}

/// What a client that polls is told of one resource. The fields stand in the order in which JSON of ours has them.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict<'a> {
    etag_encoded: String,
    stale_for_client: bool,
    uri: &'a str,
    version: u64,
}

impl Verdict<'_> {
    fn new<'a>(uri: &'a str, client_etag: Option<&str>, etag: Etag) -> Verdict<'a> {
        Verdict {
            etag_encoded: etag.to_string(),
            stale_for_client: etag.is_stale(client_etag),
            uri,
            version: etag.version,
        }
    }
}

async fn get_resource_etags(
    bus: Bus,
    limits: Arc<EtagToolLimits>,
    arguments: Value,
) -> Result<Value, CallbackError> {
    let items = Items::parse(arguments, &limits)?;
    let etags = known_etags(&bus, &items.uris()?).await?;
    Ok(verdicts(&items, &etags))
}

async fn read_resource(bus: Bus, _: Arc<EtagToolLimits>, arguments: Value) -> Result<Value, CallbackError> {
    let item: Item = parse(arguments)?;
    let uri = ResourceUri::new(&item.uri)?;
    if item.client_etag.is_some() {
        let etags = known_etags(&bus, std::slice::from_ref(&uri)).await?;
        if !etags[0].is_stale(item.client_etag.as_deref()) {
            return Ok(not_modified(&uri, etags[0]));
        }
    }
    let snapshot = bus.read(&uri).await?;
    let mut answer = json!({
        "uri": uri.as_str(),
        "etag_encoded": snapshot.etag.to_string(),
        "version": snapshot.etag.version,
        "not_modified": false,
        "media_type": snapshot.descriptor.media_type,
    });
    match &snapshot.body {
        Body::Text(text) => answer["text"] = json!(text),
        Body::Blob(bytes) => answer["blob"] = json!(STANDARD.encode(bytes)),
    }
    Ok(answer)
}

async fn wait_for_resource_change(
    bus: Bus,
    limits: Arc<EtagToolLimits>,
    arguments: Value,
) -> Result<Value, CallbackError> {
    let items = Items::parse(arguments, &limits)?;
    let uris = items.uris()?;
    let asked = items.timeout_ms.map(Duration::from_millis);
    let wait = asked.map_or(limits.wait_max, |asked| asked.min(limits.wait_max));
    if asked.is_some_and(|asked| asked > wait) {
        metrics::limit_reached(Limit::Wait);
    }
    let deadline = tokio::time::Instant::now() + wait;

    let mut options = SessionOptions::new(SubscriberKind::Local, "wait_for_resource_change");
    options.trusted = true;
    let session = bus
        .open(options)
        .await
        .map_err(|error: OpenError| error.to_string())?;
    let mut reader = session.reader();
    // Subscribed first and compared afterwards, so that no change falls between.
    let answers = session.subscribe(uris.clone()).await?;
    if let Some(refused) = answers.into_iter().find_map(Result::err) {
        return Err(refused.to_string().into());
    }
    let mut entries = Vec::new();
    loop {
        let etags = known_etags(&bus, &uris).await?;
        let stale = items
            .items
            .iter()
            .zip(&etags)
            .any(|(item, etag)| etag.is_stale(item.client_etag.as_deref()));
        if stale {
            return Ok(with_timed_out(verdicts(&items, &etags), false));
        }
        entries.clear();
        match tokio::time::timeout_at(deadline, reader.drain(&mut entries)).await {
            Err(_) => return Ok(with_timed_out(verdicts(&items, &etags), true)),
            Ok(Drained::Ended(_)) => return Err(Closed.into()),
            Ok(Drained::Entries(_) | Drained::KeepAlive) => {}
        }
    }
}

/// The etags of `uris`, all of which must exist.
async fn known_etags(bus: &Bus, uris: &[ResourceUri]) -> Result<Vec<Etag>, CallbackError> {
    let etags = bus.etags(uris.to_vec()).await?;
    let known = |(uri, etag): (&ResourceUri, Option<Etag>)| {
        etag.ok_or_else(|| SubscribeError::NotFound(uri.clone()).to_string().into())
    };
    uris.iter().zip(etags).map(known).collect()
}

fn verdict(item: &Item, etag: Etag) -> Value {
    json!(Verdict::new(&item.uri, item.client_etag.as_deref(), etag))
}

fn verdicts(items: &Items, etags: &[Etag]) -> Value {
    let verdicts: Vec<Value> = items
        .items
        .iter()
        .zip(etags)
        .map(|(item, etag)| verdict(item, *etag))
        .collect();
    json!({ "items": verdicts })
}

fn with_timed_out(mut answer: Value, timed_out: bool) -> Value {
    answer["timed_out"] = json!(timed_out);
    answer
}

fn not_modified(uri: &ResourceUri, etag: Etag) -> Value {
    json!({
        "uri": uri.as_str(),
        "etag_encoded": etag.to_string(),
        "version": etag.version,
        "not_modified": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;

    async fn bus() -> Bus {
        let bus = Bus::builder().clock(|| 7).start().unwrap();
        install(
            &bus,
            EtagToolLimits {
                items_max: 2,
                ..EtagToolLimits::default()
            },
        )
        .await
        .unwrap();
        bus.register(Resource::text("demo://a", "one").unwrap())
            .await
            .unwrap();
        bus
    }

    async fn call(bus: &Bus, tool: &str, arguments: Value) -> Result<Value, String> {
        let tool = bus.tool(tool).await.unwrap().unwrap();
        let output = tool
            .call(arguments.as_object().unwrap().clone(), CallContext::default())
            .await
            .map_err(|error| error.to_string())?;
        Ok(output.structured.unwrap())
    }

    #[tokio::test]
    async fn an_etag_is_stale_until_the_client_holds_it_and_again_after_a_real_change() {
        let bus = bus().await;
        let ask = |held: Value| {
            call(
                &bus,
                "get_resource_etag",
                json!({ "uri": "demo://a", "client_etag": held }),
            )
        };
        let first = ask(Value::Null).await.unwrap();
        let expected =
            json!({ "uri": "demo://a", "etag_encoded": "v1-7", "version": 1, "stale_for_client": true });
        assert_eq!(first, expected);
        assert_eq!(ask(json!("v1-7")).await.unwrap()["stale_for_client"], false);
        bus.update(Resource::text("demo://a", "one").unwrap())
            .await
            .unwrap();
        assert_eq!(ask(json!("v1-7")).await.unwrap()["stale_for_client"], false);
        bus.update(Resource::text("demo://a", "two").unwrap())
            .await
            .unwrap();
        assert_eq!(ask(json!("v1-7")).await.unwrap()["stale_for_client"], true);
    }

    #[tokio::test]
    async fn an_unknown_uri_and_too_many_items_are_tool_errors_that_name_them() {
        let bus = bus().await;
        let unknown = call(&bus, "get_resource_etag", json!({ "uri": "demo://x" })).await;
        assert_eq!(unknown.unwrap_err(), "Resource not found: demo://x");
        let item = json!({ "uri": "demo://a" });
        let three = call(&bus, "get_resource_etags", json!({ "items": [item, item, item] })).await;
        assert_eq!(three.unwrap_err(), "items has 3 entries: give 1 to 2");
        let wrong = call(&bus, "read_resource", json!({ "url": "demo://a" }))
            .await
            .unwrap_err();
        assert!(wrong.contains("uri"), "{wrong}");
    }

    #[tokio::test]
    async fn reading_with_the_current_etag_sends_no_body() {
        let bus = bus().await;
        let read = |held: Value| {
            call(
                &bus,
                "read_resource",
                json!({ "uri": "demo://a", "client_etag": held }),
            )
        };
        let fresh = read(json!("v1-7")).await.unwrap();
        assert_eq!((&fresh["not_modified"], fresh.get("text")), (&json!(true), None));
        let stale = read(json!("v0-0")).await.unwrap();
        assert_eq!(
            (&stale["text"], &stale["etag_encoded"]),
            (&json!("one"), &json!("v1-7"))
        );
    }

    #[tokio::test]
    async fn waiting_ends_with_the_change_or_with_the_timeout() {
        let bus = bus().await;
        let items = json!([{ "uri": "demo://a", "client_etag": "v1-7" }]);
        let at_once = call(
            &bus,
            "wait_for_resource_change",
            json!({ "items": [{ "uri": "demo://a" }] }),
        );
        assert_eq!(at_once.await.unwrap()["timed_out"], false);
        let none = call(
            &bus,
            "wait_for_resource_change",
            json!({ "items": items, "timeout_ms": 0 }),
        )
        .await
        .unwrap();
        assert_eq!(
            (&none["timed_out"], &none["items"][0]["stale_for_client"]),
            (&json!(true), &json!(false))
        );

        let waiting = call(
            &bus,
            "wait_for_resource_change",
            json!({ "items": items, "timeout_ms": 20_000 }),
        );
        let publishing = async {
            while bus
                .subscribers(&"demo://a".parse().unwrap())
                .await
                .unwrap()
                .is_empty()
            {
                tokio::task::yield_now().await;
            }
            bus.update(Resource::text("demo://a", "two").unwrap())
                .await
                .unwrap();
        };
        let (changed, ()) = tokio::join!(waiting, publishing);
        let changed = changed.unwrap();
        assert_eq!(
            (&changed["timed_out"], &changed["items"][0]["version"]),
            (&json!(false), &json!(2))
        );
    }
}
