//! Tokens that our clients obtain from an authorization server.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tidings::client::{ConnectError, Credentials, Era, OAuthClient, Target, Watcher};
use tidings::wire::connection::exchange;
use tokio::net::TcpStream;

use super::credentials::{program, texts, with};
use super::guarded::Guarded;
use super::issuer::{CLIENT, Issuer, SECRET};
use super::{BOTH_ERAS, change, soon, watch};

const A: &str = "demo://a";

async fn connect(server: &Guarded, era: Era, client: OAuthClient) -> Result<Watcher, ConnectError> {
    let url = server.url("/mcp");
    let credentials = client.authorize(&url, Credentials::default()).unwrap();
    let target = Target::http(&url).unwrap();
    soon(Watcher::connect_with(target, era, with(credentials))).await
}

/// Starts a server and its issuer, and writes the secret of the client.
async fn both(dir: &tempfile::TempDir, needed: &[&str]) -> (Guarded, Arc<Issuer>, std::path::PathBuf) {
    let server = Guarded::start(&[]).await;
    server.put(A, "one").await;
    let issuer = Issuer::start(&server, needed).await;
    let secret = dir.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    (server, issuer, secret)
}

/// Opens `address` as a browser does, and follows its redirects.
async fn browse(address: String) {
    let mut next = Some(address);
    while let Some(address) = next.take() {
        let rest = address.strip_prefix("http://").unwrap();
        let at = rest.find('/').unwrap();
        let mut stream = TcpStream::connect(&rest[..at]).await.unwrap();
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", &rest[at..], &rest[..at]);
        let answer = exchange(&mut stream, request.as_bytes()).await.unwrap();
        next = answer.head.header("location").map(str::to_owned);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_credentials_step_up_and_renew() {
    for (era, _) in BOTH_ERAS {
        let dir = tempfile::tempdir().unwrap();
        let (server, issuer, secret) = both(&dir, &["read"]).await;
        let client = OAuthClient::with_secret(CLIENT, secret);
        let mut watcher = connect(&server, era, client).await.unwrap();
        watch(&mut watcher, &[A]).await;
        let asked = issuer.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0]["scope"], "read");
        assert_eq!(asked[0]["resource"], server.url("/mcp"));
        // The token ends, and with it the streams.
        issuer.need(&["read"]);
        server.gate.end_streams();
        let missed = server.put(A, "missed").await;
        assert_eq!(change(&mut watcher).await.1, Some(missed));
        // From now on another scope is needed.
        issuer.need(&["read", "write"]);
        let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
        server.gate.challenge(403, challenge);
        server.gate.end_streams();
        let missed = server.put(A, "missed again").await;
        assert_eq!(change(&mut watcher).await.1, Some(missed));
        let scopes: Vec<String> = issuer.asked().iter().map(|form| form["scope"].clone()).collect();
        assert_eq!(scopes, ["read", "read", "read write"]);
        watcher.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scope_that_is_not_granted_is_asked_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let (server, issuer, secret) = both(&dir, &["more"]).await;
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
    server.gate.challenge(403, challenge);
    let error = connect(&server, Era::Modern, OAuthClient::with_secret(CLIENT, secret)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ConnectError::Denied { .. }), "{error:?}");
    assert!(error.to_string().contains("needed scope: write"), "{error}");
    assert_eq!(issuer.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_is_asked_once_and_the_token_refreshed() {
    for (era, _) in BOTH_ERAS {
        let dir = tempfile::tempdir().unwrap();
        let (server, issuer, _) = both(&dir, &["read"]).await;
        // A token that is about to end is renewed with each request.
        issuer.set_life(1);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = shown.clone();
        let client = OAuthClient::with_user(CLIENT, move |address| {
            seen.lock().unwrap().push(address.to_owned());
            tokio::spawn(browse(address.to_owned()));
        });
        let mut watcher = connect(&server, era, client).await.unwrap();
        watch(&mut watcher, &[A]).await;
        issuer.set_life(3600);
        issuer.need(&["read"]);
        server.gate.end_streams();
        let missed = server.put(A, "missed").await;
        assert_eq!(change(&mut watcher).await.1, Some(missed));
        assert_eq!(shown.lock().unwrap().len(), 1);
        let asked = issuer.asked();
        assert_eq!(asked[0]["grant_type"], "authorization_code");
        assert!(asked.len() > 1);
        assert!(
            asked[1..]
                .iter()
                .all(|form| form["grant_type"] == "refresh_token")
        );
        watcher.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (field, value, expected) in [
        (
            "issuer",
            json!("http://127.0.0.1:1/tenant"),
            "name another issuer",
        ),
        ("token_endpoint", json!("http://as.example/token"), "is not https"),
        (
            "code_challenge_methods_supported",
            json!(["plain"]),
            "does not support PKCE",
        ),
        (
            "authorization_endpoint",
            json!(null),
            "no place where users authorize",
        ),
    ] {
        let (server, issuer, _) = both(&dir, &["read"]).await;
        issuer.claim(field, value);
        let client = OAuthClient::with_user(CLIENT, |_| panic!("nobody is asked"));
        let error = connect(&server, Era::Modern, client).await.unwrap_err();
        assert!(matches!(error, ConnectError::Credentials(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(issuer.asked().is_empty());
    }
    let (server, issuer, _) = both(&dir, &["read"]).await;
    server.gate.describe(json!({
        "resource": "http://127.0.0.1:1/mcp",
        "authorization_servers": [format!("{}/tenant", issuer.base())],
    }));
    let client = OAuthClient::with_user(CLIENT, |_| panic!("nobody is asked"));
    let error = connect(&server, Era::Modern, client).await.unwrap_err();
    assert!(error.to_string().contains("name another resource"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_of_another_issuer_or_state_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, issuer, _) = both(&dir, &["read"]).await;
    let client = OAuthClient::with_user(CLIENT, |address| {
        let address = url::Url::parse(address).unwrap();
        let value = |name: &str| {
            let mut pairs = address.query_pairs();
            pairs.find(|(key, _)| key == name).unwrap().1.into_owned()
        };
        let redirect = value("redirect_uri");
        let state = value("state");
        tokio::spawn(async move {
            // The listener waits on after this one, which does not know the state.
            browse(format!("{redirect}?code=forged&state=guessed")).await;
            browse(format!(
                "{redirect}?code=forged&state={state}&iss=http://127.0.0.1:1/"
            ))
            .await;
        });
    });
    let error = connect(&server, Era::Modern, client).await.unwrap_err();
    assert!(error.to_string().contains("came from another issuer"), "{error}");
    assert!(issuer.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_obtain_tokens_and_hide_them() {
    let dir = tempfile::tempdir().unwrap();
    let (server, issuer, secret) = both(&dir, &["read"]).await;
    let mcp = server.url("/mcp");
    let service = server.url("");
    let secret = secret.to_str().unwrap();
    for mut arguments in super::credentials::commands(&mcp, &service) {
        arguments.extend(["--oauth-client-id", CLIENT, "--oauth-client-secret-file", secret]);
        let text = match arguments[0] {
            "watch" => super::credentials::run_until(&arguments, "listening to").await,
            _ => {
                let output = soon(program(&arguments).output()).await.unwrap();
                let code = output.status.code();
                let text = texts(&output);
                assert!(
                    arguments[0] == "check" || code == Some(0),
                    "{arguments:?}: {text}"
                );
                text
            }
        };
        assert!(!text.contains("s3cr3t"), "{arguments:?}: {text}");
    }
    assert!(issuer.asked().len() >= 5);
}
