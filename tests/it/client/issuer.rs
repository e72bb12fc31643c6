//! An authorization server of the test: metadata, client credentials, codes with PKCE, and refresh tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::guarded::{Gate, Guarded, serve};

pub(super) const CLIENT: &str = "the-client";
pub(super) const SECRET: &str = "s3cr3t-of-the-client";

pub(super) type Fields = BTreeMap<String, String>;

#[derive(Default)]
struct Book {
    /// The requests to the token endpoint.
    asked: Vec<Fields>,
    /// The authorization requests by their code.
    codes: BTreeMap<String, Fields>,
    refresh: BTreeSet<String>,
    tokens: usize,
    /// The life of tokens, in seconds.
    life: u64,
    /// Scopes of which a token needs all to be let in.
    needed: BTreeSet<String>,
    base: String,
    /// Replaced fields of the metadata.
    metadata: Value,
}

pub(super) struct Issuer {
    gate: Arc<Gate>,
    book: Mutex<Book>,
}

impl Issuer {
    /// Starts a server whose tokens of these scopes are let in by `server`.
    pub(super) async fn start(server: &Guarded, needed: &[&str]) -> Arc<Issuer> {
        let issuer = Arc::new(Issuer {
            gate: server.gate.clone(),
            book: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/oauth-authorization-server/tenant", get(metadata))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(issuer.clone());
        let address: SocketAddr = serve(router).await;
        let mut book = issuer.book.lock().unwrap();
        book.base = format!("http://{address}");
        book.life = 3600;
        book.needed = needed.iter().map(|scope| (*scope).to_owned()).collect();
        server.gate.describe(json!({
            "resource": server.url("/mcp"),
            "authorization_servers": [format!("{}/tenant", book.base)],
            "scopes_supported": ["read"],
        }));
        drop(book);
        issuer
    }

    /// Grants tokens of this life from now on.
    pub(super) fn set_life(&self, seconds: u64) {
        self.book.lock().unwrap().life = seconds;
    }

    /// Lets in only tokens with these scopes from now on; those that were granted end.
    pub(super) fn need(&self, scopes: &[&str]) {
        self.book.lock().unwrap().needed = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        self.gate.accept(&[]);
    }

    /// Replaces a field of the metadata.
    pub(super) fn claim(&self, field: &str, value: Value) {
        self.book.lock().unwrap().metadata[field] = value;
    }

    pub(super) fn base(&self) -> String {
        self.book.lock().unwrap().base.clone()
    }

    /// Returns the requests to the token endpoint so far.
    pub(super) fn asked(&self) -> Vec<Fields> {
        self.book.lock().unwrap().asked.clone()
    }
}

async fn metadata(State(issuer): State<Arc<Issuer>>) -> Json<Value> {
    let book = issuer.book.lock().unwrap();
    let mut metadata = json!({
        "issuer": format!("{}/tenant", book.base),
        "authorization_endpoint": format!("{}/authorize", book.base),
        "token_endpoint": format!("{}/token", book.base),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
    });
    for (name, value) in book.metadata.as_object().into_iter().flatten() {
        metadata[name] = value.clone();
    }
    Json(metadata)
}

/// Consents at once, as a user would.
async fn authorize(State(issuer): State<Arc<Issuer>>, Query(query): Query<Fields>) -> Response {
    let mut book = issuer.book.lock().unwrap();
    assert_eq!(query["response_type"], "code");
    assert_eq!(query["code_challenge_method"], "S256");
    let code = format!("c0de-{}", book.codes.len());
    let to = format!(
        "{}?code={code}&state={}&iss={}/tenant",
        query["redirect_uri"], query["state"], book.base
    );
    book.codes.insert(code, query);
    (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
}

async fn token(State(issuer): State<Arc<Issuer>>, headers: HeaderMap, body: String) -> Response {
    let form: Fields = url::form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect();
    let mut book = issuer.book.lock().unwrap();
    book.asked.push(form.clone());
    let scope = match form["grant_type"].as_str() {
        "client_credentials" => {
            let basic = STANDARD.encode(format!("{CLIENT}:{SECRET}"));
            assert_eq!(headers[header::AUTHORIZATION], format!("Basic {basic}"));
            form.get("scope").cloned()
        }
        "authorization_code" => {
            let asked = book.codes.remove(&form["code"]).unwrap();
            let digest = Sha256::digest(form["code_verifier"].as_bytes());
            assert_eq!(asked["code_challenge"], URL_SAFE_NO_PAD.encode(digest));
            assert_eq!(asked["redirect_uri"], form["redirect_uri"]);
            assert_eq!(form["client_id"], CLIENT);
            asked.get("scope").cloned()
        }
        "refresh_token" if book.refresh.remove(&form["refresh_token"]) => Some("read".to_owned()),
        _ => {
            let refusal = json!({ "error": "invalid_grant", "error_description": "no" });
            return (StatusCode::BAD_REQUEST, Json(refusal)).into_response();
        }
    };
    let scope = scope.unwrap_or_default();
    let granted: BTreeSet<String> = scope.split_whitespace().map(str::to_owned).collect();
    book.tokens += 1;
    let token = format!("s3cr3t-t0k3n-{}", book.tokens);
    if book.needed.is_subset(&granted) {
        issuer.gate.accept_too(format!("Bearer {token}"));
    }
    let mut answer =
        json!({ "access_token": token, "token_type": "bearer", "expires_in": book.life, "scope": scope });
    if form["grant_type"] != "client_credentials" {
        let refresh = format!("s3cr3t-refresh-{}", book.tokens);
        book.refresh.insert(refresh.clone());
        answer["refresh_token"] = refresh.into();
    }
    Json(answer).into_response()
}
