use super::*;
use crate::auth::issuers::tests::with;
use crate::auth::token_line::hash_of;
use crate::config::IssuerConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::sync::atomic::AtomicBool;
use std::time::UNIX_EPOCH;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RESOURCE: &str = "https://bus.example/mcp";
/// Longer than any test.
const AGE: Duration = Duration::from_secs(60);

/// An authorization server with one answer for every token.
struct Server {
    url: String,
    folder: TempDir,
    script: Arc<Script>,
    revocations: Arc<AtomicU64>,
}

#[derive(Default)]
struct Script {
    /// The answer of the endpoint, with its head.
    answer: Mutex<String>,
    /// The questions, whole.
    asked: Mutex<Vec<String>>,
    /// Other paths than those of the metadata and the endpoint that were asked for.
    strayed: AtomicBool,
    /// Keeps questions unanswered.
    is_silent: AtomicBool,
    /// Replaces the endpoint in the metadata.
    endpoint: Mutex<Option<Value>>,
}

impl Server {
    async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::new(Script::default());
        let folder = TempDir::new().unwrap();
        std::fs::write(
            folder.path().join("client"),
            "client_id = a b\nclient_secret = s3:cr=t\n",
        )
        .unwrap();
        let served = script.clone();
        let address = url.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(stream, address.clone()));
            }
        });
        let server = Server {
            url,
            folder,
            script,
            revocations: Arc::default(),
        };
        server.answer(&server.active());
        server
    }

    /// The answer for a token that is good.
    fn active(&self) -> Value {
        json!({
            "active": true, "iss": self.url, "aud": [RESOURCE, "other"], "sub": "u1", "client_id": "c",
            "exp": now() + 600, "nbf": now(), "roles": ["ops"], "scope": "read tools", "token_type": "Bearer",
        })
    }

    fn answer(&self, answer: &Value) {
        self.answer_raw(&http("200 OK", &answer.to_string()));
    }

    fn answer_raw(&self, answer: &str) {
        *self.script.answer.lock().unwrap() = answer.to_owned();
    }

    fn asked(&self) -> usize {
        self.script.asked.lock().unwrap().len()
    }

    fn introspection(&self, age: Duration) -> Introspection {
        let config = IssuerConfig {
            url: self.url.clone(),
            ..IssuerConfig::default()
        };
        let rules = TokenRules::new(&config, RESOURCE, Duration::from_secs(30));
        let endpoint = IntrospectionEndpoint::new(&self.url, &self.folder.path().join("client")).unwrap();
        Introspection::new(endpoint, rules, age, self.revocations.clone())
    }
}

impl Script {
    async fn serve(self: Arc<Script>, mut stream: TcpStream, url: String) {
        let mut request = Vec::new();
        while !is_whole(&request) {
            if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let request = String::from_utf8(request).unwrap();
        let answer = if request.starts_with("GET /.well-known/oauth-authorization-server ") {
            let own = json!(format!("{url}/introspect"));
            let endpoint = self.endpoint.lock().unwrap().clone().unwrap_or(own);
            http(
                "200 OK",
                &json!({ "issuer": url, "introspection_endpoint": endpoint }).to_string(),
            )
        } else if request.starts_with("POST /introspect ") {
            self.asked.lock().unwrap().push(request);
            if self.is_silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.answer.lock().unwrap().clone()
        } else {
            self.strayed.store(true, Ordering::SeqCst);
            http("404 Not Found", "")
        };
        // A client may have left.
        stream.write_all(answer.as_bytes()).await.ok();
    }
}

/// Returns true for a request whose body is there.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = match length {
        Some(length) => length.parse().unwrap(),
        None => 0,
    };
    body.len() >= length
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().unwrap().as_secs()
}

async fn check(introspection: &Introspection, token: &str) -> Result<Principal, Unauthenticated> {
    introspection.check(token, &hash_of(token)).await
}

/// Waits for a condition, with a deadline.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

