//! The fallback for clients that ignore notifications: tools that every client can call, with the bus's own
//! etags.
//!
//! The tools are `get_resource_etag`, `get_resource_etags`, `read_resource` and `wait_for_resource_change`; a
//! wrapper gives any other tool a `client_etag`.

mod reader_rights;
mod verdict;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::callback::{CallTool, WithContext};
use crate::config::McpConfig;
use crate::metrics::{self, Limit};
use crate::{
    Body, BoxFuture, Bus, CallContext, CallbackError, Closed, Drained, Etag, OpenError, PublishError,
    ReadError, ResourceUri, Session, SessionOptions, SubscribeError, SubscriberKind, SubscriptionRequest,
    Tool, ToolOutput, WeakBus,
};

use reader_rights::ReaderRights;
pub(crate) use verdict::EtagVerdict;
use verdict::{ItemError, ItemVerdict};

/// Registers the etag tools at `bus`, bounded by `items_max` and `wait_max` of `limits`.
///
/// # Errors
/// [`PublishError`] when the bus has too many tools, or has stopped.
pub async fn install(bus: &Bus, limits: McpConfig) -> Result<(), PublishError> {
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
        .description(
            "Tells which of several resources changed since their client_etag was taken; one that does not exist has an error of its own.",
        )
        .input_schema(list_of_items);
    let read = tool("read_resource", bus, &limits, read_resource)
        .title("Read a resource")
        .description("Reads a resource with its etag; with a client_etag that is current, answers not_modified instead.")
        .input_schema(item);
    let wait = tool("wait_for_resource_change", bus, &limits, wait_for_resource_change)
        .title("Wait for a change")
        .description(
            "Waits until one of the resources differs from its client_etag, or the timeout has passed. One that does not exist is waited for, unless there is a client_etag of it.",
        )
        .input_schema(wait_input);
    let tools = [etag, etags, read, wait].map(|tool| tool.annotations(hints.clone()));
    // As one change of the list, which subscribers are told of once.
    bus.change_tools(tools.into(), Vec::new()).await?;
    Ok(())
}

/// The names of the tools that [`install`] registers.
#[cfg(feature = "service")]
pub(crate) const NAMES: [&str; 4] = [
    GetResourceEtag::NAME,
    "get_resource_etags",
    "read_resource",
    "wait_for_resource_change",
];

/// Gives `tool` a `client_etag` argument: a caller that holds the current etag of the resource that `uri_of`
/// finds in the arguments is answered `not_modified` and the tool does not run; any other gets the tool's
/// answer with the etag that was current before it ran, as `etag_encoded` in its structured answer.
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
    // Weak: the bus holds its tools, so a tool that held the bus would never let it stop.
    let bus = bus.downgrade();
    let inner = Arc::new(tool);
    let wrapped = inner.clone();
    inner
        .with_handler(WithContext(
            move |mut arguments: Map<String, Value>, context: CallContext| {
                // Taken out, because the tool may refuse arguments that it does not know.
                let client_etag = match arguments.remove("client_etag") {
                    Some(Value::String(etag)) => Some(etag),
                    _ => None,
                };
                let uri = uri_of(&arguments);
                let bus = bus.clone();
                let wrapped = wrapped.clone();
                async move {
                    let Some(uri) = uri else {
                        return wrapped.call(arguments, context).await;
                    };
                    // Asked before the tool runs: the etag must not be newer than the answer that carries it.
                    let etag = latest(&bus).await?.etag(&uri).await?;
                    if !etag.is_stale(client_etag.as_deref()) {
                        return Ok(ToolOutput::structured(not_modified(&uri, etag)));
                    }
                    let mut output = wrapped.call(arguments, context).await?;
                    if let Value::Object(fields) = output.structured.get_or_insert_with(|| json!({})) {
                        fields.insert("etag_encoded".into(), json!(etag.to_string()));
                    }
                    Ok(output)
                }
            },
        ))
        .input_schema(schema)
}

/// Returns the bus, once it has the state from which reads are to be answered.
async fn latest(bus: &WeakBus) -> Result<Bus, CallbackError> {
    let bus = bus.upgrade()?;
    bus.until_latest().await?;
    Ok(bus)
}

/// A call of one of the tools.
struct Asked {
    limits: Arc<McpConfig>,
    arguments: Value,
    /// The call, with the rights of its caller.
    context: CallContext,
}

