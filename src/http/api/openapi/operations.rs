//! The paths of the document, with their operations.

use serde_json::{Map, Value, json};

use super::operation::Operation;
use super::others;
use super::reference;
use crate::http::api::api_path::ApiPath;
use crate::http::service_route::ServiceRoute;

/// Makes all paths.
pub(super) fn paths() -> Value {
    let mut paths = Map::new();
    for path in ApiPath::ALL {
        paths.insert(path.template().to_owned(), item(path));
    }
    for route in ServiceRoute::ALL {
        paths.insert(route.template().to_owned(), others::item(*route));
    }
    Value::Object(paths)
}

/// Makes the item of a path of the API.
fn item(path: ApiPath<'_>) -> Value {
    match path {
        ApiPath::Resources => with(list_resources(), "post", publish_batch()),
        ApiPath::Resource(_) => resource_item(),
        ApiPath::Touch(_) => {
            let touch = written(
                "touchResource",
                "Announces that the resource changed, with the same content",
            );
            let touch = touch.takes(&["Uri", "IfMatch", "IfNoneMatch"]).answer(
                204,
                "Announced",
                &CHANGED,
                Value::Null,
            );
            with(json!({}), "post", touch.problems(&[404, 502, 504]))
        }
        ApiPath::Subscribers(_) => {
            let list = Operation::new(
                "listSubscribersOfResource",
                "operation",
                "The subscribers of a resource",
            );
            let list = list.takes(&["Uri"]).problems(&[404]);
            readable(list.answer(200, "The slowest first", &[], json_of("SubscriberList")))
        }
        ApiPath::Sessions => {
            let list = Operation::new("listSessions", "operation", "The subscribers, the slowest first")
                .takes(&["OfUri", "Search", "Stalled", "Limit"]);
            readable(list.answer(200, "As many as `limit` allows", &[], json_of("SubscriberList")))
        }
        ApiPath::Session(_) => session_item(),
        ApiPath::Sinks => {
            let list = Operation::new(
                "listAttached",
                "operation",
                "Sinks and other attached subscribers",
            );
            readable(list.answer(200, "All of them", &[], json_of("SinkList")))
        }
        ApiPath::Cluster => {
            let cluster = Operation::new("getCluster", "operation", "The state of this node in its cluster");
            let cluster = cluster.problems(&[404]);
            readable(cluster.answer(200, "404 for a node that is alone", &[], json_of("Cluster")))
        }
        ApiPath::Upstreams => upstreams_item(),
        ApiPath::Stats => {
            let stats = Operation::new("getStats", "operation", "The figures of the last 15 minutes");
            let stats = stats.problems(&[404]);
            readable(stats.answer(200, "A value for each 5 seconds", &[], json_of("Stats")))
        }
        ApiPath::OpenApi => {
            let document = Operation::new("getOpenApi", "operation", "This document");
            let content = json!({ "application/json": { "schema": { "type": "object" } } });
            readable(document.answer(200, "OpenAPI 3.1", &[], content))
        }
        ApiPath::Health => health("getHealth", "200 while the bus runs"),
        ApiPath::Ready => health("getReadiness", "200 while everything is served and kept"),
    }
}

fn upstreams_item() -> Value {
    let list = Operation::new("listUpstreams", "operation", "The servers behind a gateway");
    let list = list.answer(
        200,
        "None where the service is no gateway",
        &[],
        json_of("UpstreamList"),
    );
    readable(list)
}

/// The headers of a change.
const CHANGED: [&str; 3] = ["ETag", "Tidings-Changed", "Tidings-Told"];

/// The content of an answer of this schema.
pub(super) fn json_of(schema: &str) -> Value {
    json!({ "application/json": { "schema": reference(schema) } })
}

/// The item of a path that is read alone.
pub(super) fn readable(get: Operation) -> Value {
    let (get, head) = get.with_head();
    json!({ "get": get, "head": head })
}

/// Adds an operation to the item of a path.
pub(super) fn with(mut item: Value, method: &str, operation: Operation) -> Value {
    item[method] = operation.finish();
    item
}