#[tokio::test]
async fn active_token_is_its_principal() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let principal = check(&introspection, "a+/=").await.unwrap();
    assert_eq!(principal.id(), format!("{}#u1#c", server.url));
    assert_eq!(principal.roles(), ["ops"]);
    assert_eq!(principal.scopes(), ["read", "tools"]);
    assert!(principal.credential().starts_with("sha256:"));
    assert!(!principal.is_revoked());
    let ends = principal.expires().unwrap().duration_since(UNIX_EPOCH).unwrap();
    assert!((now() + 590..=now() + 600).contains(&ends.as_secs()));
    let question = server.script.asked.lock().unwrap()[0].clone();
    let basic = STANDARD.encode("a+b:s3%3Acr%3Dt");
    assert!(
        question.contains(&format!("authorization: Basic {basic}\r\n")),
        "{question}"
    );
    assert!(
        question.ends_with("\r\n\r\ntoken=a%2B%2F%3D&token_type_hint=access_token"),
        "{question}"
    );
    // What may be left out.
    for member in ["iss", "exp", "nbf", "client_id", "scope", "roles", "token_type"] {
        server.answer(&with(&server.active(), member, Value::Null));
        assert!(check(&introspection, member).await.is_ok(), "{member}");
    }
}

#[tokio::test]
async fn answer_holds_for_its_age() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let principal = check(&introspection, "a").await.unwrap();
    server.answer(&json!({ "active": false }));
    assert_eq!(check(&introspection, "a").await.as_ref(), Ok(&principal));
    assert_eq!(server.asked(), 1);
    tokio::time::pause();
    tokio::time::advance(AGE).await;
    tokio::time::resume();
    assert!(principal.is_revoked());
    assert_eq!(introspection.remembered(&hash_of("a"), SystemTime::now()), None);
    assert_eq!(check(&introspection, "a").await, Err(Unauthenticated::Invalid));
    assert_eq!(server.asked(), 2);
    // The refusal is remembered, for a shorter time.
    assert_eq!(check(&introspection, "a").await, Err(Unauthenticated::Invalid));
    assert_eq!(server.asked(), 2);
    tokio::time::pause();
    tokio::time::advance(REFUSED_AGE).await;
    tokio::time::resume();
    server.answer(&server.active());
    assert!(check(&introspection, "a").await.is_ok());
    // A token ends with its `exp`, whatever is remembered.
    let later = SystemTime::now() + Duration::from_secs(700);
    assert_eq!(introspection.remembered(&hash_of("a"), later), None);
}

#[tokio::test]
async fn unfit_answer_refuses_the_token() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let active = server.active();
    let mut refusing = vec![json!({ "active": false }), json!({ "active": true })];
    for (member, value) in [
        ("active", json!(false)),
        ("iss", json!(format!("{}/", server.url))),
        ("iss", json!(7)),
        ("aud", json!("https://bus.example/mcp/")),
        ("aud", json!(["other"])),
        ("aud", json!({ "a": RESOURCE })),
        ("aud", Value::Null),
        ("exp", json!(now() - 31)),
        ("exp", json!("9999999999")),
        ("exp", json!(-1)),
        ("nbf", json!(now() + 300)),
        ("nbf", json!("x")),
        ("sub", Value::Null),
        ("sub", json!("")),
        ("sub", json!("a\nb")),
        ("sub", json!(7)),
        ("roles", json!([7])),
        ("scope", json!(7)),
        ("token_type", json!("DPoP")),
        ("token_type", json!(7)),
    ] {
        refusing.push(with(&active, member, value));
    }
    for (number, answer) in refusing.iter().enumerate() {
        server.answer(answer);
        let refused = check(&introspection, &format!("t{number}")).await;
        assert_eq!(refused, Err(Unauthenticated::Invalid), "{answer}");
    }
    assert_eq!(server.asked(), refusing.len());
    assert!(introspection.0.state().active.is_empty());
}

