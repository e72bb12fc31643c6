//! Client certificates as credentials: their rights, the end of what they opened when they are revoked, and
//! our own clients that present one.

use std::process::Stdio;

use tidings::wire::http1::resource_path;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::*;
use crate::mcp::client::initialize;
use crate::mcp::events::Events;
use crate::mcp::http::Reply;
use crate::mcp::server::binary;

const READER: &str = "spiffe://bus/reader";
const OPS: &str = "ops.bus.example";

const CONFIG: &str = "client_ca = 'FOLDER/clients.pem'\nclient_crl = 'FOLDER/revoked.pem'\n\
    [auth]\nanonymous = 'none'\n\
    [[auth.certificate]]\nname = 'spiffe://bus/reader'\nroles = ['reader']\n\
    [[auth.certificate]]\nname = 'ops.bus.example'\nroles = ['ops']\n\
    [[auth.rule]]\nroles = ['reader']\nmay = ['list', 'read', 'subscribe']\nmatch = ['demo://*']\n\
    [[auth.rule]]\nroles = ['ops']\n\
    may = ['list', 'read', 'subscribe', 'publish', 'call', 'admin', 'metrics']\n\
    match = ['*', 'tool:*', 'prompt:*']\n\
    [store]\ndir = 'FOLDER/kept'\n";

/// A service whose callers have certificates, and addresses by which each of them calls.
struct Certified {
    secure: Secure,
    clients: Authority,
    /// Plain addresses, from which requests go on with a certificate.
    ops: SocketAddr,
    reader: SocketAddr,
    other_reader: SocketAddr,
}

impl Certified {
    async fn start() -> Certified {
        let clients = Authority::new();
        let mut secure = Secure::with(CONFIG, |folder, _| {
            fs::write(folder.join("clients.pem"), clients.pem()).unwrap();
            fs::write(folder.join("revoked.pem"), clients.revoke(&[], 2999)).unwrap();
        })
        .await;
        let call_as = async |pair: &Pair| tunnel(secure.authority.client(Some(pair)), secure.address).await;
        let reader = call_as(&clients.issue(&[uri(READER)], 7)).await;
        let other_reader = call_as(&clients.issue(&[uri(READER)], 8)).await;
        let ops = call_as(&clients.issue(&[SanType::DnsName(OPS.try_into().unwrap())], 9)).await;
        // The harness looks at metrics and publishes as the operators.
        secure.server.address = ops;
        Certified {
            secure,
            clients,
            ops,
            reader,
            other_reader,
        }
    }

    /// Revokes certificates by their serial numbers.
    fn revoke(&self, serials: &[u64]) {
        let lists = self.clients.revoke(serials, 2999);
        fs::write(self.secure.folder.path().join("revoked.pem"), lists).unwrap();
    }

    async fn status_as(&self, address: SocketAddr, method: &'static str) -> u16 {
        let request = Request::new(method, resource_path(A)).header("content-type", "text/plain");
        request.send(address).await.status
    }
}

fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}

/// Opens an MCP session with a stream of updates.
async fn session(address: SocketAddr) -> Events {
    let opened = Request::post(initialize("2025-11-25").to_string())
        .send(address)
        .await;
    assert_eq!(opened.status, 200, "{}", opened.text());
    let id = opened.header("mcp-session-id").unwrap();
    let send = async |message: serde_json::Value| -> Reply {
        let request = Request::post(message.to_string()).header("mcp-session-id", id);
        request.send(address).await
    };
    send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let params = json!({ "uri": A });
    let subscribe = json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": params });
    assert_eq!(send(subscribe).await.status, 200);
    let stream = Request::stream().header("mcp-session-id", id);
    Events::new(stream.open(address).await)
}

/// Waits for the next update.
async fn next_update(events: &mut Events) {
    while updated_uri(&events.message().await) != Some(A) {}
}

#[tokio::test]
async fn certificate_is_a_principal() {
    let certified = Certified::start().await;
    let secure = &certified.secure;
    assert_eq!(certified.status_as(certified.ops, "PUT").await, 201);
    assert_eq!(certified.status_as(certified.reader, "GET").await, 200);
    assert_eq!(certified.status_as(certified.reader, "PUT").await, 403);
    let metrics = Request::new("GET", "/metrics");
    assert_eq!(metrics.send(certified.reader).await.status, 403);
    assert_eq!(metrics.send(certified.ops).await.status, 200);
    // None, one without a role, and one whose second name alone has a role.
    let nobody = certified.clients.issue(&[uri("spiffe://bus/nobody")], 10);
    let second = certified
        .clients
        .issue(&[uri("spiffe://bus/nobody"), uri(READER)], 11);
    for own in [None, Some(&nobody), Some(&second)] {
        let address = tunnel(secure.authority.client(own), secure.address).await;
        assert_eq!(certified.status_as(address, "GET").await, 401);
    }
    // A token goes before the certificate of its connection, wrong ones, too.
    let wrong = Request::new("GET", resource_path(A)).header("authorization", "Bearer wrong");
    assert_eq!(wrong.send(certified.ops).await.status, 401);
}

