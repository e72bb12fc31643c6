//! `GET /v1/events`: the first event, the events after it, and the gaps.
//!
//! The service is the real binary, except where a test makes thousands of changes: there the router runs in a
//! server of the test's own.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::EventsConfig;
use tidings::http::events::{Hub, router};
use tidings::http::{Access, SharedLimits};
use tidings::{Bus, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::mcp::http::{Incoming, Read, Request};
use crate::mcp::server::Server;

const A: &str = "demo://a";

/// The time after which a wait has failed.
const DEADLINE: Duration = Duration::from_secs(120);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else {
        panic!("nothing within {DEADLINE:?}: {what}")
    };
    value
}

/// One block of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: Value,
}

impl Event {
    fn parse(text: &str) -> Event {
        Event {
            id: Event::field(text, "id:"),
            name: Event::field(text, "event:"),
            data: match Event::field(text, "data:") {
                Some(data) => serde_json::from_str(&data).unwrap(),
                None => Value::Null,
            },
        }
    }

    fn field(text: &str, name: &str) -> Option<String> {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim().to_owned())
    }

    fn is(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    /// Returns the offset in its id.
    fn offset(&self) -> u64 {
        let id = self.id.as_deref().unwrap_or_else(|| panic!("no id: {self:?}"));
        id.split_once('-').unwrap().1.parse().unwrap()
    }
}

/// An open stream.
pub(crate) struct Stream {
    incoming: Incoming,
    text: Vec<u8>,
}

impl Stream {
    /// Opens a stream; returns it with the data of its first event.
    pub(crate) async fn open(server: SocketAddr, query: &str) -> (Stream, Value) {
        Stream::of(Request::new("GET", format!("/v1/events{query}")), server).await
    }

    /// Opens a stream that continues after the event `id`.
    pub(crate) async fn resume(server: SocketAddr, query: &str, id: &str) -> (Stream, Value) {
        let request = Request::new("GET", format!("/v1/events{query}")).header("last-event-id", id);
        Stream::of(request, server).await
    }

    pub(crate) async fn of(request: Request, server: SocketAddr) -> (Stream, Value) {
        let incoming = within("a stream", request.try_open(server)).await.unwrap();
        assert_eq!(incoming.status, 200);
        let text = Vec::new();
        let mut stream = Stream { incoming, text };
        let first = stream.event().await;
        assert!(first.is("resumed"), "{first:?}");
        assert_eq!(first.data["from"], *first.id.as_deref().unwrap());
        (stream, first.data)
    }

    /// Returns the next block, comments included.
    async fn block(&mut self) -> Result<Event, Read> {
        within("a block", async {
            loop {
                if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<u8> = self.text.drain(..end + 2).collect();
                    return Ok(Event::parse(std::str::from_utf8(&block).unwrap()));
                }
                match self.incoming.read(&mut self.text).await {
                    Read::More => {}
                    ended => return Err(ended),
                }
            }
        })
        .await
    }

    /// Returns the next event.
    pub(crate) async fn event(&mut self) -> Event {
        loop {
            let block = self.block().await.unwrap_or_else(|ended| panic!("{ended:?}"));
            if block.name.is_some() {
                return block;
            }
        }
    }

    /// Returns the next events, by name and by URI or list.
    async fn events(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            let event = self.event().await;
            let of = event.data["uri"].as_str().or(event.data["list"].as_str());
            events.push(format!("{} {}", event.name.unwrap(), of.unwrap_or_default()));
        }
        events
    }

    /// Reads to the end that the framing promised; returns the last event.
    pub(crate) async fn last(mut self) -> Event {
        let mut last = None;
        loop {
            match self.block().await {
                Ok(block) => last = Some(block).filter(|block| block.name.is_some()).or(last),
                Err(ended) => {
                    assert_eq!(ended, Read::End);
                    return last.expect("an event");
                }
            }
        }
    }
}

/// The router in a server of the test's own.
struct Local {
    bus: Bus,
    hub: Hub,
    address: SocketAddr,
}