/// Makes a tool whose handler receives the bus.
fn tool<F, R>(name: &str, bus: &Bus, limits: &Arc<McpConfig>, answer: F) -> Tool
where
    F: Fn(Bus, Asked) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<Value, CallbackError>> + Send + 'static,
{
    let bus = bus.downgrade();
    let limits = limits.clone();
    Tool::with_context(
        name,
        move |arguments: Map<String, Value>, context: CallContext| {
            let bus = bus.clone();
            let asked = Asked {
                limits: limits.clone(),
                arguments: Value::Object(arguments),
                context,
            };
            async move {
                let answer = answer(latest(&bus).await?, asked).await?;
                Ok(ToolOutput::structured(answer))
            }
        },
    )
}

fn uri_schema() -> Value {
    json!({ "type": "string", "description": "The resource's URI" })
}

fn client_etag_schema() -> Value {
    json!({ "type": ["string", "null"], "description": "The etag the client holds, if any" })
}

/// A resource with the etag that the client holds.
#[derive(Deserialize)]
struct HeldResource {
    uri: String,
    #[serde(default)]
    client_etag: Option<String>,
}

#[derive(Deserialize)]
struct HeldResources {
    items: Vec<HeldResource>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

impl HeldResources {
    fn parse(arguments: Value, limits: &McpConfig) -> Result<HeldResources, CallbackError> {
        let held: HeldResources = parse(arguments)?;
        let len = held.items.len();
        let max = limits.items_max;
        if len > max {
            metrics::limit_reached(Limit::EtagItems);
        }
        if len == 0 || len > max {
            return Err(format!("items has {len} entries: give 1 to {max}").into());
        }
        Ok(held)
    }

    /// Subscribes to every item that may be there or come. One that the caller may not see is as unknown as
    /// one that does not exist.
    async fn subscribe(&self, session: &Session) -> Result<(), CallbackError> {
        let mut requests = Vec::with_capacity(self.items.len());
        for item in &self.items {
            if let Ok(uri) = ResourceUri::new(&item.uri) {
                let known = Some(item.client_etag.clone());
                requests.push(SubscriptionRequest { uri, known });
            }
        }
        for answer in session.subscribe_from(requests).await? {
            match answer {
                // Its verdict says so.
                Ok(_) | Err(SubscribeError::NotFound(_)) => {}
                Err(refused) => return Err(refused.to_string().into()),
            }
        }
        Ok(())
    }

    /// Returns the verdict of each item.
    async fn verdicts(
        &self,
        bus: &Bus,
        context: &CallContext,
    ) -> Result<Vec<ItemVerdict<'_>>, CallbackError> {
        let mut parsed = Vec::with_capacity(self.items.len());
        let mut valid = Vec::with_capacity(self.items.len());
        for item in &self.items {
            let uri = ResourceUri::new(&item.uri);
            valid.extend(uri.clone().ok());
            parsed.push(uri);
        }
        let mut etags = bus.etags(valid).await?.into_iter();
        let mut verdicts = Vec::with_capacity(self.items.len());
        for (index, item) in self.items.iter().enumerate() {
            let held = item.client_etag.as_deref();
            let error = match &parsed[index] {
                Ok(uri) => match etags.next().flatten() {
                    Some(etag) if context.may_read(uri) => {
                        let verdict = EtagVerdict::new(&item.uri, held, etag);
                        verdicts.push(ItemVerdict::Found(verdict));
                        continue;
                    }
                    _ => SubscribeError::NotFound(uri.clone()).to_string(),
                },
                Err(invalid) => invalid.to_string(),
            };
            verdicts.push(ItemVerdict::Failed(ItemError {
                error,
                // A client without an etag has nothing that could be out of date.
                stale_for_client: held.is_some(),
                uri: &item.uri,
                version: 0,
            }));
        }
        Ok(verdicts)
    }
}

fn parse<T: for<'a> Deserialize<'a>>(arguments: Value) -> Result<T, CallbackError> {
    serde_json::from_value(arguments).map_err(|error| format!("invalid arguments: {error}").into())
}

/// The handler of `get_resource_etag`.
#[derive(Debug, Clone)]
pub(crate) struct GetResourceEtag {
    bus: WeakBus,
}

impl GetResourceEtag {
    pub(crate) const NAME: &str = "get_resource_etag";

    /// Returns the answer if it needs no actor. Members of templates and resources that do not exist need
    /// one.
    pub(crate) fn at_once<'a>(&self, uri: &'a str, client_etag: Option<&str>) -> Option<EtagVerdict<'a>> {
        let etag = self.bus.upgrade().ok()?.cached_etag(uri).ok()??;
        Some(EtagVerdict::new(uri, client_etag, etag))
    }
}

