//! The commands of daily life, each against a running service.

use serde_json::Value;

use super::{User, slow_session};
use crate::mcp::http::Request;
use crate::mcp::server::Server;

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[tokio::test]
async fn resource_is_put_listed_read_touched_removed() {
    let server = Server::start().await;
    let user = User::new();
    let url = server.address.port().to_string();
    let url = url.as_str();
    let put = ["put", "demo://a b", "--title", "The a", "-u", url];
    let put = put.map(|word| {
        if word == "demo://a b" {
            "demo://a%20b"
        } else {
            word
        }
    });
    let line = user.run_with(&put, "one").await.good();
    assert!(
        line.starts_with("demo://a%20b v1-") && line.ends_with(" created, 0 told\n"),
        "{line}"
    );
    user.run_with(&["put", "demo://c", "--url", url], "three")
        .await
        .good();

    let table = user.run(&["ls", "demo://", "--url", url]).await.good();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(
        lines[0].starts_with("URI ") && lines[0].ends_with("TITLE"),
        "{table}"
    );
    assert!(
        lines[1].starts_with("demo://a%20b  v1-") && lines[1].ends_with("The a"),
        "{table}"
    );
    let listed = user.run(&["ls", "demo://c", "--json", "--url", url]).await.good();
    assert_eq!(json(&listed)["uri"], "demo://c");
    let first = user.run(&["ls", "-n", "1", "-j", "--url", url]).await.good();
    assert_eq!(first.lines().count(), 1, "{first}");

    let got = user.run(&["get", "demo://a%20b", "-i", "--url", url]).await;
    assert_eq!((got.code, got.out.as_str()), (0, "one"));
    let etag = got.err.split(' ').nth(1).unwrap().to_owned();
    assert!(etag.starts_with("v1-"), "{}", got.err);
    let unchanged = ["get", "demo://a%20b", "--if-none-match", &etag, "--url", url];
    let unchanged = user.run(&unchanged).await;
    assert_eq!((unchanged.code, unchanged.out.as_str()), (0, ""));
    let whole = user
        .run(&["get", "demo://a%20b", "--json", "--url", url])
        .await
        .good();
    assert_eq!(
        (json(&whole)["text"].clone(), json(&whole)["etag"].clone()),
        ("one".into(), etag.into())
    );
    let file = user.home.path().join("body");
    user.run(&["get", "demo://c", "-o", file.to_str().unwrap(), "--url", url])
        .await
        .good();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "three");

    let touched = user.run(&["touch", "demo://c", "--url", url]).await.good();
    assert!(
        touched.starts_with("demo://c v2-") && touched.ends_with(" touched, 0 told\n"),
        "{touched}"
    );
    let error = user
        .run(&["rm", "demo://c", "--if-match", "v1-1", "--url", url])
        .await
        .failed(1);
    assert!(error.contains("demo://c is at"), "{error}");
    // The others are removed although one is not there.
    let removed = user.run(&["rm", "demo://gone", "demo://c", "--url", url]).await;
    assert!(removed.out.starts_with("demo://c v3-"), "{removed:?}");
    assert!(removed.failed(1).contains("Resource not found: demo://gone"));
    let error = user.run(&["get", "demo://c", "--url", url]).await.failed(1);
    assert!(error.contains("Resource not found: demo://c"), "{error}");
}

#[tokio::test]
async fn every_page_of_a_list_is_printed() {
    let server = Server::start().await;
    let user = User::new();
    let url = format!("http://{}/mcp", server.address);
    let mut batch = String::new();
    for number in 0..2_100 {
        batch.push_str(&format!("{{\"put\": \"demo://{number:04}\", \"text\": \"x\"}}\n"));
    }
    user.run_with(&["put", "--batch", "--url", &url], &batch)
        .await
        .good();
    let listed = user.run(&["ls", "demo://", "--url", &url]).await.good();
    assert_eq!(listed.lines().count(), 2_101);
    assert!(listed.ends_with("demo://2099  text/plain  demo://2099\n") || listed.contains("demo://2099"));
    let some = user
        .run(&["ls", "demo://", "-n", "1500", "--url", &url])
        .await
        .good();
    assert_eq!(some.lines().count(), 1_501);
}