#[tokio::test]
async fn unusable_answer_lets_nobody_in() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let active = server.active();
    let mut unusable = Vec::new();
    for value in [json!("true"), json!(1), json!([true]), json!({}), Value::Null] {
        unusable.push(http("200 OK", &with(&active, "active", value).to_string()));
    }
    let padded = with(&active, "pad", json!("x".repeat(ANSWER_MAX)));
    let text = active.to_string();
    unusable.extend([
        http("200 OK", &padded.to_string()),
        http("200 OK", &format!("[{text}]")),
        http("200 OK", &format!("{text}{text}")),
        http("200 OK", "true"),
        http("200 OK", ""),
        http("204 No Content", ""),
        http("500 Internal Server Error", &text),
        http("401 Unauthorized", &text),
        http("201 Created", &text),
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len() + 1
        ),
        format!(
            "HTTP/1.1 302 Found\r\nlocation: {}/stray\r\ncontent-length: 0\r\n\r\n",
            server.url
        ),
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}/stray\r\ncontent-length: 0\r\n\r\n",
            server.url
        ),
        "garbage\r\n\r\n".to_owned(),
        String::new(),
    ]);
    for answer in &unusable {
        server.answer_raw(answer);
        let refused = check(&introspection, "a").await;
        assert_eq!(refused, Err(Unauthenticated::Unavailable), "{answer}");
    }
    assert!(!server.script.strayed.load(Ordering::SeqCst));
    // The same token is good once the issuer answers again.
    server.answer(&active);
    assert!(check(&introspection, "a").await.is_ok());
}

/// Beyond the limit on answers.
const ANSWER_MAX: usize = 64 << 10;

#[tokio::test]
async fn token_is_asked_for_once_at_a_time() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let hash = hash_of("a");
    let checks = (0..50).map(|_| introspection.check("a", &hash));
    for checked in futures_util::future::join_all(checks).await {
        assert!(checked.is_ok());
    }
    assert_eq!(server.asked(), 1);
    assert!(introspection.0.state().asked.is_empty());
}

#[tokio::test]
async fn tokens_that_are_asked_for_are_bounded() {
    let server = Server::start().await;
    server.script.is_silent.store(true, Ordering::SeqCst);
    let introspection = server.introspection(AGE);
    for number in 0..ASKED_MAX {
        let introspection = introspection.clone();
        let token = format!("t{number}");
        tokio::spawn(async move { check(&introspection, &token).await });
    }
    until("the questions", || {
        introspection.0.state().asked.len() == ASKED_MAX
    })
    .await;
    assert_eq!(
        check(&introspection, "more").await,
        Err(Unauthenticated::Unavailable)
    );
    // Those that wait get their answer once there is one, or none in time.
    tokio::time::pause();
    let late = check(&introspection, "t0").await;
    assert_eq!(late, Err(Unauthenticated::Unavailable));
}

#[tokio::test]
async fn tokens_of_other_forms_are_not_shown_to_the_issuer() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    for token in ["tdg_abc".to_owned(), "a".repeat(TOKEN_LEN_MAX + 1)] {
        assert_eq!(check(&introspection, &token).await, Err(Unauthenticated::Invalid));
    }
    assert_eq!(server.asked(), 0);
}

#[tokio::test]
async fn unsafe_endpoint_is_not_asked() {
    for endpoint in [
        json!("http://as.example/introspect"),
        json!("file:///etc/passwd"),
        json!("/introspect"),
        json!(7),
        Value::Null,
    ] {
        let server = Server::start().await;
        *server.script.endpoint.lock().unwrap() = Some(endpoint.clone());
        let introspection = server.introspection(AGE);
        let refused = check(&introspection, "a").await;
        assert_eq!(refused, Err(Unauthenticated::Unavailable), "{endpoint}");
        assert_eq!(server.asked(), 0);
    }
}

#[tokio::test]
async fn token_in_use_is_asked_for_again_until_it_ends() {
    let server = Server::start().await;
    let introspection = server.introspection(Duration::from_millis(600));
    introspection.keep_asking();
    drop(check(&introspection, "unused").await.unwrap());
    let held = check(&introspection, "held").await.unwrap();
    until("several questions", || server.asked() >= 5).await;
    assert!(!held.is_revoked());
    assert_eq!(server.revocations.load(Ordering::SeqCst), 0);
    server.answer(&json!({ "active": false }));
    until("the end of the token", || {
        server.revocations.load(Ordering::SeqCst) > 0
    })
    .await;
    assert!(held.is_revoked());
    until("an empty table", || introspection.0.state().active.is_empty()).await;
    let asked = server.script.asked.lock().unwrap();
    let unused = asked.iter().filter(|question| question.contains("token=unused"));
    assert_eq!(unused.count(), 1);
}

