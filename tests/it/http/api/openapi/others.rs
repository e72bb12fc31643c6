//! The routes besides those of the API, on the real service with all of them.

use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::http::RawConnection;
use crate::mcp::client::{LEGACY, initialize};
use crate::mcp::http::{Reply, Request};
use crate::mcp::server::{Server, binary};

/// The paths whose answers are checked here, since they need the whole service.
pub(super) const PATHS: [&str; 14] = [
    "/v1/stats",
    "/v1/events",
    "/v1/ws",
    "/v1/store/backup",
    "/metrics",
    "/mcp",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/",
    "/ui",
    "/ui/",
    "/ui/{file}",
    "/ui/login",
    "/ui/logout",
];

/// A service that serves every route, and the folder of its store and token.
struct Whole {
    server: Server,
    token: String,
    _folder: TempDir,
}

impl Whole {
    async fn start() -> Whole {
        let folder = TempDir::new().unwrap();
        let made = Command::new(binary())
            .args(["token", "new", "ops", "--file"])
            .arg(folder.path().join("token"))
            .output()
            .unwrap();
        let token = String::from_utf8(made.stdout).unwrap().trim_end().to_owned();
        let place = folder.path().display();
        let config = format!(
            "[store]\ndir = '{place}/store'\n\
             [auth]\nanonymous = 'none'\nresource = 'https://bus.example/mcp'\n\
             [[auth.issuer]]\nurl = 'http://127.0.0.1:9'\nintrospect = 'client'\n\
             [[auth.token]]\nname = 'ops'\nfile = '{place}/token'\nroles = ['ops']\n\
             [[auth.rule]]\nroles = ['ops']\n\
             may = ['list', 'read', 'subscribe', 'publish', 'call', 'admin', 'metrics']\n\
             match = ['*', 'tool:*', 'prompt:*']\n"
        );
        let client = "client_id = the-service\nclient_secret = s3cr3t\n";
        let server = Server::with_files(&config, &[("client", client)]).await;
        Whole {
            server,
            token,
            _folder: folder,
        }
    }

    /// Adds the token, which has every right.
    fn with_token(&self, request: Request) -> Request {
        request.header("authorization", format!("Bearer {}", self.token))
    }

    async fn send(&self, request: Request) -> Reply {
        self.with_token(request).send(self.server.address).await
    }

    async fn description(&self) -> Description {
        let reply = self.send(Request::new("GET", "/v1/openapi.json")).await;
        Description::new(reply.json())
    }

