//! The answers of the service, held against its own description.

mod others;

use std::collections::BTreeSet;

use super::*;

const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

/// The description, and the operations whose success was checked.
struct Description {
    document: Value,
    succeeded: BTreeSet<String>,
}

impl Description {
    async fn of(client: &Client) -> Description {
        let answer = client.get("/v1/openapi.json").await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
        Description::new(answer.json())
    }

    fn new(document: Value) -> Description {
        Description {
            document,
            succeeded: BTreeSet::new(),
        }
    }

    /// Returns the operations of which no success was checked.
    fn unchecked(&self) -> BTreeSet<String> {
        let mut missing = BTreeSet::new();
        for (path, item) in self.document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                missing.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        &missing - &self.succeeded
    }

    /// Follows a reference.
    fn resolve<'d>(&'d self, value: &'d Value) -> &'d Value {
        match value["$ref"].as_str() {
            Some(name) => self.document.pointer(name.trim_start_matches('#')).unwrap(),
            None => value,
        }
    }

    /// Returns the faults of a value by a schema.
    fn faults(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut schema = schema.clone();
        schema["components"] = self.document["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        validator
            .iter_errors(value)
            .map(|fault| fault.to_string())
            .collect()
    }

    /// Panics unless the answer to a request is described.
    fn check(&mut self, method: &str, template: &str, answer: &Answer) {
        let name = format!("{method} {template} {}", answer.status.as_u16());
        let operation = &self.document["paths"][template][method.to_lowercase()];
        let described = &operation["responses"][answer.status.as_str()];
        assert!(described.is_object(), "{name} is not described");
        let described = self.resolve(described);
        if let Some(headers) = described["headers"].as_object() {
            for (header, rule) in headers {
                let rule = self.resolve(rule);
                let found = answer.header(header);
                assert!(found.is_some() || rule["required"] != true, "{name}: no {header}");
                if let (Some(found), Some("string")) = (found, rule["schema"]["type"].as_str()) {
                    assert_eq!(
                        self.faults(&rule["schema"], &json!(found)),
                        [""; 0],
                        "{name}: {header}"
                    );
                }
            }
        }
        match described["content"].as_object() {
            None => assert!(answer.body.is_empty(), "{name} has a body"),
            Some(content) => self.check_content(&name, content, answer),
        }
        if answer.status.as_u16() < 400 {
            self.succeeded.insert(format!("{method} {template}"));
        }
    }

    fn check_content(&self, name: &str, content: &serde_json::Map<String, Value>, answer: &Answer) {
        let media_type = answer.header("content-type").unwrap_or_default();
        let essence = media_type.split(';').next().unwrap();
        let found = content.get(essence).or(content.get("*/*"));
        let content = found.unwrap_or_else(|| panic!("{name}: {media_type} is not described"));
        if let Some(line) = content.get("x-line-schema") {
            for text in answer
                .body
                .split(|byte| *byte == b'\n')
                .filter(|text| !text.is_empty())
            {
                let value = serde_json::from_slice(text).unwrap();
                assert_eq!(self.faults(line, &value), [""; 0], "{name}: {value}");
            }
        } else if essence.ends_with("/json") || essence.ends_with("+json") {
            let value = answer.json();
            assert_eq!(
                self.faults(&content["schema"], &value),
                [""; 0],
                "{name}: {value}"
            );
        }
    }
}

/// The method, the path as the description has it, the path, the headers and the body of a request.
type SentRequest<'s> = (&'s str, &'s str, &'s str, &'s [(&'s str, &'s str)], &'s str);

