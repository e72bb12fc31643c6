//! The page at `/ui/` over the real service: its files, headers and methods, and the login.

use std::fs;
use std::process::Command;

use super::auth::Guarded;
use crate::mcp::http::{Reply, Request, within};
use crate::mcp::server::{Server, binary};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// A request as a browser sends it for a file of the page.
fn file(path: &str) -> Request {
    Request::new("GET", path).header("accept-encoding", "gzip, deflate, br")
}

fn assert_headers(reply: &Reply, what: &str) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{what}: {name}");
    }
}

#[tokio::test]
async fn every_answer_has_the_headers() {
    let server = Server::start().await;
    for (method, path, status) in [
        ("GET", "/", 307),
        ("GET", "/ui", 307),
        ("GET", "/ui/", 200),
        ("GET", "/ui/app.js", 200),
        ("HEAD", "/ui/app.css", 200),
        ("GET", "/ui/none", 404),
        ("GET", "/ui/assets/", 404),
        ("GET", "/ui/../Cargo.toml", 404),
        ("POST", "/ui/app.js", 405),
        ("PUT", "/ui/", 405),
        ("POST", "/ui/none", 404),
        ("GET", "/ui/logout", 405),
        ("PUT", "/ui/login", 405),
        ("GET", "/ui/login", 200),
        ("POST", "/ui/logout", 204),
    ] {
        let request = Request::new(method, path).header("accept-encoding", "gzip");
        let reply = request.send(server.address).await;
        assert_eq!(reply.status, status, "{method} {path}");
        assert_headers(&reply, path);
        match status {
            307 => assert_eq!(reply.header("location"), Some("ui/")),
            405 => assert!(reply.header("allow").is_some(), "{method} {path}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn files_are_compressed_and_named_by_their_content() {
    let server = Server::start().await;
    let page = file("/ui/").send(server.address).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("content-encoding"), Some("gzip"));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    assert_eq!(page.header("vary"), Some("accept-encoding"));
    assert_eq!(page.body[..2], [0x1f, 0x8b]);
    let etag = page.header("etag").unwrap().to_owned();
    for known in [
        etag.clone(),
        format!("W/{etag}"),
        format!("\"x\", {etag}"),
        "*".to_owned(),
    ] {
        let again = file("/ui/")
            .header("if-none-match", &known)
            .send(server.address)
            .await;
        assert_eq!((again.status, again.body.len()), (304, 0), "{known}");
        assert_eq!(again.header("etag"), Some(etag.as_str()));
    }
    let other = file("/ui/app.js")
        .header("if-none-match", &etag)
        .send(server.address)
        .await;
    assert_eq!(other.status, 200);
    assert_ne!(other.header("etag"), Some(etag.as_str()));
}

#[tokio::test]
async fn client_without_gzip_gets_the_plain_file() {
    let server = Server::start().await;
    let packed = file("/ui/").send(server.address).await;
    let page = || Request::new("GET", "/ui/");
    for request in [
        page(),
        page().header("accept-encoding", "br"),
        page().header("accept-encoding", "identity"),
    ] {
        let reply = request.send(server.address).await;
        assert_eq!(reply.status, 200);
        assert!(reply.text().starts_with("<!doctype html>"), "{}", reply.text());
        assert_eq!(reply.header("content-encoding"), None);
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
        assert_ne!(reply.header("etag"), packed.header("etag"));
        let etag = reply.header("etag").unwrap();
        let again = page().header("if-none-match", etag).send(server.address).await;
        assert_eq!(again.status, 304);
    }
    let refused = page().header("accept-encoding", "identity;q=0");
    let refused = refused.send(server.address).await;
    assert_eq!(refused.status, 406);
    assert!(
        refused.text().contains("Accept-Encoding: gzip"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn page_is_for_known_hosts_alone() {
    let server = Server::start().await;
    for path in ["/", "/ui/", "/ui/app.js", "/ui/login"] {
        let reply = file(path)
            .without("host")
            .header("host", "evil.example")
            .send(server.address)
            .await;
        assert_eq!(reply.status, 403, "{path}");
        assert_headers(&reply, path);
    }
    // A link on another page may open this one, whose viewer that page cannot be.
    let followed = file("/ui/")
        .header("sec-fetch-site", "cross-site")
        .send(server.address)
        .await;
    assert_eq!(followed.status, 200);
    let foreign = Request::new("POST", "/ui/logout").header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.send(server.address).await.status, 403);
}

#[tokio::test]
async fn page_can_be_turned_off() {
    let server = Server::with("[page]\nenabled = false\n").await;
    for path in ["/", "/ui", "/ui/", "/ui/app.js", "/ui/login"] {
        assert_eq!(file(path).send(server.address).await.status, 404, "{path}");
    }
}

/// Starts a service that must refuse its configuration, and returns what it says.
fn refusal(config: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    fs::write(&file, config).unwrap();
    let ended = Command::new(binary())
        .arg("serve")
        .arg("--config")
        .arg(&file)
        .output()
        .unwrap();
    assert!(!ended.status.success());
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn page_for_others_needs_credentials() {
    let listen = "[http]\nlisten = '0.0.0.0:0'\nallowed_hosts = ['bus.example']\n[auth]\nanonymous = 'all'\n";
    let text = refusal(&format!("{listen}[page]\nenabled = true\n"));
    assert!(
        text.contains("page.enabled is true and http.listen is 0.0.0.0:0"),
        "{text}"
    );
    let text = refusal("[page]\nenabled = 'maybe'\n");
    assert!(text.contains("expected \"loopback\", true or false"), "{text}");
}

/// The login of a browser whose page comes from the service.
fn login(token: &str) -> Request {
    Request::new("POST", "/ui/login")
        .header("content-type", "application/json")
        .header("sec-fetch-site", "same-origin")
        .body(format!("{{\"token\":\"{token}\"}}"))
}

/// Logs in, and returns the cookie as a browser sends it.
async fn cookie(guarded: &Guarded) -> String {
    let reply = login(&guarded.token).send(guarded.server.address).await;
    assert_eq!(reply.status, 204, "{}", reply.text());
    let set = reply.header("set-cookie").unwrap();
    let (pair, attributes) = set.split_once("; ").unwrap();
    assert_eq!(attributes, "HttpOnly; SameSite=Strict; Path=/; Max-Age=28800");
    assert!(pair.starts_with("tidings=") && pair.len() >= 50, "{pair}");
    assert!(!set.contains(&guarded.token));
    pair.to_owned()
}

fn with_cookie(method: &'static str, path: &str, cookie: &str) -> Request {
    Request::new(method, path)
        .header("cookie", format!("other=1; {cookie}"))
        .header("sec-fetch-site", "same-origin")
}

#[tokio::test]
async fn cookie_reads_and_ends_sessions_only() {
    let guarded = Guarded::start("").await;
    let server = guarded.server.address;
    let cookie = cookie(&guarded).await;
    for (method, path, status) in [
        ("GET", "/v1/sessions", 200),
        ("GET", "/v1/resources", 200),
        ("GET", "/v1/stats", 200),
        ("GET", "/v1/subscribers", 200),
        ("DELETE", "/v1/sessions/s999", 404),
        ("GET", "/metrics", 401),
        ("PUT", "/v1/resources/a%3Ab", 401),
        ("DELETE", "/v1/resources/a%3Ab", 401),
        ("POST", "/v1/resources", 401),
        ("POST", "/mcp", 401),
        ("GET", "/v1/ws", 401),
    ] {
        let reply = with_cookie(method, path, &cookie).send(server).await;
        assert_eq!(reply.status, status, "{method} {path}");
    }
    // The page of another origin has the browser send no cookie; if it did, it would be of no use.
    let foreign = Request::new("GET", "/v1/sessions").header("cookie", &cookie);
    assert_eq!(foreign.send(server).await.status, 401);
    let guessed = with_cookie(
        "GET",
        "/v1/sessions",
        &format!("{}x", &cookie[..cookie.len() - 1]),
    );
    assert_eq!(guessed.send(server).await.status, 401);
}

#[tokio::test]
async fn page_tells_who_is_looking() {
    let guarded = Guarded::start("").await;
    let server = guarded.server.address;
    let nobody = Request::new("GET", "/ui/login").send(server).await;
    assert_eq!(
        nobody.json(),
        serde_json::json!({ "login": true, "session": false, "admin": false })
    );
    let cookie = cookie(&guarded).await;
    let viewer = with_cookie("GET", "/ui/login", &cookie).send(server).await;
    assert_eq!(
        viewer.json(),
        serde_json::json!({ "login": true, "principal": "token:ci", "session": true, "admin": true })
    );
    let open = Server::start().await;
    let viewer = Request::new("GET", "/ui/login").send(open.address).await;
    assert_eq!(
        viewer.json(),
        serde_json::json!({ "login": false, "principal": "local", "session": false, "admin": true })
    );
    let refused = login("tdg_x").send(open.address).await;
    assert_eq!(refused.status, 400, "there is nothing to log in to");
}

#[tokio::test]
async fn wrong_logins_are_limited_by_address() {
    let guarded = Guarded::start("").await;
    let server = guarded.server.address;
    for wrong in ["tdg_x", "", "a b", "ä", "tdg_y"] {
        assert_eq!(login(wrong).send(server).await.status, 401, "{wrong}");
    }
    let reply = login(&guarded.token).send(server).await;
    assert_eq!(reply.status, 429);
    let seconds: u32 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    for (body, status) in [("", 400), ("[]", 400), (&*"x".repeat(20_000), 413)] {
        let reply = Request::new("POST", "/ui/login").body(body).send(server).await;
        assert_eq!(reply.status, status);
    }
}

#[tokio::test]
async fn logout_ends_the_cookie() {
    let guarded = Guarded::start("").await;
    let server = guarded.server.address;
    let cookie = cookie(&guarded).await;
    let reply = with_cookie("POST", "/ui/logout", &cookie).send(server).await;
    assert_eq!(reply.status, 204);
    assert!(reply.header("set-cookie").unwrap().starts_with("tidings=; "));
    let reply = with_cookie("GET", "/v1/sessions", &cookie).send(server).await;
    assert_eq!(reply.status, 401);
}

#[tokio::test]
async fn cookie_ends_with_its_token() {
    let guarded = Guarded::start("").await;
    let server = guarded.server.address;
    let cookie = cookie(&guarded).await;
    fs::write(guarded.folder.path().join("ci"), "# nobody\n").unwrap();
    within("the end of the login", async {
        while with_cookie("GET", "/v1/sessions", &cookie)
            .send(server)
            .await
            .status
            == 200
        {}
    })
    .await;
    let reply = with_cookie("GET", "/v1/sessions", &cookie).send(server).await;
    assert_eq!(reply.status, 401);
}

#[tokio::test]
async fn cookie_has_the_rights_of_its_principal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reader");
    let made = Command::new(binary())
        .args(["token", "new", "reader", "--file"])
        .arg(&file)
        .output()
        .unwrap();
    let token = String::from_utf8(made.stdout).unwrap().trim_end().to_owned();
    let file = file.display();
    let server = Server::with(&format!(
        "[auth]\nanonymous = 'none'\n[[auth.token]]\nname = 'reader'\nfile = '{file}'\nroles = ['reader']\n\
         [[auth.rule]]\nroles = ['reader']\nmay = ['list', 'read']\nmatch = ['*']\n"
    ))
    .await;
    let reply = login(&token).send(server.address).await;
    let cookie = reply
        .header("set-cookie")
        .unwrap()
        .split_once(';')
        .unwrap()
        .0
        .to_owned();
    for (method, path, status) in [
        ("GET", "/v1/resources?sort=changed", 200),
        ("GET", "/v1/resources?sort=subscribers", 403),
        ("GET", "/v1/sessions", 403),
        ("GET", "/v1/stats", 403),
        ("DELETE", "/v1/sessions/s1", 403),
    ] {
        let reply = with_cookie(method, path, &cookie).send(server.address).await;
        assert_eq!(reply.status, status, "{method} {path}");
    }
}