fn health(id: &str, summary: &str) -> Value {
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    // A probe has no credentials, and calls by an address that is in no list.
    let health = Operation::open(id, "operation", summary)
        .field("security", json!([{}]))
        .answer(200, "It is well; further lines are warnings", &[], text);
    readable(health.problems(&[503]))
}

/// Begins an operation that changes a resource.
fn written(id: &str, summary: &str) -> Operation {
    Operation::new(id, "resources", summary).problems(&[409, 412, 507])
}

fn list_resources() -> Value {
    let list = Operation::new(
        "listResources",
        "resources",
        "The listed resources, a page at a time",
    )
    .takes(&["After", "Limit", "Search", "Sort"]);
    readable(list.answer(
        200,
        "A page; `next` is the `after` of the next one",
        &[],
        json_of("ResourceList"),
    ))
}

fn publish_batch() -> Operation {
    // OpenAPI 3.1 has no schema for a sequence of lines, and allows no further field but such as begin so.
    let lines = |schema: &str| {
        let line = reference(schema);
        json!({ "application/x-ndjson": { "schema": { "type": "string" }, "x-line-schema": line } })
    };
    Operation::new(
        "publishBatch",
        "resources",
        "Many changes, one JSON object a line",
    )
    .body(true, &lines("BatchLine"))
    .answer(
        200,
        "One answer for each line, in order",
        &[],
        lines("BatchAnswer"),
    )
    .problems(&[408, 413, 415, 504])
}

fn resource_item() -> Value {
    let read = Operation::new("readResource", "resources", "The content of a resource")
        .takes(&["Uri", "IfMatch", "IfNoneMatch"])
        .answer(
            200,
            "The content, under its media type",
            &["ETag"],
            json!({ "*/*": { "schema": {} } }),
        )
        .answer(304, "`If-None-Match` names its etag", &["ETag"], Value::Null)
        .problems(&[404, 412, 502, 504]);
    // Any bytes are content, so their schema lets everything through.
    let described = [
        "Uri",
        "IfMatch",
        "IfNoneMatch",
        "Name",
        "Title",
        "Description",
        "Subscribable",
    ];
    let content = json!({ "*/*": { "schema": {} } });
    let refusals = [408, 413, 415, 502, 504];
    let replace = written("putResource", "Creates or replaces a resource")
        .takes(&described)
        .body(false, &content)
        .answer(
            201,
            "Created",
            &["ETag", "Tidings-Changed", "Tidings-Told", "Location"],
            Value::Null,
        )
        .answer(204, "Replaced, or unchanged", &CHANGED, Value::Null)
        .problems(&refusals);
    let create = written("createResource", "Creates a resource")
        .takes(&described)
        .body(false, &content)
        .answer(
            201,
            "Created",
            &["ETag", "Tidings-Changed", "Tidings-Told", "Location"],
            Value::Null,
        )
        .problems(&refusals);
    let remove = written("removeResource", "Removes a resource")
        .takes(&["Uri", "IfMatch", "IfNoneMatch"])
        .answer(204, "Removed", &CHANGED, Value::Null)
        .problems(&[404, 502, 504]);
    let item = with(readable(read), "put", replace);
    with(with(item, "post", create), "delete", remove)
}

fn session_item() -> Value {
    let one = json!({ "anyOf": [reference("Subscriber"), reference("EndedSubscriber")] });
    let content = json!({ "application/json": { "schema": one } });
    let show = Operation::new(
        "getSession",
        "operation",
        "A subscriber, and whether it was notified of `uri`",
    )
    .takes(&["SessionId", "OfUri"])
    .answer(200, "It, or what is known of its end", &[], content)
    .problems(&[404]);
    let end = Operation::new("endSession", "operation", "Ends a subscriber");
    let end = end.takes(&["SessionId"]).answer(204, "Ended", &[], Value::Null);
    with(readable(show), "delete", end.problems(&[404]))
}
