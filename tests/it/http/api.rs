//! The HTTP API as a client sees it, called in process.

mod batch;
mod reading;
mod writing;
mod sessions;
mod routing;
mod openapi;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body as HttpBody;
use axum::http::{HeaderMap, Method, Request as HttpRequest, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidings::http::Access;
use tidings::http::api::{Api, router};
use tidings::{
    Body, Bus, Limits, Owner, Resource, ResourceTemplate, ResourceUri, Session, SessionOptions,
    SubscriberKind, Variables,
};
use tower_service::Service;

/// A client of the API, and the bus behind it.
#[derive(Clone)]
struct Client {
    bus: Bus,
    ready: Arc<AtomicBool>,
    router: Router,
}

/// An answer of the API.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn etag(&self) -> &str {
        self.header("etag").unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Asserts that the answer is a problem of that status, and returns its detail.
    fn problem(&self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(
            problem["type"].as_str().unwrap().starts_with("/problems/"),
            "{problem}"
        );
        assert!(
            problem["instance"].as_str().unwrap().starts_with('/'),
            "{problem}"
        );
        assert!(!problem["title"].as_str().unwrap().is_empty());
        problem["detail"].as_str().unwrap().to_owned()
    }
}

fn client_of(limits: Limits) -> Client {
    let bus = Bus::builder().limits(limits).start().unwrap();
    let ready = Arc::new(AtomicBool::new(false));
    let router = router(bus.clone(), Access::default(), ready.clone());
    Client { bus, ready, router }
}

async fn subscribe(session: &Session) {
    let answers = session
        .subscribe(vec![ResourceUri::new("demo://a").unwrap()])
        .await
        .unwrap();
    assert!(answers.iter().all(Result::is_ok));
}

fn client() -> Client {
    let mut limits = Limits::default();
    limits.shards = 1;
    limits.body_bytes_max = 1000;
    client_of(limits)
}

const A: &str = "/v1/resources/demo%3A%2F%2Fa";
const TEXT: (&str, &str) = ("content-type", "text/plain");

impl Client {
    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<HttpBody>,
    ) -> Answer {
        let mut request = HttpRequest::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, "localhost:8808");
        }
        for (name, value) in headers.iter().filter(|(_, value)| *value != "<none>") {
            request = request.header(*name, value.as_bytes());
        }
        let request = request.body(body.into()).unwrap();
        let response = self.router.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    async fn put(&self, path: &str, body: &'static str) -> Answer {
        self.send("PUT", path, &[TEXT], body).await
    }
}
