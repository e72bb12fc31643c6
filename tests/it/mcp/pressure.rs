//! Back-pressure over real sockets: stalled readers, vanished clients, publishers that are faster than the
//! bus.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tidings::wire::http1::{HttpTarget, ResponseReader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Client, LEGACY, listen, listen_request, updates};
use super::events::{Events, updated_etag, updated_uri, version};
use super::http::within;
use super::local::Local;
use super::server::Server;

/// A client of the HTTP API that keeps its connection and does not wait for answers.
struct Publisher {
    target: HttpTarget,
    stream: TcpStream,
}

impl Publisher {
    async fn connect(server: SocketAddr) -> Publisher {
        let stream = within("a connection", TcpStream::connect(server))
            .await
            .expect("the server listens");
        Publisher {
            target: HttpTarget::mcp(server),
            stream,
        }
    }

    /// PUTs all of it and reads as many answers, each of which must be a success.
    async fn put_all(&mut self, puts: &[(String, String)]) {
        let mut requests = Vec::new();
        for (uri, text) in puts {
            requests.extend(self.target.put_resource(uri, text));
        }
        let (mut reading, mut writing) = self.stream.split();
        // Written and read at once: the server stops reading while its answers are not read.
        let write = async { writing.write_all(&requests).await };
        let read = async {
            let mut bytes = Vec::new();
            for _ in puts {
                let mut answer = ResponseReader::default();
                loop {
                    let used = answer.read(&bytes, |_| ()).expect("an HTTP response");
                    bytes.drain(..used);
                    if answer.is_done() {
                        break;
                    }
                    let count = reading.read_buf(&mut bytes).await.expect("the server answers");
                    assert!(count > 0, "the server closed the connection");
                }
                let status = answer.head().expect("a head").status;
                assert!((200..210).contains(&status), "{status}");
            }
        };
        let (written, ()) = within("the answers of the HTTP API", async { tokio::join!(write, read) }).await;
        written.expect("the server reads");
    }
}

fn puts(uris: &[String], round: usize) -> Vec<(String, String)> {
    uris.iter()
        .map(|uri| (uri.clone(), format!("{uri} in round {round}")))
        .collect()
}

#[tokio::test]
async fn stalled_reader_slows_no_one_and_gets_newest() {
    let server = Server::start().await;
    let mut publisher = Publisher::connect(server.address).await;
    let many: Vec<String> = (0..50).map(|number| format!("demo://many/{number}")).collect();
    publisher.put_all(&puts(&many, 0)).await;
    server.put("demo://steady", "0").await;

    // One stream that is not read, and 99 that are.
    let names: Vec<&str> = many.iter().map(String::as_str).collect();
    let request = listen_request(&json!("stalled"), updates(&names)).small_receive_buffer();
    let incoming = request.open(server.address).await;
    let mut stalled = Events::new(incoming);
    let mut others = Vec::new();
    for number in 0..99 {
        let (_, stream) = listen(server.address, &json!(number), updates(&["demo://steady"])).await;
        others.push(stream);
    }

    // A hundred rounds of updates: the readers get each, and the server's memory does not grow.
    let mut before = 0;
    for round in 1..=100 {
        publisher.put_all(&puts(&many, round)).await;
        let etag = server.put("demo://steady", &round.to_string()).await;
        for other in &mut others {
            assert_eq!(
                updated_etag(&other.message().await),
                etag,
                "each of the others gets each update"
            );
        }
        if round == 20 {
            // By then every buffer on the way has its full size.
            before = server.memory();
        }
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 4 << 20, "the server grew by {grown} bytes");
    // One entry per subscription, for any number of updates.
    for (subscriptions, pending) in [(50, 50), (1, 0)] {
        let sessions = server.sessions().await;
        let own = sessions.iter().find(|one| one["subscriptions"] == subscriptions);
        assert_eq!(own.expect("its session")["pending"]["entries"], pending);
    }

    // The stalled stream then reads the newest version of each resource, with few of those in between.
    let mut seen: HashMap<String, u64> = HashMap::new();
    let mut events = 0;
    while seen.len() < many.len() || seen.values().any(|version| *version < 101) {
        let message = stalled.message().await;
        let Some(uri) = updated_uri(&message) else {
            continue;
        };
        let now = version(&updated_etag(&message));
        let last = seen.insert(uri.to_owned(), now).unwrap_or(1);
        assert!(now > last, "{uri} went from {last} to {now}");
        events += 1;
    }
    assert!(
        events < 5_000,
        "{events} events of 5,000 updates: nothing was conflated"
    );
}

#[tokio::test]
async fn vanished_clients_leave_nothing_behind() {
    let server = Server::start().await;
    server.put("demo://a", "1").await;
    let session = Client::open(server.address, "2025-11-25").await;
    session.subscribe("demo://a").await;
    for reset in [false, true] {
        let mut streams = vec![session.stream().await];
        for number in 0..20 {
            let (_, stream) = listen(server.address, &json!(number), updates(&["demo://a"])).await;
            streams.push(stream);
        }
        server
            .until("all are there", |all| {
                all.len() == 21 && all.iter().all(|one| one["streams"] == 1)
            })
            .await;
        for stream in streams {
            if reset {
                stream.incoming.reset();
            }
        }
        server
            .until("listen streams end with their connection", |all| all.len() == 1)
            .await;
        server
            .until("a session outlives its stream", |all| all[0]["streams"] == 0)
            .await;
    }
    server.put("demo://a", "2").await;
    let mut stream = session.stream().await;
    while updated_uri(&stream.message().await) != Some("demo://a") {}
}

#[tokio::test]
async fn sessions_of_vanished_clients_end_when_idle() {
    let local = Local::with(|options| options.session.idle_timeout = Duration::from_millis(300)).await;
    local.put("demo://a", "1").await;
    for reset in [false, true] {
        for revision in LEGACY {
            let client = Client::open(local.server, revision).await;
            let stream = client.stream().await;
            client.subscribe("demo://a").await;
            if reset {
                stream.incoming.reset();
            }
        }
    }
    local.until("they are gone", <[_]>::is_empty).await;
    assert_eq!(local.bus.touch("demo://a").await.unwrap().notified, 0);
}

#[tokio::test]
async fn fast_publishers_wait_for_admission() {
    let server = Server::with("[bus]\nin_flight_max = 2\n").await;
    let uris: Vec<String> = (0..8).map(|number| format!("demo://{number}")).collect();
    for uri in &uris {
        server.put(uri, "0").await;
    }
    let names: Vec<&str> = uris.iter().map(String::as_str).collect();
    let (_, mut stream) = listen(server.address, &json!(1), updates(&names)).await;
    let mut publishers = Vec::new();
    for uri in uris.clone() {
        let address = server.address;
        publishers.push(tokio::spawn(async move {
            let puts: Vec<_> = (1..=200).map(|round| (uri.clone(), format!("{round}"))).collect();
            Publisher::connect(address).await.put_all(&puts).await;
        }));
    }
    let mut seen: HashMap<String, u64> = HashMap::new();
    while seen.len() < uris.len() || seen.values().any(|version| *version < 201) {
        let message = stream.message().await;
        let uri = updated_uri(&message).expect("an update");
        let now = version(&updated_etag(&message));
        assert!(seen.insert(uri.to_owned(), now).unwrap_or(1) < now);
    }
    for publisher in publishers {
        publisher.await.expect("every PUT succeeded");
    }
}