    /// The head of an answer whose body has no end.
    async fn head_of(&self, request: Request) -> Reply {
        let incoming = self.with_token(request).open(self.server.address).await;
        Reply {
            status: incoming.status,
            headers: incoming.headers,
            body: Vec::new(),
        }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        let mut headers = HeaderMap::new();
        for (name, value) in &reply.headers {
            let name: header::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        Answer {
            status: StatusCode::from_u16(reply.status).unwrap(),
            headers,
            body: reply.body.into(),
        }
    }
}

/// A path of that template.
fn path_of(template: &str) -> String {
    let path = template.replace("{uri}", "demo%3A%2F%2Fa");
    path.replace("{id}", "s1").replace("{file}", "app.js")
}

#[tokio::test]
async fn every_described_route_is_served() {
    let whole = Whole::start().await;
    let description = whole.description().await;
    let paths = description.document["paths"].as_object().unwrap();
    assert!(paths.len() > PATHS.len(), "{paths:?}");
    for (template, item) in paths {
        // No path has this method, and the refusal names those that it has.
        let reply = whole.send(Request::new("PATCH", path_of(template))).await;
        assert_eq!(reply.status, 405, "{template}: {}", reply.text());
        let allow = reply.header("allow").unwrap().to_ascii_lowercase();
        let allowed: BTreeSet<&str> = allow.split(',').map(str::trim).collect();
        let described: BTreeSet<&str> = item.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(allowed, described, "{template}");
    }
    for path in ["/v1/none", "/none", "/mcp/none", "/ui/none", "/metrics/none"] {
        let reply = whole.send(Request::new("GET", path)).await;
        assert_eq!(reply.status, 404, "{path}");
    }
}

#[tokio::test]
async fn answers_beside_the_api_are_as_described() {
    let whole = Whole::start().await;
    let mut description = whole.description().await;
    let login = |body: &str| {
        let request = Request::new("POST", "/ui/login").header("sec-fetch-site", "same-origin");
        request.header("content-type", "application/json").body(body)
    };
    let preflight = Request::new("OPTIONS", "/v1/events")
        .header("origin", format!("http://{}", whole.server.address))
        .header("access-control-request-method", "GET");
    let mut requests = vec![
        ("/v1/events", "OPTIONS", preflight),
        ("/v1/events", "GET", Request::new("GET", "/v1/events?kind=none")),
        ("/v1/ws", "GET", Request::new("GET", "/v1/ws")),
        ("/ui/", "GET", Request::new("GET", "/ui/")),
        ("/ui/login", "POST", login("{}")),
        ("/ui/login", "POST", login("{\"token\":\"wrong\"}")),
        (
            "/ui/login",
            "POST",
            login(&format!("{{\"token\":\"{}\"}}", whole.token)),
        ),
        ("/ui/logout", "POST", Request::new("POST", "/ui/logout")),
        ("/mcp", "POST", Request::post("nonsense")),
        (
            "/mcp",
            "POST",
            Request::post("{}").header("content-type", "text/plain"),
        ),
        ("/mcp", "POST", Request::post("{}").header("accept", "text/plain")),
        ("/mcp", "GET", Request::stream()),
        ("/mcp", "GET", Request::stream().header("mcp-session-id", "none")),
        (
            "/mcp",
            "GET",
            Request::stream().header("mcp-protocol-version", "2026-07-28"),
        ),
        ("/mcp", "DELETE", Request::new("DELETE", "/mcp")),
    ];
    for template in PATHS
        .into_iter()
        .filter(|path| !matches!(*path, "/mcp" | "/ui/logout"))
    {
        for method in ["GET", "HEAD"] {
            let is_endless = matches!(template, "/v1/ws") || (template, method) == ("/v1/events", "GET");
            if !is_endless {
                let request = Request::new(method, path_of(template)).header("accept-encoding", "gzip");
                requests.push((template, method, request));
            }
        }
    }
    for (template, method, request) in requests {
        let answer = whole.send(request).await.into();
        description.check(method, template, &answer);
    }
    check_streams(&mut description, &whole).await;
    let mut missing = description.unchecked();
    missing.retain(|name| PATHS.contains(&name.split(' ').nth(1).unwrap()));
    // A socket is no answer to HEAD, which is refused as a GET without an upgrade is.
    assert_eq!(missing, BTreeSet::from(["HEAD /v1/ws".to_owned()]));
}

/// Checks the answers that go on until the client leaves, and the life of a session.
async fn check_streams(description: &mut Description, whole: &Whole) {
    let [.., revision] = LEGACY;
    let opened = whole.send(Request::post(initialize(revision).to_string())).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    description.check("POST", "/mcp", &opened.into());
    let of_session = |request: Request| {
        let request = request.header("mcp-session-id", session.clone());
        request.header("mcp-protocol-version", revision)
    };
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let taken = of_session(Request::post(ready.to_string()));
    description.check("POST", "/mcp", &whole.send(taken).await.into());
    for (path, request) in [
        ("/mcp", of_session(Request::stream())),
        ("/v1/events", Request::new("GET", "/v1/events")),
    ] {
        description.check("GET", path, &whole.head_of(request).await.into());
    }
    let ended = of_session(Request::new("DELETE", "/mcp"));
    description.check("DELETE", "/mcp", &whole.send(ended).await.into());
    let mut connection = RawConnection::open(whole.server.address).await;
    let upgrade = format!(
        "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        whole.token
    );
    connection.send(&upgrade).await;
    let head = connection.head().await;
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    let socket = Reply {
        status,
        headers: Vec::new(),
        body: Vec::new(),
    };
    description.check("GET", "/v1/ws", &socket.into());
}
