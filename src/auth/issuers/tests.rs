mod keys;

use super::*;
use crate::auth::token_line::hash_of;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const RESOURCE: &str = "https://bus.example/mcp";

/// An authorization server with one key.
struct Server {
    url: String,
    key: EcdsaKeyPair,
    /// The requests for keys.
    fetches: Arc<AtomicUsize>,
}

impl Server {
    async fn start() -> Server {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let point = key.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        let keys = json!({ "keys": [
            { "kty": "oct", "kid": "a", "k": "c2VjcmV0" },
            { "kty": "EC", "crv": "P-256", "kid": "a", "use": "sig", "x": x, "y": y },
        ] });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let metadata = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
        let fetches = Arc::new(AtomicUsize::new(0));
        let counted = fetches.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let body = match head.starts_with("GET /keys ") {
                    true => {
                        counted.fetch_add(1, Ordering::SeqCst);
                        keys.to_string()
                    }
                    false => metadata.to_string(),
                };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Server { url, key, fetches }
    }

    fn claims(&self) -> Value {
        json!({
            "iss": self.url, "aud": RESOURCE, "sub": "u1", "client_id": "c", "exp": now() + 60,
            "roles": ["ops"], "scope": "read tools", "jti": "t1",
        })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn issuers(&self) -> Issuers {
        let config = AuthConfig {
            resource: Some(RESOURCE.to_owned()),
            issuer: vec![IssuerConfig {
                url: self.url.clone(),
                ..IssuerConfig::default()
            }],
            ..AuthConfig::default()
        };
        Issuers::new(&config, &Arc::default()).unwrap()
    }
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().unwrap().as_secs()
}

fn header() -> Value {
    json!({ "alg": "ES256", "typ": "at+jwt", "kid": "a" })
}

async fn check(issuers: &Issuers, token: &str) -> Result<Principal, Unauthenticated> {
    issuers.check(token, &hash_of(token)).await
}

/// Returns a copy with another value of a member; null removes it.
pub(in crate::auth) fn with(object: &Value, member: &str, value: Value) -> Value {
    let mut object = object.clone();
    match value {
        Value::Null => drop(object.as_object_mut().unwrap().remove(member)),
        value => object[member] = value,
    }
    object
}

#[tokio::test]
async fn good_token_is_its_principal() {
    let server = Server::start().await;
    let issuers = server.issuers();
    let token = server.sign(&header(), &server.claims());
    let principal = check(&issuers, &token).await.unwrap();
    assert_eq!(principal.id(), format!("{}#u1#c", server.url));
    assert_eq!(principal.roles(), ["ops"]);
    assert_eq!(principal.scopes(), ["read", "tools"]);
    assert_eq!(principal.credential(), "jti:t1");
    let ends = principal.expires().unwrap().duration_since(UNIX_EPOCH).unwrap();
    assert!((now() + 50..=now() + 60).contains(&ends.as_secs()));
    let remembered = issuers.remembered(&hash_of(&token), SystemTime::now());
    assert_eq!(remembered.as_ref(), Some(&principal));
    let later = SystemTime::now() + Duration::from_secs(3600);
    assert_eq!(issuers.remembered(&hash_of(&token), later), None);
    for audience in [json!([RESOURCE, "other"]), json!(RESOURCE)] {
        let claims = with(&server.claims(), "aud", audience);
        assert!(check(&issuers, &server.sign(&header(), &claims)).await.is_ok());
    }
    for typ in ["AT+JWT", "application/at+jwt"] {
        let header = with(&header(), "typ", json!(typ));
        assert!(
            check(&issuers, &server.sign(&header, &server.claims()))
                .await
                .is_ok()
        );
    }
}

#[tokio::test]
async fn wrong_token_is_refused() {
    let server = Server::start().await;
    let issuers = server.issuers();
    let good = server.sign(&header(), &server.claims());
    assert!(check(&issuers, &good).await.is_ok());
    let claims = server.claims();
    let mut wrong: Vec<String> = Vec::new();
    for (member, value) in [
        ("iss", json!(format!("{}/", server.url))),
        ("iss", Value::Null),
        ("aud", json!("https://bus.example")),
        ("aud", json!("https://bus.example/mcp/")),
        ("aud", json!([])),
        ("aud", Value::Null),
        ("exp", json!(now() - 31)),
        ("exp", json!("9999999999")),
        ("exp", json!(-1)),
        ("exp", Value::Null),
        ("nbf", json!(now() + 300)),
        ("nbf", json!("x")),
        ("sub", Value::Null),
        ("sub", json!("")),
        ("sub", json!("a\nb")),
        ("sub", json!(7)),
        ("roles", json!([7])),
        ("roles", json!({})),
        ("cnf", json!({ "jkt": "x" })),
    ] {
        wrong.push(server.sign(&header(), &with(&claims, member, value)));
    }
    for (member, value) in [
        ("alg", json!("none")),
        ("alg", json!("HS256")),
        ("alg", json!("RS256")),
        ("alg", json!("ES384")),
        ("alg", json!("EdDSA")),
        ("alg", Value::Null),
        ("typ", json!("JWT")),
        ("typ", Value::Null),
        ("crit", json!(["foo"])),
        ("crit", json!([])),
        ("kid", json!("b")),
        ("kid", json!(7)),
    ] {
        wrong.push(server.sign(&with(&header(), member, value), &claims));
    }
    // A key of the caller's own, named in the header in every way.
    let own = Server::start().await;
    let point = own.key.public_key().as_ref();
    let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y });
    for (member, value) in [
        ("jwk", jwk),
        ("jku", json!(format!("{}/keys", own.url))),
        ("x5u", json!(format!("{}/keys", own.url))),
        ("cty", json!("x")),
    ] {
        wrong.push(own.sign(&with(&header(), member, value), &claims));
    }
    let (message, signature) = good.rsplit_once('.').unwrap();
    wrong.push(format!("{message}."));
    wrong.push(message.to_owned());
    wrong.push(format!(
        "{message}.{}",
        signature.chars().rev().collect::<String>()
    ));
    wrong.push(format!("{good}."));
    wrong.push("..".to_owned());
    wrong.push("a".repeat(20_000));
    for token in wrong {
        let refused = check(&issuers, &token).await;
        assert_eq!(refused, Err(Unauthenticated::Invalid), "{token}");
        assert_eq!(issuers.remembered(&hash_of(&token), SystemTime::now()), None);
    }
    assert_eq!(own.fetches.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn random_names_of_keys_cause_no_storm() {
    let server = Server::start().await;
    let issuers = server.issuers();
    let good = server.sign(&header(), &server.claims());
    assert!(check(&issuers, &good).await.is_ok());
    let before = server.fetches.load(Ordering::SeqCst);
    let tokens: Vec<String> = (0..1_000)
        .map(|number| {
            server.sign(
                &with(&header(), "kid", json!(format!("k{number}"))),
                &server.claims(),
            )
        })
        .collect();
    let all = futures_util::future::join_all(tokens.iter().map(|token| check(&issuers, token)));
    for refused in all.await {
        assert_eq!(refused, Err(Unauthenticated::Invalid));
    }
    assert!(server.fetches.load(Ordering::SeqCst) <= before + 1);
    assert!(check(&issuers, &good).await.is_ok());
}

#[tokio::test]
async fn key_that_is_made_after_the_start_is_fetched_once() {
    let server = Server::start().await;
    let issuers = server.issuers();
    while issuers.issuers[0].keys.current().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.fetches.load(Ordering::SeqCst), 1);
    for name in ["new", "newer"] {
        let token = server.sign(&with(&header(), "kid", json!(name)), &server.claims());
        assert_eq!(check(&issuers, &token).await, Err(Unauthenticated::Invalid));
        assert_eq!(server.fetches.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn leeway_lets_in_and_lengthens_no_stream() {
    let server = Server::start().await;
    let issuers = server.issuers();
    let ended = with(&server.claims(), "exp", json!(now() - 10));
    let principal = check(&issuers, &server.sign(&header(), &ended)).await.unwrap();
    let ends = principal.expires().unwrap().duration_since(UNIX_EPOCH).unwrap();
    assert!((now() + 15..=now() + 20).contains(&ends.as_secs()));
    let long_ago = with(&server.claims(), "exp", json!(now() - 31));
    let refused = check(&issuers, &server.sign(&header(), &long_ago)).await;
    assert_eq!(refused, Err(Unauthenticated::Invalid));
}

#[tokio::test]
async fn issuer_that_is_down_lets_nobody_in() {
    let server = Server::start().await;
    let token = server.sign(&header(), &server.claims());
    let config = AuthConfig {
        resource: Some(RESOURCE.to_owned()),
        issuer: vec![IssuerConfig {
            url: server.url.clone(),
            // The reserved port 1, at which nothing listens.
            jwks: "http://127.0.0.1:1/keys".into(),
            ..IssuerConfig::default()
        }],
        ..AuthConfig::default()
    };
    let issuers = Issuers::new(&config, &Arc::default()).unwrap();
    assert_eq!(check(&issuers, &token).await, Err(Unauthenticated::Unavailable));
}

#[tokio::test]
async fn opaque_tokens_alone_are_looked_up() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client");
    std::fs::write(&file, "client_id = a\nclient_secret = b\n").unwrap();
    let config = AuthConfig {
        resource: Some(RESOURCE.to_owned()),
        issuer: vec![IssuerConfig {
            url: server.url.clone(),
            introspect: Some(file),
            ..IssuerConfig::default()
        }],
        ..AuthConfig::default()
    };
    let issuers = Issuers::new(&config, &Arc::default()).unwrap();
    let claims = server.claims();
    // Its keys are enough for its own signed tokens, good or not.
    assert!(check(&issuers, &server.sign(&header(), &claims)).await.is_ok());
    for wrong in [
        server.sign(&header(), &with(&claims, "aud", json!("other"))),
        server.sign(&with(&header(), "typ", json!("JWT")), &claims),
        server.sign(&with(&header(), "kid", json!("b")), &claims),
    ] {
        assert_eq!(check(&issuers, &wrong).await, Err(Unauthenticated::Invalid));
    }
    // This server has no endpoint to ask, which is told apart from a refusal.
    for asked in [
        "opaque".to_owned(),
        server.sign(&header(), &with(&claims, "iss", json!("https://other.example"))),
        server.sign(&header(), &with(&claims, "iss", Value::Null)),
    ] {
        assert_eq!(check(&issuers, &asked).await, Err(Unauthenticated::Unavailable));
    }
}