impl Local {
    async fn start(change: impl FnOnce(&mut EventsConfig)) -> Local {
        let bus = Bus::builder().start().unwrap();
        let mut config = EventsConfig::default();
        change(&mut config);
        let hub = Hub::start(&bus, &config, Duration::from_secs(10)).await.unwrap();
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let routes = router(hub.clone(), Access::default(), SharedLimits::default());
        tokio::spawn(async move { axum::serve(socket, routes).await });
        Local { bus, hub, address }
    }

    async fn put(&self, uri: &str, body: String) {
        self.bus.upsert(Resource::text(uri, body).unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn stream_names_its_begin_and_carries_its_filter() {
    let server = Server::start().await;
    let (mut all, verdict) = Stream::open(server.address, "").await;
    assert_eq!(
        (&verdict["complete"], &verdict["missed"]),
        (&json!(true), &json!(0))
    );
    let queries = [
        "?uri=demo%3A%2F%2Fa",
        "?uri=note%3A%2F%2F*&kind=updated",
        "?uri=note%3A%2F%2F%7Bname%7D&uri=demo%3A%2F%2Fa&kind=removed",
        "?kind=resources_list_changed",
    ];
    let mut streams = Vec::new();
    for query in queries {
        streams.push(Stream::open(server.address, query).await.0);
    }
    let etag = server.put(A, "1").await;
    server.put("note://b", "1").await;
    server.put("note://b", "1").await;
    server.api("DELETE", A, "").await;
    server.put("note://end", "1").await;
    let told = all.event().await;
    assert!(told.is("updated"));
    assert_eq!((&told.data["uri"], &told.data["etag"]), (&json!(A), &json!(etag)));
    assert!(told.data["time"].as_u64().unwrap() > 1_700_000_000_000);
    let list = "resources_list_changed resources";
    let rest = all.events(7).await;
    assert_eq!(
        rest,
        [
            list,
            "updated note://b",
            list,
            "removed demo://a",
            list,
            "updated note://end",
            list
        ]
    );
    let expected: [&[&str]; 4] = [
        &["updated demo://a", list, list, "removed demo://a", list, list],
        &["updated note://b", "updated note://end"],
        &["removed demo://a"],
        &[list, list, list, list],
    ];
    for ((stream, query), expected) in streams.iter_mut().zip(queries).zip(expected) {
        assert_eq!(stream.events(expected.len()).await, expected, "{query}");
    }
}

#[tokio::test]
async fn resumed_client_gets_missed_events_once() {
    let server = Server::start().await;
    let (mut stream, _) = Stream::open(server.address, "?kind=updated").await;
    server.put(A, "1").await;
    let id = stream.event().await.id.unwrap();
    drop(stream);
    for text in ["2", "3", "4"] {
        server.put(A, text).await;
    }
    let (mut header, verdict) = Stream::resume(server.address, "?kind=updated", &id).await;
    assert_eq!(verdict, json!({ "complete": true, "from": id, "missed": 0 }));
    let query = format!("?kind=updated&last_event_id={id}");
    let (mut query, same) = Stream::open(server.address, &query).await;
    assert_eq!(same, verdict);
    server.put("note://end", "1").await;
    for stream in [&mut header, &mut query] {
        let told = stream.events(4).await;
        assert_eq!(
            told[..3],
            ["updated demo://a", "updated demo://a", "updated demo://a"]
        );
        assert_eq!(told[3], "updated note://end");
    }
}

#[tokio::test]
async fn forgotten_events_are_reported_as_missing() {
    let server = Server::with("[events]\nhistory_max = 4\n").await;
    let (mut stream, _) = Stream::open(server.address, "?kind=updated").await;
    server.put(A, "1").await;
    let id = stream.event().await.id.unwrap();
    for text in 2..=9 {
        server.put(A, &text.to_string()).await;
        // A write is answered once its event is queued for the history; a stream that has it shows that it is
        // there.
        let event = stream.event().await;
        assert!(
            event.data["etag"]
                .as_str()
                .unwrap()
                .starts_with(&format!("v{text}-")),
            "{event:?}"
        );
    }

    // The first write changed a list too, so nine events followed `id`, of which four are left.
    let (mut stream, first) = Stream::resume(server.address, "", &id).await;
    assert_eq!((&first["complete"], &first["missed"]), (&json!(false), &json!(5)));
    let event = stream.event().await;
    assert!(
        event.data["etag"].as_str().unwrap().starts_with("v6-"),
        "{event:?}"
    );

    // The number of events since a position of another process is unknown.
    let (mut stream, first) = Stream::resume(server.address, "", "1-1").await;
    assert_eq!(
        (&first["complete"], &first["missed"]),
        (&json!(false), &Value::Null)
    );
    let event = stream.event().await;
    assert!(
        event.data["etag"].as_str().unwrap().starts_with("v6-"),
        "{event:?}"
    );
}

#[tokio::test]
async fn position_outlives_process_with_store() {
    let data = tempfile::tempdir().unwrap();
    let config = format!("[store]\ndir = {:?}\n", data.path());
    let mut server = Server::with(&config).await;
    let (mut stream, _) = Stream::open(server.address, "?uri=demo%3A%2F%2Fa").await;
    server.put(A, "1").await;
    stream.event().await;
    let id = stream.event().await.id.unwrap();
    server.terminate();
    assert!(stream.last().await.is("end"));
    server.assert_ended().await;
    let server = Server::with(&config).await;
    let (mut stream, verdict) = Stream::resume(server.address, "?kind=updated", &id).await;
    assert_eq!(verdict["complete"], true, "{verdict}");
    let etag = server.put(A, "2").await;
    assert_eq!(stream.event().await.data["etag"], *etag);
}

#[tokio::test]
async fn restarted_history_has_the_newest_events() {
    let data = tempfile::tempdir().unwrap();
    let config = format!("[store]\ndir = {:?}\n", data.path());
    let mut server = Server::with(&config).await;
    let (mut stream, verdict) = Stream::open(server.address, "?kind=updated").await;
    let from = verdict["from"].as_str().unwrap().to_owned();
    let b = "demo://b";
    let mut ids = Vec::new();
    let mut texts = Vec::new();
    for (path, body) in [(A, "1"), (b, "1"), (A, "2"), (A, "3")] {
        server.put(path, body).await;
        let event = stream.event().await;
        ids.push(event.id.clone().unwrap());
        texts.push(event.data["etag"].clone());
    }
    server.terminate();
    stream.last().await;
    server.assert_ended().await;
    let mut server = Server::with(&config).await;
    // Position, the changes that are overwritten, and the etags that follow.
    for (id, missed, follow) in [
        (&from, 3, [1, 3].as_slice()),
        (&ids[0], 2, &[1, 3]),
        (&ids[1], 1, &[3]),
        (&ids[2], 0, &[3]),
    ] {
        let (mut stream, verdict) = Stream::resume(server.address, "?kind=updated", id).await;
        assert_eq!(
            (&verdict["complete"], &verdict["missed"]),
            (&json!(missed == 0), &json!(missed)),
            "{id}"
        );
        let reason = if missed == 0 {
            Value::Null
        } else {
            json!("overwritten")
        };
        assert_eq!(verdict["reason"], reason);
        for at in follow {
            let event = stream.event().await;
            assert_eq!(
                (&event.id, &event.data["etag"]),
                (&Some(ids[*at].clone()), &texts[*at])
            );
        }
    }
    // A position that the life before has not reached is that of another history.
    let (epoch, offset) = ids[3].split_once('-').unwrap();
    let beyond = offset.parse::<u64>().unwrap() + 9;
    let (_, verdict) = Stream::resume(server.address, "", &format!("{epoch}-{beyond}")).await;
    assert_eq!(
        (&verdict["complete"], &verdict["missed"], &verdict["reason"]),
        (&json!(false), &Value::Null, &json!("another history"))
    );
    server.terminate();
    server.assert_ended().await;
}

#[tokio::test]
async fn filtered_stream_learns_its_position() {
    let server = Server::with("[http]\nkeep_alive = \"1s\"\n").await;
    let (mut stream, verdict) = Stream::open(server.address, "?uri=demo%3A%2F%2Fother&kind=updated").await;
    server.put(A, "1").await;
    let id = loop {
        let block = stream.block().await.unwrap();
        assert_eq!(block.name, None, "{block:?}");
        if let Some(id) = block.id {
            break id;
        }
    };
    assert_ne!(verdict["from"], *id);
    let (_, verdict) = Stream::resume(server.address, "", &id).await;
    assert_eq!(
        (&verdict["complete"], &verdict["from"]),
        (&json!(true), &json!(id))
    );
}

#[tokio::test]
async fn signal_ends_streams_after_their_last_event() {
    let mut server = Server::start().await;
    let (stream, _) = Stream::open(server.address, "?kind=updated").await;
    let (mut other, _) = Stream::open(server.address, "?kind=updated").await;
    let etag = server.put(A, "1").await;
    server.terminate();
    assert_eq!(other.event().await.data["etag"], *etag);
    for stream in [stream, other] {
        let last = stream.last().await;
        assert!(last.is("end"), "{last:?}");
        assert_eq!(last.data, json!({ "reason": "shutdown" }));
    }
    server.assert_ended().await;
}

#[tokio::test]
async fn streams_beyond_limit_are_refused() {
    let server = Server::with("[events]\nstreams_max = 1\n").await;
    let (stream, _) = Stream::open(server.address, "").await;
    let refused = Request::new("GET", "/v1/events").send(server.address).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(
        refused.json()["detail"]
            .as_str()
            .unwrap()
            .contains("events.streams_max")
    );
    drop(stream);
    within("room for a stream", async {
        loop {
            let incoming = Request::new("GET", "/v1/events").open(server.address).await;
            if incoming.status == 200 {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let off = Server::with("[events]\nstreams_max = 0\n").await;
    let reply = Request::new("GET", "/v1/events").send(off.address).await;
    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn only_pages_of_allowed_origins_may_read() {
    let server = Server::with("[http]\nallowed_origins = [\"https://app.example\"]\n").await;
    for origin in ["http://localhost:3000", "https://app.example"] {
        let request = Request::new("GET", "/v1/events").header("origin", origin);
        let incoming = request.open(server.address).await;
        assert_eq!(incoming.status, 200);
        for (name, expected) in [
            ("vary", "origin"),
            ("access-control-allow-origin", origin),
            ("content-type", "text/event-stream"),
        ] {
            let expected = (name.to_owned(), expected.to_owned());
            assert!(incoming.headers.contains(&expected), "{:?}", incoming.headers);
        }
        let reply = Request::new("OPTIONS", "/v1/events").header("origin", origin);
        let reply = reply.send(server.address).await;
        assert_eq!(
            (reply.status, reply.header("access-control-allow-origin")),
            (204, Some(origin))
        );
        assert!(
            reply
                .header("access-control-allow-headers")
                .unwrap()
                .contains("last-event-id")
        );
    }
    for origin in ["https://evil.example", "null"] {
        let request = Request::new("GET", "/v1/events").header("origin", origin);
        let reply = request.send(server.address).await;
        assert_eq!(
            (reply.status, reply.header("access-control-allow-origin")),
            (403, None)
        );
    }
}

#[tokio::test]
async fn unknown_query_is_refused_by_name() {
    let server = Server::start().await;
    for (query, named) in [
        ("?kind=changed", "changed"),
        ("?uri=none", "none"),
        ("?url=demo%3A%2F%2Fa", "url"),
    ] {
        let reply = Request::new("GET", format!("/v1/events{query}"))
            .send(server.address)
            .await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(
            reply.json()["detail"].as_str().unwrap().contains(named),
            "{query}"
        );
    }
    let reply = Request::new("POST", "/v1/events").send(server.address).await;
    assert_eq!(reply.status, 405);
}

/// Reads a stream to `end`, but cuts the connection after a few events each time and resumes with the last
/// id. Every offset must come once, in order.
async fn follow_with_cuts(address: SocketAddr, mut cut: u64, from: String, end: u64) -> u64 {
    let mut known = from;
    let mut connections = 0;
    loop {
        let (mut stream, verdict) = Stream::resume(address, "", &known).await;
        assert_eq!(verdict, json!({ "complete": true, "from": known, "missed": 0 }));
        connections += 1;
        cut = cut * 7 % 61 + 1;
        for _ in 0..cut {
            let event = stream.event().await;
            let before: u64 = known.split_once('-').unwrap().1.parse().unwrap();
            assert_eq!(event.offset(), before + 1, "a missing or repeated event");
            known = event.id.unwrap();
            if before + 1 == end {
                return connections;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_cuts_lose_and_repeat_no_event() {
    const CHANGES: u64 = 1_500;
    let local = Local::start(|_| ()).await;
    for name in 0..5 {
        local.put(&format!("demo://{name}"), "begin".into()).await;
    }
    let (_, verdict) = Stream::open(local.address, "").await;
    let from = verdict["from"].as_str().unwrap().to_owned();
    let begin: u64 = from.split_once('-').unwrap().1.parse().unwrap();
    let mut clients = JoinSet::new();
    for cut in 1..=6 {
        clients.spawn(follow_with_cuts(
            local.address,
            cut * 9,
            from.clone(),
            begin + CHANGES,
        ));
    }
    for change in 0..CHANGES {
        local
            .put(&format!("demo://{}", change % 5), change.to_string())
            .await;
    }
    let connections = clients.join_all().await;
    assert!(connections.iter().all(|count| *count > 20), "{connections:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_client_gets_gap_and_delays_no_other() {
    const CHANGES: u64 = 4_000;
    let local = Local::start(|options| options.history_max = 2_000).await;
    let uri = format!("demo://{}", "x".repeat(1_500));
    let (mut first, _) = Stream::open(local.address, "").await;
    local.put(&uri, "begin".into()).await;
    // A change is answered once it is queued for the history. Its last event shows that the history has it.
    while !first.event().await.is("resources_list_changed") {}
    let stalled = Request::new("GET", "/v1/events").small_receive_buffer();
    let (mut stalled, verdict) = Stream::of(stalled, local.address).await;
    let from = verdict["from"].as_str().unwrap();
    let begin: u64 = from.split_once('-').unwrap().1.parse().unwrap();
    let mut streams = vec![first];
    for _ in 1..50 {
        streams.push(Stream::open(local.address, "").await.0);
    }
    let mut healthy = JoinSet::new();
    let mut read = Vec::new();
    for mut stream in streams {
        let (tell, told) = watch::channel(0);
        read.push(told);
        healthy.spawn(async move {
            for change in 1..=CHANGES {
                let event = stream.event().await;
                assert!(event.is("updated"), "{event:?}");
                assert_eq!(event.offset(), begin + change);
                tell.send_replace(change);
            }
        });
    }
    assert_eq!(local.hub.streams(), 51);
    for change in 0..CHANGES {
        local.put(&uri, change.to_string()).await;
        if change % 500 == 0 {
            // The history is shorter than the test, so the readers get the time that they need on a busy
            // machine.
            for told in &mut read {
                within("a healthy client", told.wait_for(|read| read + 1_000 > change))
                    .await
                    .unwrap();
            }
        }
    }
    healthy.join_all().await;
    let mut at = begin;
    let mut missed = 0;
    while at < begin + CHANGES {
        let event = stalled.event().await;
        if event.is("gap") {
            missed += event.data["missed"].as_u64().unwrap();
            assert_eq!(event.offset(), at + event.data["missed"].as_u64().unwrap());
        } else {
            assert_eq!(event.offset(), at + 1);
        }
        at = event.offset();
    }
    assert!(missed > 0, "the stalled client missed nothing");
}
