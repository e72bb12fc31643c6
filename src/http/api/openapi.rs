//! `GET /v1/openapi.json`: the HTTP API as an OpenAPI 3.1 document.
//!
//! Schemas come from the types that requests are read into and answers are written from, paths and methods
//! from the table by which requests are answered.

mod messages;
mod operation;
mod operations;
mod others;
mod shared;

use std::sync::LazyLock;

use ::http::{HeaderValue, Response, header};
use bytes::Bytes;
use http_body_util::Full;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::ApiResponse;
use super::batch::AnswerLine;
use super::batch::line::Fields;
use super::cluster::ClusterReport;
use super::resource_list::ResourceItems;
use super::sessions::{EndedItem, Explained, SubscriberItem, SubscriberItems};
use super::sinks::SinkItems;
use super::stats::StatsItem;
use super::upstreams::UpstreamItems;
use crate::http::problem::Details;
use crate::http::ui::{LoginBody, ViewerItem};
use crate::http::ws::message::{Ack, ClientMessage};

/// The place of schemas in the document.
const SCHEMAS: &str = "#/components/schemas/";

/// The document, which is the same as long as the process runs.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document().to_string()));

/// Answers with the document.
pub(super) fn answer() -> ApiResponse {
    // Cached by no one: another version of the service may be behind the same address tomorrow.
    let mut response = Response::new(Full::new(DOCUMENT.clone()));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Makes the document.
fn document() -> Value {
    json!({
        "openapi": "3.1.1",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Tidings",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Resources with etags, their subscribers, and their changes as they happen",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "resources", "description": "Publish and read" },
            { "name": "changes", "description": "Changes as they happen" },
            { "name": "operation", "description": "Subscribers, figures and health" },
            { "name": "mcp", "description": "The endpoint of MCP clients" },
            { "name": "page", "description": "The live page, and its login" },
        ],
        // The first one is none: only a service with a section [auth] asks for credentials.
        "security": [{}, { "bearer": [] }, { "certificate": [] }],
        "paths": operations::paths(),
        "components": {
            "schemas": schemas(),
            "parameters": shared::parameters(),
            "headers": shared::headers(),
            "responses": shared::responses(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of a token file or of an authorization server, if the service asks for one",
                },
                "certificate": { "type": "mutualTLS", "description": "A client certificate, if the service takes them" },
            },
        },
    })
}

/// Makes the schemas of all bodies and messages.
fn schemas() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    // The document names the dialect once for all of them.
    settings.meta_schema = None;
    // A field that may be left out of an answer is optional there, and one with a default in a request: the
    // same type may have two schemas.
    let mut written = settings.clone().for_serialize().into_generator();
    let mut read = settings.for_deserialize().into_generator();
    let mut all = Map::new();
    let mut add = |name: &str, schema: schemars::Schema| {
        all.insert(name.to_owned(), schema.to_value());
    };
    add("Problem", written.root_schema_for::<Details<'static>>());
    add(
        "ResourceList",
        written.root_schema_for::<ResourceItems<'static>>(),
    );
    add(
        "SubscriberList",
        written.root_schema_for::<SubscriberItems<'static>>(),
    );
    add(
        "Subscriber",
        written.root_schema_for::<Explained<SubscriberItem<'static>>>(),
    );
    add(
        "EndedSubscriber",
        written.root_schema_for::<Explained<EndedItem<'static>>>(),
    );
    add("SinkList", written.root_schema_for::<SinkItems<'static>>());
    add("Cluster", written.root_schema_for::<ClusterReport>());
    add("UpstreamList", written.root_schema_for::<UpstreamItems>());
    add("Stats", written.root_schema_for::<StatsItem<'static>>());
    add("BatchAnswer", written.root_schema_for::<AnswerLine<'static>>());
    add("SocketAck", written.root_schema_for::<Ack>());
    add("BatchLine", read.root_schema_for::<Fields<'static>>());
    add("SocketRequest", read.root_schema_for::<ClientMessage>());
    add("Viewer", written.root_schema_for::<ViewerItem<'static>>());
    add("Login", read.root_schema_for::<LoginBody>());
    messages::add(&mut written, &mut add);
    for mut generator in [written, read] {
        all.extend(generator.take_definitions(true));
    }
    let mut schemas = Value::Object(all);
    lift_definitions(&mut schemas);
    schemas
}

/// Takes the copies of definitions out of the schemas: they stand beside them.
fn lift_definitions(schemas: &mut Value) {
    let Value::Object(all) = schemas else { return };
    for schema in all.values_mut() {
        if let Value::Object(fields) = schema {
            // A copy in each schema would make the document several times as long.
            fields.remove("$defs");
            fields.remove("components");
            fields.remove("$schema");
        }
    }
}

/// Returns a reference to a schema.
fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{SCHEMAS}{name}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::api::api_path::ApiPath;
    use crate::http::service_route::ServiceRoute;
    use std::collections::BTreeSet;

    #[test]
    fn document_has_every_path_and_method() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let mut expected = BTreeSet::new();
        let own = ApiPath::ALL.map(|path| (path.template(), path.allow()));
        let others = ServiceRoute::ALL.iter();
        for (path, allow) in own
            .into_iter()
            .chain(others.map(|route| (route.template(), route.allow())))
        {
            expected.extend(
                allow
                    .split(',')
                    .map(|method| format!("{} {path}", method.to_lowercase())),
            );
        }
        let mut documented = BTreeSet::new();
        for (path, item) in paths {
            let methods = item.as_object().unwrap().keys();
            documented.extend(methods.map(|method| format!("{method} {path}")));
        }
        assert_eq!(documented, expected);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut names = Vec::new();
        collect(&document, &mut names);
        assert!(names.len() > 100);
        for name in names {
            let found = document.pointer(name.trim_start_matches('#'));
            assert!(found.is_some(), "{name}");
        }
    }

    fn collect(value: &Value, names: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(name)) = fields.get("$ref") {
                    names.push(name.clone());
                }
                fields.values().for_each(|value| collect(value, names));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
            _ => {}
        }
    }
}