#[tokio::test]
async fn revoked_certificate_ends_its_open_streams() {
    let certified = Certified::start().await;
    certified.secure.server.put(A, "1").await;
    let mut reading = session(certified.reader).await;
    let (_, mut listening) = listen(certified.reader, &json!(1), updates(&[A])).await;
    let events = Request::new("GET", "/v1/events?kind=removed")
        .open(certified.reader)
        .await;
    assert_eq!(events.status, 200);
    let mut kept = RawConnection::<TcpStream>::open(certified.reader).await;
    let get = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", resource_path(A));
    kept.send(&get).await;
    assert_eq!(kept.status().await, 200);
    // The same principal, by another certificate.
    let mut other = session(certified.other_reader).await;
    certified.secure.server.put(A, "2").await;
    for stream in [&mut reading, &mut listening, &mut other] {
        next_update(stream).await;
    }

    certified.revoke(&[7]);
    // Without a signal: the files are looked at.
    for stream in [&mut reading, &mut listening] {
        while let Ok(event) = stream.event().await {
            assert_eq!(event.message.as_ref().and_then(updated_uri), None);
        }
    }
    let ended = events.reply().await;
    let end = "event: end\ndata: {\"reason\":\"unauthorized\"}\n\n";
    assert!(ended.text().ends_with(end), "{}", ended.text());
    kept.send(&get).await;
    assert_eq!(kept.status().await, 401);
    let request = Request::new("GET", resource_path(A));
    assert!(
        request.try_open(certified.reader).await.is_none(),
        "a new handshake is refused"
    );
    certified.secure.server.put(A, "3").await;
    next_update(&mut other).await;
}

/// A run of the program against the service, with a client certificate.
fn program(certified: &Certified, pair: &Pair, arguments: &[&str]) -> Command {
    let folder = certified.secure.folder.path();
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).unwrap();
        folder.join(name)
    };
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .arg("--client-certificate")
        .arg(write("own.pem", &pair.certificate))
        .arg("--client-key")
        .arg(write("own.key", &pair.key))
        .arg("--ca-certificate")
        .arg(write("authority.pem", &certified.secure.authority.pem()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs the program to its end; returns the exit code, standard output and standard error.
async fn ran(certified: &Certified, pair: &Pair, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = within(arguments[0], program(certified, pair, arguments).output()).await;
    let output = output.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), out, err)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_present_their_certificate() {
    let certified = Certified::start().await;
    let service = format!("https://localhost:{}", certified.secure.address.port());
    let mcp = format!("{service}/mcp");
    let reader = certified.clients.issue(&[uri(READER)], 31);
    let ops = certified
        .clients
        .issue(&[SanType::DnsName(OPS.try_into().unwrap())], 32);
    let nobody = certified.clients.issue(&[uri("spiffe://bus/nobody")], 33);
    certified.secure.server.put(A, "kept").await;

    let get = ["get", A, "--url", &service];
    let got = ran(&certified, &reader, &get).await;
    assert_eq!((got.0, got.1.as_str()), (Some(0), "kept"), "{got:?}");
    let denied = ran(&certified, &nobody, &get).await;
    assert_eq!((denied.0, denied.1.as_str()), (Some(77), ""), "{denied:?}");

    let file = certified.secure.folder.path().join("backup.ndjson");
    let backup = ["store", "backup", "--url", &service, file.to_str().unwrap()];
    let refused = ran(&certified, &reader, &backup).await;
    assert_eq!(refused.0, Some(77), "{refused:?}");
    assert!(!file.exists());
    let made = ran(&certified, &ops, &backup).await;
    assert_eq!(made.0, Some(0), "{made:?}");
    assert!(fs::read_to_string(&file).unwrap().contains(A));

    let check = ["check", "--quiet-time", "1", "--uri", A, &mcp];
    let clean = ran(&certified, &reader, &check).await;
    assert_eq!(clean.0, Some(0), "{clean:?}");
    let denied = ran(&certified, &nobody, &check).await;
    assert_eq!(denied.0, Some(77), "{denied:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_clients_present_their_certificate() {
    let certified = Certified::start().await;
    let service = format!("https://localhost:{}", certified.secure.address.port());
    let mcp = format!("{service}/mcp");
    let reader = certified.clients.issue(&[uri(READER)], 21);
    let ops = certified
        .clients
        .issue(&[SanType::DnsName(OPS.try_into().unwrap())], 22);
    let body = certified.secure.folder.path().join("body");
    fs::write(&body, "text").unwrap();
    let body = body.to_str().unwrap();
    let publish = [
        "publish",
        A,
        body,
        "--url",
        &service,
        "--media-type",
        "text/plain",
    ];
    let published = within("a publish", program(&certified, &ops, &publish).output())
        .await
        .unwrap();
    assert!(published.status.success(), "{published:?}");
    assert_eq!(certified.status_as(certified.reader, "GET").await, 200);
    let refused = within("a refusal", program(&certified, &reader, &publish).output())
        .await
        .unwrap();
    assert_eq!(refused.status.code(), Some(77), "{refused:?}");

    let mut watching = program(&certified, &reader, &["watch", &mcp, A, "--log", "info"])
        .spawn()
        .unwrap();
    let mut log = BufReader::new(watching.stderr.take().unwrap()).lines();
    within("the watch", async {
        while !log.next_line().await.unwrap().unwrap().contains("listening to") {}
    })
    .await;
    let etag = certified.secure.server.put(A, "next").await;
    let mut out = BufReader::new(watching.stdout.take().unwrap()).lines();
    within("an update", async {
        while !out.next_line().await.unwrap().unwrap().contains(&etag) {}
    })
    .await;
    watching.kill().await.unwrap();
}
