//! The ids of events of a caller with few rights: they tell neither order nor number, and resume exactly.

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{HIDDEN, OTHER, RULES, Ruled, SEEN, Way};
use crate::mcp::events::{Events, updated_uri};
use crate::mcp::http::{Incoming, Request, within};

/// An open `/v1/events`.
struct Opened {
    incoming: Incoming,
    text: Vec<u8>,
}

/// One event, or a keep-alive with an id.
#[derive(Debug)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

impl Opened {
    async fn open(way: &Way, after: Option<&str>) -> (Opened, Event) {
        let mut request = way.with(Request::new("GET", "/v1/events?kind=updated"));
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        let incoming = request.open(way.address).await;
        let mut opened = Opened {
            incoming,
            text: Vec::new(),
        };
        let first = opened.next().await;
        (opened, first)
    }

    async fn next(&mut self) -> Event {
        within("an event", async {
            loop {
                let text = String::from_utf8(self.text.clone()).unwrap();
                if let Some((event, rest)) = text.split_once("\n\n") {
                    let field = |name: &str| {
                        let line = event.lines().find_map(|line| line.strip_prefix(name));
                        line.unwrap_or_default().trim().to_owned()
                    };
                    let found = Event {
                        id: field("id:"),
                        name: field("event:"),
                        data: serde_json::from_str(&field("data:")).unwrap_or_default(),
                    };
                    self.text = rest.as_bytes().to_vec();
                    if !found.id.is_empty() {
                        return found;
                    }
                    continue;
                }
                self.incoming.read(&mut self.text).await;
            }
        })
        .await
    }

    /// Returns the next event of a resource.
    async fn update(&mut self) -> Event {
        loop {
            let event = self.next().await;
            if event.name == "updated" {
                return event;
            }
        }
    }
}

