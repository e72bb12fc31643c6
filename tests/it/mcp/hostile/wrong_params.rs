//! Requests with parameters of every wrong type, for each method.

use serde_json::{Value, json};

/// A request with one wrong field.
pub(super) struct WrongParams {
    pub(super) method: &'static str,
    /// None for a request without parameters.
    pub(super) params: Option<Value>,
    /// The field that the refusal names.
    pub(super) field: String,
}

impl WrongParams {
    pub(super) fn message(&self, id: u64) -> Value {
        let mut message = json!({ "jsonrpc": "2.0", "id": id, "method": self.method });
        if let Some(params) = &self.params {
            message["params"] = params.clone();
        }
        message
    }
}

/// A method, parameters that are right, and the fields of them that can be wrong.
type Row = (&'static str, Value, &'static [Field]);

/// The place of a field as a JSON pointer, the names of the types that it may have, and whether it may be
/// left out.
type Field = (&'static str, &'static [&'static str], bool);

const CURSOR: &[Field] = &[("/cursor", &["string", "null"], true)];
const URI: &[Field] = &[("/uri", &["string"], false)];
const CALL: &[Field] = &[
    ("/name", &["string"], false),
    ("/arguments", &["object", "null"], true),
    ("/requestState", &["string", "null"], true),
];

/// The methods of both kinds of revisions.
fn common() -> Vec<Row> {
    vec![
        ("resources/list", json!({}), CURSOR),
        ("resources/templates/list", json!({}), CURSOR),
        ("tools/list", json!({}), CURSOR),
        ("prompts/list", json!({}), CURSOR),
        ("resources/read", json!({ "uri": "demo://a" }), URI),
        ("tools/call", json!({ "name": "get_resource_etag" }), CALL),
        ("prompts/get", json!({ "name": "p" }), CALL),
    ]
}

/// Wrong requests that open a session.
pub(super) fn initialize() -> Vec<WrongParams> {
    let client = json!({ "name": "it", "version": "1" });
    let right = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    const FIELDS: &[Field] = &[
        ("/protocolVersion", &["string"], false),
        ("/capabilities", &["object"], false),
        ("/clientInfo", &["object"], false),
        ("/clientInfo/name", &["string"], false),
        ("/clientInfo/version", &["string"], false),
    ];
    wrong(vec![("initialize", right, FIELDS)])
}

/// Wrong requests of a session.
pub(super) fn of_session() -> Vec<WrongParams> {
    let mut rows = common();
    rows.extend([
        ("ping", json!({}), &[] as &[Field]),
        ("resources/subscribe", json!({ "uri": "demo://a" }), URI),
        ("resources/unsubscribe", json!({ "uri": "demo://a" }), URI),
        ("logging/setLevel", json!({}), &[("/level", &[], false)]),
    ]);
    let mut requests = wrong(rows);
    for (method, right, _) in common() {
        for meta in [json!([]), json!(7), json!("text")] {
            let mut params = right.clone();
            params["_meta"] = meta;
            requests.push(WrongParams {
                method,
                params: Some(params),
                field: "params._meta".to_owned(),
            });
        }
    }
    requests
}

/// Wrong requests without a session (2026-07-28), still without the `_meta` that each of them needs.
pub(super) fn without_session() -> Vec<WrongParams> {
    const NOTIFICATIONS: &[Field] = &[
        ("/notifications", &["object"], false),
        ("/notifications/toolsListChanged", &["boolean", "null"], true),
        ("/notifications/promptsListChanged", &["boolean", "null"], true),
        ("/notifications/resourcesListChanged", &["boolean", "null"], true),
        ("/notifications/resourceSubscriptions", &["array", "null"], true),
    ];
    let mut rows = common();
    rows.push((
        "subscriptions/listen",
        json!({ "notifications": {} }),
        NOTIFICATIONS,
    ));
    let mut requests = wrong(rows);
    for uris in [json!([7]), json!(["demo://a", null]), json!([["demo://a"]])] {
        requests.push(WrongParams {
            method: "subscriptions/listen",
            params: Some(json!({ "notifications": { "resourceSubscriptions": uris } })),
            field: "params.notifications.resourceSubscriptions".to_owned(),
        });
    }
    requests
}

/// One request for each field and each type that it may not have, and for each kind of parameters as a whole.
fn wrong(rows: Vec<Row>) -> Vec<WrongParams> {
    let mut requests = Vec::new();
    for (method, right, fields) in rows {
        for whole in [
            json!([]),
            json!(["demo://a"]),
            json!(7),
            json!("text"),
            json!(true),
        ] {
            requests.push(WrongParams {
                method,
                params: Some(whole),
                field: "params".to_owned(),
            });
        }
        for (place, types, may_be_missing) in fields {
            let field = format!("params{}", place.replace('/', "."));
            for (name, value) in values() {
                if !types.contains(&name) {
                    requests.push(WrongParams {
                        method,
                        params: Some(with(&right, place, Some(value))),
                        field: field.clone(),
                    });
                }
            }
            if !may_be_missing {
                requests.push(WrongParams {
                    method,
                    params: Some(with(&right, place, None)),
                    field: field.clone(),
                });
            }
        }
        if let Some((place, _, false)) = fields.first() {
            for params in [None, Some(Value::Null)] {
                requests.push(WrongParams {
                    method,
                    params,
                    field: format!("params{}", place.replace('/', ".")),
                });
            }
        }
    }
    requests
}

/// A value of each type, with its name.
fn values() -> [(&'static str, Value); 7] {
    [
        ("null", json!(null)),
        ("boolean", json!(true)),
        ("number", json!(7)),
        ("fraction", json!(-0.5)),
        ("string", json!("text")),
        ("array", json!([])),
        ("object", json!({})),
    ]
}

/// Returns `params` with another value at a place, or with none.
fn with(params: &Value, place: &str, value: Option<Value>) -> Value {
    let mut params = params.clone();
    let (parent, name) = place.rsplit_once('/').expect("a pointer begins with a slash");
    let parent = params.pointer_mut(parent).expect("the parent is there");
    let members = parent.as_object_mut().expect("the parent is an object");
    match value {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
    params
}