/// The requests to the HTTP API that the service has answered well.
async fn requests(server: &Server) -> u64 {
    let reply = Request::new("GET", "/metrics").send(server.address).await;
    let text = reply.text();
    let line = text
        .lines()
        .find(|line| line.starts_with("tidings_http_requests_total{route=\"api\",status=\"2xx\"}"));
    line.unwrap_or_else(|| panic!("{text}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn list_of_a_prefix_is_not_read_whole() {
    let server = Server::start().await;
    let user = User::new();
    let url = format!("http://{}/mcp", server.address);
    let mut batch = String::new();
    for number in 0..2_100 {
        batch.push_str(&format!("{{\"put\": \"demo://{number:04}\", \"text\": \"x\"}}\n"));
    }
    for uri in ["demo://20", "other://1", "other://B", "other://b"] {
        batch.push_str(&format!("{{\"put\": \"{uri}\", \"text\": \"demo://9\"}}\n"));
    }
    user.run_with(&["put", "--batch", "--url", &url], &batch)
        .await
        .good();
    for (prefix, limit, lines, pages) in [
        ("demo://20", "5000", 101, 1),
        ("demo://2099", "5000", 1, 1),
        ("other://", "5000", 3, 1),
        ("other://b", "5000", 1, 1),
        ("demo://9", "5000", 0, 1),
        ("x://", "5000", 0, 1),
        ("demo://", "3", 3, 1),
        ("demo://", "5000", 2_101, 3),
    ] {
        let before = requests(&server).await;
        let command = ["ls", prefix, "-n", limit, "--json", "--url", &url];
        let listed = user.run(&command).await.good();
        let after = requests(&server).await;
        assert_eq!(
            (listed.lines().count(), after - before),
            (lines, pages),
            "{prefix}: {listed}"
        );
    }
}

#[tokio::test]
async fn batch_fits_a_service_that_takes_few_lines() {
    let server = Server::with("[http]\nbatch_max = 50\n").await;
    let user = User::new();
    let url = server.address.to_string();
    let line = |number: u32| format!("{{\"put\":\"demo://{number:03}\",\"text\":\"x\"}}\n");
    let batch: String = (0..121).map(line).collect();
    let answers = user
        .run_with(&["put", "--batch", "--url", &url], &batch)
        .await
        .good();
    let uris: Vec<_> = answers.lines().map(|line| json(line)["uri"].clone()).collect();
    let expected: Vec<_> = (0..121).map(|number| format!("demo://{number:03}")).collect();
    assert_eq!(uris, expected);
}

#[tokio::test]
async fn slow_session_is_listed_explained_and_ended() {
    let server = Server::start().await;
    let user = User::new();
    let url = server.address.to_string();
    slow_session(&server).await;

    let listed = user.run(&["sessions", "--json", "--url", &url]).await.good();
    let session = json(listed.lines().next().unwrap());
    assert_eq!(session["pending"]["uris"], serde_json::json!(["demo://a"]));
    let id = session["id"].as_str().unwrap().to_owned();
    let table = user
        .run(&["sessions", "--uri", "demo://a", "--url", &url])
        .await
        .good();
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with(&id) && row.contains(" away "), "{table}");
    let of_resource = user.run(&["subscribers", "demo://a", "--url", &url]).await.good();
    assert!(of_resource.contains(&format!("\n{id} ")), "{of_resource}");

    let why = user.run(&["why", &id, "demo://a", "--url", &url]).await.good();
    assert!(
        why.contains("version 2 is pending") && why.contains("it never opened a stream"),
        "{why}"
    );
    let why = user
        .run(&["why", &id, "demo://a", "--json", "--url", &url])
        .await
        .good();
    assert_eq!(json(&why)["explanation"]["verdict"], "pending");
    let error = user
        .run(&["why", "s999", "demo://a", "--url", &url])
        .await
        .failed(1);
    assert!(error.contains("there is no session s999"), "{error}");

    let ended = user.run(&["sessions", "--end", &id, "--url", &url]).await.good();
    assert_eq!(ended, format!("{id} ended\n"));
    server
        .until("the end of the session", |sessions| {
            !sessions.iter().any(|session| session["id"] == id.as_str())
        })
        .await;
}

#[tokio::test]
async fn sinks_are_listed_with_their_health() {
    let server = Server::with("[[debug_log]]\nname = 'all'\n").await;
    let user = User::new();
    let url = server.address.to_string();
    let table = user.run(&["subscribers", "--url", &url]).await.good();
    assert!(table.contains("\ndebug_log/all  "), "{table}");
    let lines = user.run(&["subscribers", "--json", "--url", &url]).await.good();
    assert_eq!(json(lines.lines().next().unwrap())["health"], "running");
}