fn is_sealed(id: &str) -> bool {
    id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[tokio::test]
async fn reader_resumes_by_ids_that_tell_nothing() {
    let ruled = Ruled::start().await;
    let reader = ruled.way(&ruled.reader);
    let ops = ruled.way(&ruled.ops);
    let (mut stream, begin) = Opened::open(&reader, None).await;
    let (mut whole, first) = Opened::open(&ops, None).await;
    // A caller that may be told of everything has positions, as without rules.
    assert!(
        first.id.contains('-') && first.data["from"] == first.id,
        "{first:?}"
    );
    assert!(
        is_sealed(&begin.id) && begin.data["from"] == begin.id,
        "{begin:?}"
    );
    ruled.put(SEEN, "2").await;
    for text in 2..5 {
        ruled.put(HIDDEN, &text.to_string()).await;
    }
    ruled.put(OTHER, "2").await;
    let seen = stream.update().await;
    let other = stream.update().await;
    assert_eq!(
        (&seen.data["uri"], &other.data["uri"]),
        (&json!(SEEN), &json!(OTHER))
    );
    assert!(is_sealed(&seen.id) && is_sealed(&other.id));
    assert_ne!(seen.id, other.id);
    let plain = whole.update().await.id;
    assert!(plain.contains('-'), "{plain}");

    for (id, follow) in [(&begin.id, vec![SEEN, OTHER]), (&seen.id, vec![OTHER])] {
        let (mut again, resumed) = Opened::open(&reader, Some(id)).await;
        assert_eq!(resumed.data["complete"], true, "{resumed:?}");
        for uri in follow {
            assert_eq!(again.update().await.data["uri"], uri);
        }
    }
    // Positions that it could count with are not its own.
    let (_, refused) = Opened::open(&reader, Some(&plain)).await;
    let answer = (&refused.data["complete"], &refused.data["reason"]);
    assert_eq!(answer, (&json!(false), &json!("another history")));
    // A caller that gained rights goes on with the id from before.
    let (mut gained, resumed) = Opened::open(&ops, Some(&seen.id)).await;
    assert_eq!(resumed.data["complete"], true, "{resumed:?}");
    assert_eq!(gained.update().await.data["uri"], HIDDEN);
}

#[tokio::test]
async fn lost_right_makes_ids_of_open_streams_opaque() {
    let ruled = Ruled::start().await;
    let (mut stream, _) = Opened::open(&ruled.way(&ruled.ops), None).await;
    ruled.put(SEEN, "2").await;
    assert!(!is_sealed(&stream.update().await.id));
    ruled.replace_rules(&RULES.replace("match = ['*', 'tool:*', 'prompt:*']", "match = ['note://*']"));
    within("the new rules", async {
        while ruled.put(HIDDEN, "2").await.status != 403 {}
    })
    .await;
    ruled.put(SEEN, "3").await;
    // The event of before the rules changed may come first.
    while stream.update().await.data["uri"] != SEEN {}
    ruled.put(SEEN, "4").await;
    assert!(is_sealed(&stream.update().await.id));
}

#[tokio::test]
async fn silent_stream_has_a_new_id_each_time() {
    let ruled = Ruled::start_with(&format!("{RULES}[http]\nkeep_alive = '1s'\n"), "").await;
    let (mut stream, begin) = Opened::open(&ruled.way(&ruled.reader), None).await;
    // Whether something changed that it may not see makes no difference.
    let quiet = stream.next().await;
    ruled.put(HIDDEN, "2").await;
    let busy = stream.next().await;
    for event in [&quiet, &busy] {
        assert!(event.name.is_empty() && is_sealed(&event.id), "{event:?}");
    }
    assert_ne!(begin.id, quiet.id);
    assert_ne!(quiet.id, busy.id);
    let (_, resumed) = Opened::open(&ruled.way(&ruled.reader), Some(&busy.id)).await;
    assert_eq!(resumed.data["complete"], true, "{resumed:?}");
}

#[tokio::test]
async fn session_of_a_reader_resumes_by_an_opaque_id() {
    let ruled = Ruled::start().await;
    let reader = ruled.way(&ruled.reader);
    let (session, mut stream) = reader.session(&[SEEN, OTHER]).await;
    ruled.put(SEEN, "2").await;
    let id = loop {
        let event = stream.event().await.unwrap();
        if event.message.as_ref().and_then(updated_uri) == Some(SEEN) {
            break event.id.unwrap();
        }
    };
    assert!(is_sealed(&id), "{id}");
    ruled.put(HIDDEN, "2").await;
    ruled.put(OTHER, "2").await;
    while updated_uri(&stream.message().await) != Some(OTHER) {}
    // As if the last notice had been lost on its way.
    for (id, uris) in [(id.as_str(), vec![OTHER]), ("0-0", vec![SEEN, OTHER])] {
        let request = Request::stream()
            .header("mcp-session-id", &session)
            .header("last-event-id", id);
        let mut again = Events::new(reader.with(request).open(reader.address).await);
        let mut told = Vec::new();
        while told.len() < uris.len() {
            told.extend(updated_uri(&again.message().await).map(str::to_owned));
        }
        told.sort_by_key(|uri| uri != SEEN);
        assert_eq!(told, uris, "{id}");
    }
}

#[tokio::test]
async fn socket_of_a_reader_gets_opaque_positions() {
    let ruled = Ruled::start().await;
    for (token, is_reader) in [(&ruled.reader, true), (&ruled.ops, false)] {
        let url = format!("ws://{}/v1/ws", ruled.server.address);
        let mut request = url.into_client_request().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        let subscribe = json!({ "type": "subscribe", "id": 1, "uris": [SEEN], "known": { SEEN: null } });
        futures_util::SinkExt::send(&mut socket, subscribe.to_string().into())
            .await
            .unwrap();
        let position = within("the position", async {
            loop {
                let message = socket.next().await.unwrap().unwrap();
                let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap_or_default();
                if message["type"] == "updated" {
                    return message["position"].as_str().unwrap().to_owned();
                }
            }
        })
        .await;
        assert_eq!(is_sealed(&position), is_reader, "{position}");
    }
}

#[tokio::test]
async fn opaque_id_outlives_the_process_with_a_store() {
    let data = tempfile::tempdir().unwrap();
    let rules = format!("{RULES}[store]\ndir = {:?}\n", data.path());
    let mut ruled = Ruled::start_with(&rules, "").await;
    let (mut stream, _) = Opened::open(&ruled.way(&ruled.reader), None).await;
    ruled.put(SEEN, "2").await;
    let id = stream.update().await.id;
    ruled.put(OTHER, "2").await;
    let config = std::fs::read_to_string(ruled.server.folder().join("tidings.toml")).unwrap();
    let tokens = ["reader", "ops"].map(|name| {
        let text = std::fs::read_to_string(ruled.server.folder().join(name)).unwrap();
        (name, text)
    });
    ruled.server.terminate();
    ruled.server.assert_ended().await;
    let files: Vec<(&str, &str)> = tokens.iter().map(|(name, text)| (*name, text.as_str())).collect();
    ruled.server = crate::mcp::server::Server::with_files(&config, &files).await;
    let (mut again, resumed) = Opened::open(&ruled.way(&ruled.reader), Some(&id)).await;
    assert_eq!(resumed.data["complete"], true, "{resumed:?}");
    assert_eq!(again.update().await.data["uri"], OTHER);
}