#[tokio::test]
async fn answers_are_as_described() {
    let client = client();
    client.ready.store(true, Ordering::Release);
    let mut description = Description::of(&client).await;
    let mut options = SessionOptions::new(SubscriberKind::Session, "reader");
    options.client = Some("a client".into());
    client.put(A, "first").await;
    let session = client.bus.open(options).await.unwrap();
    subscribe(&session).await;
    let one = format!("/v1/sessions/{}", session.id());
    let touch = format!("{A}/touch");
    let subscribers = format!("{A}/subscribers");
    let of_a = format!("{one}?uri=demo%3A%2F%2Fa");
    let guarded = [TEXT, ("if-match", "\"v9-9\"")];
    let batch = "{\"put\":\"demo://c\",\"text\":\"x\"}\n{\"remove\":\"demo://none\"}\nnonsense\n";
    let large = "x".repeat(1001);
    let resource = "/v1/resources/{uri}";
    let b = "/v1/resources/demo%3A%2F%2Fb";
    let requests: Vec<SentRequest<'_>> = vec![
        ("PUT", resource, A, &[TEXT], "second"),
        ("PUT", resource, A, &guarded, "x"),
        ("PUT", resource, A, &[TEXT], &large),
        ("PUT", resource, A, &[("content-type", "text")], "x"),
        ("PUT", resource, "/v1/resources/none", &[TEXT], "x"),
        ("POST", resource, b, &[TEXT], "x"),
        ("POST", resource, A, &[TEXT], "x"),
        ("GET", resource, A, &[], ""),
        ("GET", resource, A, &[("if-none-match", "*")], ""),
        ("GET", resource, A, &guarded[1..], ""),
        ("GET", resource, "/v1/resources/demo%3Anone", &[], ""),
        ("GET", resource, A, &[("host", "evil.example")], ""),
        ("HEAD", resource, A, &[], ""),
        ("HEAD", resource, "/v1/resources/demo%3Anone", &[], ""),
        ("DELETE", resource, b, &[], ""),
        ("POST", "/v1/resources/{uri}/touch", &touch, &[], ""),
        ("POST", "/v1/resources", "/v1/resources", &[LINES], batch),
        ("POST", "/v1/resources", "/v1/resources", &[TEXT], batch),
        ("GET", "/v1/resources", "/v1/resources", &[], ""),
        (
            "GET",
            "/v1/resources",
            "/v1/resources?sort=changed&q=demo&limit=1",
            &[],
            "",
        ),
        ("GET", "/v1/resources", "/v1/resources?limit=0", &[], ""),
        ("HEAD", "/v1/resources", "/v1/resources", &[], ""),
        ("GET", "/v1/resources/{uri}/subscribers", &subscribers, &[], ""),
        ("HEAD", "/v1/resources/{uri}/subscribers", &subscribers, &[], ""),
        ("GET", "/v1/sessions", "/v1/sessions", &[], ""),
        ("HEAD", "/v1/sessions", "/v1/sessions", &[], ""),
        ("GET", "/v1/sessions/{id}", &of_a, &[], ""),
        ("HEAD", "/v1/sessions/{id}", &one, &[], ""),
        ("DELETE", "/v1/sessions/{id}", &one, &[], ""),
        ("GET", "/v1/sessions/{id}", &of_a, &[], ""),
        ("GET", "/v1/sessions/{id}", "/v1/sessions/s999", &[], ""),
        ("GET", "/v1/subscribers", "/v1/subscribers", &[], ""),
        ("HEAD", "/v1/subscribers", "/v1/subscribers", &[], ""),
        ("GET", "/v1/upstreams", "/v1/upstreams", &[], ""),
        ("HEAD", "/v1/upstreams", "/v1/upstreams", &[], ""),
        ("GET", "/v1/stats", "/v1/stats", &[], ""),
        ("GET", "/v1/openapi.json", "/v1/openapi.json", &[], ""),
        ("HEAD", "/v1/openapi.json", "/v1/openapi.json", &[], ""),
        ("GET", "/healthz", "/healthz", &[], ""),
        ("HEAD", "/healthz", "/healthz", &[], ""),
        ("GET", "/readyz", "/readyz", &[], ""),
        ("HEAD", "/readyz", "/readyz", &[], ""),
    ];
    for (method, template, path, headers, body) in requests {
        let answer = client.send(method, path, headers, body.to_owned()).await;
        description.check(method, template, &answer);
    }
    client.ready.store(false, Ordering::Release);
    let starting = client.get("/readyz").await;
    description.check("GET", "/readyz", &starting);
    // Figures need an exporter, the nodes need a cluster, and the others are no paths of this router.
    let mut missing = description.unchecked();
    missing.retain(|name| {
        let path = name.split(' ').nth(1).unwrap();
        path != "/v1/cluster" && !others::PATHS.contains(&path)
    });
    assert_eq!(missing, BTreeSet::new());
}
