//! `tidings watch` of lists, of prefixes, of everything, and of resources that are not there yet.

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};

use super::User;
use crate::mcp::http::within;
use crate::mcp::server::Server;

/// A watch that runs.
struct Watch {
    _child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Watch {
    /// Starts one and waits until it listens.
    async fn start(user: &User, server: &Server, arguments: &[&str]) -> Watch {
        let address = server.address.to_string();
        let mut all = vec!["watch", &address];
        all.extend(arguments);
        let mut child = user.command(&all).spawn().expect("the binary starts");
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut watch = Watch {
            _child: child,
            out,
            err,
        };
        watch.until_status("listening to").await;
        watch
    }

    async fn until_status(&mut self, text: &str) {
        loop {
            let line = within(text, self.err.next_line()).await.unwrap();
            if line.expect("the watch goes on").contains(text) {
                return;
            }
        }
    }

    async fn line(&mut self) -> String {
        let line = within("a line", self.out.next_line()).await.unwrap();
        line.expect("the watch goes on")
    }

    /// Returns the next line about a resource, without its time.
    async fn next(&mut self) -> String {
        loop {
            let line = self.line().await;
            let (_, rest) = line.split_once(' ').unwrap();
            if rest.contains("demo://") {
                return rest.to_owned();
            }
        }
    }
}

const ERAS: [&str; 2] = ["modern", "legacy"];

#[tokio::test]
async fn prefix_follows_new_resources() {
    for era in ERAS {
        let server = Server::start().await;
        server.put("demo://in/a", "one").await;
        server.put("demo://out", "one").await;
        let user = User::new();
        let mut watch = Watch::start(&user, &server, &["--prefix", "demo://in/", "--era", era]).await;
        assert!(watch.next().await.starts_with("demo://in/a v1-"), "{era}");
        server.put("demo://out", "two").await;
        server.put("demo://in/b", "one").await;
        let line = watch.next().await;
        assert!(
            line.starts_with("demo://in/b v1-") && line.ends_with("current"),
            "{era}: {line}"
        );
        server.put("demo://in/b", "two").await;
        assert!(watch.next().await.starts_with("demo://in/b v2-"), "{era}");
    }
}

#[tokio::test]
async fn all_resources_are_watched() {
    let server = Server::start().await;
    server.put("demo://a", "one").await;
    let user = User::new();
    let mut watch = Watch::start(&user, &server, &["--all", "--json"]).await;
    // The service has no other resource than those of its folder, which is empty.
    let line = watch.line().await;
    assert!(
        line.contains("\"uri\":\"demo://a\"") && line.contains("\"current\":true"),
        "{line}"
    );
    server.put("demo://b", "one").await;
    let line = watch.line().await;
    assert!(line.contains("\"uri\":\"demo://b\""), "{line}");
}

#[tokio::test]
async fn lists_are_watched_alone() {
    for era in ERAS {
        let server = Server::start().await;
        let user = User::new();
        let mut watch = Watch::start(&user, &server, &["--lists", "--json", "--era", era]).await;
        server.put("demo://a", "one").await;
        // A session of an older revision is first told of the lists that it does not know.
        while !watch.line().await.contains("\"list\":\"resources\"") {}
    }
}

#[tokio::test]
async fn missing_resource_is_waited_for() {
    for era in ERAS {
        let server = Server::start().await;
        let user = User::new();
        let mut watch = Watch::start(&user, &server, &["demo://later", "--era", era]).await;
        let line = watch.next().await;
        assert!(line.starts_with("demo://later -"), "{era}: {line}");
        watch.until_status("demo://later is missing").await;
        server.put("demo://later", "one").await;
        assert!(watch.next().await.starts_with("demo://later v1-"), "{era}");
        server.put("demo://later", "two").await;
        assert!(watch.next().await.starts_with("demo://later v2-"), "{era}");
    }
}