#[tokio::test]
async fn token_ends_when_its_issuer_is_gone() {
    let server = Server::start().await;
    let introspection = server.introspection(Duration::from_millis(600));
    introspection.keep_asking();
    let held = check(&introspection, "a").await.unwrap();
    server.answer_raw("");
    until("the end of the token", || {
        server.revocations.load(Ordering::SeqCst) > 0
    })
    .await;
    assert!(held.is_revoked());
    assert_eq!(
        check(&introspection, "a").await,
        Err(Unauthenticated::Unavailable)
    );
    server.answer(&server.active());
    let again = check(&introspection, "a").await.unwrap();
    assert!(!again.is_revoked() && held.is_revoked());
}

#[tokio::test]
async fn other_rights_end_what_was_opened() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let hash = hash_of("a");
    let ask_again = async || {
        let due = vec![(hash, "a".into())];
        introspection.clone().ask_again(due).await;
        introspection.remembered(&hash, SystemTime::now()).unwrap()
    };
    let first = check(&introspection, "a").await.unwrap();
    server.answer(&with(&server.active(), "exp", json!(now() + 6_000)));
    let later = ask_again().await;
    assert_eq!((later.expires(), first.is_revoked()), (first.expires(), false));
    server.answer(&with(&server.active(), "exp", json!(now() + 60)));
    let earlier = ask_again().await;
    assert!(first.is_revoked() && earlier.expires() < first.expires());
    for (member, value) in [
        ("roles", json!([])),
        ("scope", json!("read")),
        ("sub", json!("u2")),
    ] {
        let before = introspection.remembered(&hash, SystemTime::now()).unwrap();
        server.answer(&with(&server.active(), member, value));
        let after = ask_again().await;
        assert!(before.is_revoked() && !after.is_revoked(), "{member}");
    }
    assert_eq!(server.revocations.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn changed_credentials_are_used_next() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let file = server.folder.path().join("client");
    assert!(check(&introspection, "a").await.is_ok());
    std::fs::write(&file, "client_id = next\nclient_secret = one\n").unwrap();
    assert!(check(&introspection, "b").await.is_ok());
    // A mistake keeps those from before.
    std::fs::write(&file, "client_id = next\n").unwrap();
    assert!(check(&introspection, "c").await.is_ok());
    let asked = server.script.asked.lock().unwrap();
    let next = format!("authorization: Basic {}\r\n", STANDARD.encode("next:one"));
    let with_next: Vec<bool> = asked.iter().map(|question| question.contains(&next)).collect();
    assert_eq!(with_next, [false, true, true]);
}

#[tokio::test]
async fn remembered_tokens_are_bounded() {
    let server = Server::start().await;
    let introspection = server.introspection(AGE);
    let one = check(&introspection, "a").await.unwrap();
    let fill = |principal: &dyn Fn(usize) -> Principal| {
        let mut state = introspection.0.state();
        for number in state.active.len()..REMEMBERED_MAX {
            let active = Active {
                token: "x".into(),
                principal: principal(number),
                confirmed: Arc::new(Confirmed(Mutex::new(Some(Instant::now() + AGE)))),
                ask_at: Instant::now() + AGE,
            };
            state.active.insert(hash_of(&number.to_string()), active);
        }
    };
    fill(&|_| one.clone());
    // All of them are in use, and none of them is ended for a new one.
    assert_eq!(
        check(&introspection, "b").await,
        Err(Unauthenticated::Unavailable)
    );
    introspection
        .0
        .state()
        .active
        .retain(|hash, _| *hash == hash_of("a"));
    fill(&|number| Principal::builder(number.to_string()).build());
    assert!(check(&introspection, "b").await.is_ok());
    assert_eq!(introspection.0.state().active.len(), REMEMBERED_MAX);
    assert!(!one.is_revoked());
}