impl CallTool for GetResourceEtag {
    fn call(
        &self,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> BoxFuture<Result<ToolOutput, CallbackError>> {
        let poll = self.clone();
        Box::pin(async move {
            let item: HeldResource = parse(Value::Object(arguments))?;
            let uri = ResourceUri::new(&item.uri)?;
            latest(&poll.bus).await?;
            if context.may_read(&uri)
                && let Some(verdict) = poll.at_once(&item.uri, item.client_etag.as_deref())
            {
                return Ok(ToolOutput::structured(json!(verdict)));
            }
            let etag = etag_of(&poll.bus.upgrade()?, uri, &context).await?;
            let verdict = EtagVerdict::new(&item.uri, item.client_etag.as_deref(), etag);
            Ok(ToolOutput::structured(json!(verdict)))
        })
    }
}

async fn get_resource_etags(bus: Bus, asked: Asked) -> Result<Value, CallbackError> {
    let held = HeldResources::parse(asked.arguments, &asked.limits)?;
    Ok(json!({ "items": held.verdicts(&bus, &asked.context).await? }))
}

async fn read_resource(bus: Bus, asked: Asked) -> Result<Value, CallbackError> {
    let item: HeldResource = parse(asked.arguments)?;
    let uri = ResourceUri::new(&item.uri)?;
    // A client without an etag gets the body in any case, so it is spared the look-up.
    if item.client_etag.is_some() {
        let etag = etag_of(&bus, uri.clone(), &asked.context).await?;
        if !etag.is_stale(item.client_etag.as_deref()) {
            return Ok(not_modified(&uri, etag));
        }
    }
    if !asked.context.may_read(&uri) {
        // After the look-up of something that is not there, as for any unknown URI.
        etag_of(&bus, uri.clone(), &asked.context).await?;
        return Err(ReadError::NotFound(uri).into());
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

async fn wait_for_resource_change(bus: Bus, asked: Asked) -> Result<Value, CallbackError> {
    let held = HeldResources::parse(asked.arguments, &asked.limits)?;
    let deadline = tokio::time::Instant::now() + wait_time(&held, &asked.limits);

    let mut options = SessionOptions::new(SubscriberKind::Local, "wait_for_resource_change");
    // A version may be polled without the right to subscribe, so it may be waited for too.
    options.trusted = true;
    if let Some(viewer) = asked.context.viewer() {
        options.viewer = Some(Arc::new(ReaderRights(viewer.clone())));
    }
    let opened = bus.open(options).await;
    let session = opened.map_err(|error: OpenError| error.to_string())?;
    let mut reader = session.reader();
    // Subscribed first and compared afterwards, so that no change falls between.
    held.subscribe(&session).await?;
    let end_of_rights = until_expired(&asked.context);
    tokio::pin!(end_of_rights);
    let mut entries = Vec::new();
    loop {
        let verdicts = held.verdicts(&bus, &asked.context).await?;
        if verdicts.iter().any(ItemVerdict::is_stale) {
            return Ok(json!({ "items": verdicts, "timed_out": false }));
        }
        entries.clear();
        let drained = tokio::select! {
            drained = tokio::time::timeout_at(deadline, reader.drain(&mut entries)) => drained,
            () = &mut end_of_rights => return Err(Closed.into()),
        };
        match drained {
            Err(_) => return Ok(json!({ "items": verdicts, "timed_out": true })),
            Ok(Drained::Ended(_)) => return Err(Closed.into()),
            Ok(Drained::Entries(_) | Drained::KeepAlive) => {}
        }
    }
}

/// Waits until the credential of the caller has ended by the clock, which changes no rule and so wakes no
/// reader.
async fn until_expired(context: &CallContext) {
    match context.viewer().and_then(|viewer| viewer.expires()) {
        // An expiry in the past is due at once.
        Some(at) => tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await,
        None => std::future::pending().await,
    }
}

/// Returns the time that a call may wait: the time it asked for, up to the limit.
fn wait_time(held: &HeldResources, limits: &McpConfig) -> Duration {
    let Some(asked) = held.timeout_ms.map(Duration::from_millis) else {
        return limits.wait_max;
    };
    if asked > limits.wait_max {
        metrics::limit_reached(Limit::Wait);
    }
    asked.min(limits.wait_max)
}

/// Returns the etag of a resource, which must exist.
async fn etag_of(bus: &Bus, uri: ResourceUri, context: &CallContext) -> Result<Etag, CallbackError> {
    match bus.etags(vec![uri.clone()]).await?.pop().flatten() {
        Some(etag) if context.may_read(&uri) => Ok(etag),
        _ => Err(SubscribeError::NotFound(uri).to_string().into()),
    }
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
            McpConfig {
                items_max: 2,
                ..McpConfig::default()
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

    /// Calls a tool for `demo://a` with the etag that a client holds.
    async fn call_with_etag(bus: &Bus, tool: &str, held: Value) -> Value {
        let arguments = json!({ "uri": "demo://a", "client_etag": held });
        call(bus, tool, arguments).await.unwrap()
    }

    #[tokio::test]
    async fn etag_is_stale_until_held_and_after_real_change() {
        let bus = bus().await;
        let first = call_with_etag(&bus, "get_resource_etag", Value::Null).await;
        let expected =
            json!({ "uri": "demo://a", "etag_encoded": "v1-7", "version": 1, "stale_for_client": true });
        assert_eq!(first, expected);
        let current = call_with_etag(&bus, "get_resource_etag", json!("v1-7")).await;
        assert_eq!(current["stale_for_client"], false);
        // The same content again must not make the etag stale.
        for (content, stale) in [("one", false), ("two", true)] {
            bus.update(Resource::text("demo://a", content).unwrap())
                .await
                .unwrap();
            let answer = call_with_etag(&bus, "get_resource_etag", json!("v1-7")).await;
            assert_eq!(answer["stale_for_client"], stale);
        }
    }

    #[tokio::test]
    async fn unknown_uri_and_too_many_items_are_named() {
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

    /// The item of a resource that does not exist.
    fn missing(stale: bool) -> Value {
        let error = "Resource not found: demo://x";
        json!({ "uri": "demo://x", "error": error, "version": 0, "stale_for_client": stale })
    }

    #[tokio::test]
    async fn missing_resource_is_an_item_of_its_own() {
        let bus = bus().await;
        let items = json!([{ "uri": "demo://a", "client_etag": "v1-7" }, { "uri": "demo://x" }]);
        let found =
            json!({ "uri": "demo://a", "etag_encoded": "v1-7", "version": 1, "stale_for_client": false });
        let answer = call(&bus, "get_resource_etags", json!({ "items": items })).await;
        assert_eq!(answer.unwrap(), json!({ "items": [found, missing(false)] }));
        let odd = json!({ "items": [{ "uri": "no uri", "client_etag": "v1-7" }] });
        let answer = call(&bus, "get_resource_etags", odd).await.unwrap();
        assert!(answer["items"][0]["error"].as_str().unwrap().contains("no uri"));
        // It does not end a wait, unless the client holds an etag of it.
        let arguments = json!({ "items": items, "timeout_ms": 0 });
        let waited = call(&bus, "wait_for_resource_change", arguments).await;
        assert_eq!(
            waited.unwrap(),
            json!({ "items": [found, missing(false)], "timed_out": true })
        );
        let held = json!({ "items": [{ "uri": "demo://x", "client_etag": "v3-7" }], "timeout_ms": 20_000 });
        let waited = call(&bus, "wait_for_resource_change", held).await;
        assert_eq!(
            waited.unwrap(),
            json!({ "items": [missing(true)], "timed_out": false })
        );
    }

    #[tokio::test]
    async fn wait_ends_when_a_missing_resource_appears() {
        let bus = bus().await;
        let items = json!([{ "uri": "demo://a", "client_etag": "v1-7" }, { "uri": "demo://x" }]);
        let arguments = json!({ "items": items, "timeout_ms": 20_000 });
        let waiting = call(&bus, "wait_for_resource_change", arguments);
        let publishing = async {
            let uri: ResourceUri = "demo://x".parse().unwrap();
            while bus.subscribers(&uri).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            // Polls may see resources that are closed to subscriptions.
            let closed = Resource::text(&uri, "one").unwrap().subscribable(false);
            bus.register(closed).await.unwrap();
        };
        let (changed, ()) = tokio::join!(waiting, publishing);
        let changed = changed.unwrap();
        assert_eq!(changed["timed_out"], false);
        assert_eq!(changed["items"][1]["etag_encoded"], "v1-7");
    }

    #[tokio::test]
    async fn read_with_current_etag_sends_no_body() {
        let bus = bus().await;
        let fresh = call_with_etag(&bus, "read_resource", json!("v1-7")).await;
        assert_eq!((&fresh["not_modified"], fresh.get("text")), (&json!(true), None));
        let stale = call_with_etag(&bus, "read_resource", json!("v0-0")).await;
        assert_eq!(
            (&stale["text"], &stale["etag_encoded"]),
            (&json!("one"), &json!("v1-7"))
        );
    }

    #[tokio::test]
    async fn wait_ends_with_change_or_timeout() {
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
