//! Sessions that go from node to node.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::brokers::{self, Brokers};
use super::node::{Node, config};
use super::session_client::{ListenClient, PATIENCE, SessionClient};

/// The variable with the number of rounds of the long test.
const ROUNDS: &str = "TIDINGS_CLUSTER_ROUNDS";

/// The rounds of the short one.
const ROUNDS_SHORT: usize = 12;

/// The etags of resources, by URI.
type Etags = BTreeMap<String, String>;

/// Changes a resource through a node, and returns its etag as notifications have it.
async fn put(node: &Node, uri: &str, text: &str) -> String {
    let answer = node.put(uri, text).await;
    assert!(
        matches!(answer.status, 201 | 204),
        "{}: {}",
        answer.status,
        answer.text
    );
    answer.unquoted_etag()
}

fn start<const N: usize>(names: [&str; N], folder: &Path, config: &str) -> [Node; N] {
    names.map(|name| Node::start(name, folder, config))
}

/// Waits until a node shows these etags.
async fn until_applied(node: &Node, etags: &Etags) {
    for (uri, etag) in etags {
        let begin = Instant::now();
        let path = format!("/v1/resources/{}", uri.replace(':', "%3A").replace('/', "%2F"));
        loop {
            let found = node.ask("GET", &path, "").await.etag;
            if matches!(&found, Some(found) if found.trim_matches('"') == etag) {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "{}: {uri}: {found:?}", node.name);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// The value of a metric of a node.
async fn metric(node: &Node, name: &str) -> f64 {
    let text = node.ask("GET", "/metrics", "").await.text;
    let line = text
        .lines()
        .find(|line| line.starts_with(name) && !line.starts_with('#'));
    let line = line.unwrap_or_else(|| panic!("no metric {name}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Clients of both eras that are at another node in each round, while resources change before they come and
/// while they are there.
async fn hop(rounds: usize) {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let nodes = start(["a", "b", "c"], folder.path(), &config(brokers, "hops"));
    let uris: Vec<String> = (0..4).map(|n| format!("demo://{n}")).collect();
    let mut etags = Etags::new();
    for uri in &uris {
        etags.insert(uri.clone(), put(&nodes[0], uri, "begin").await);
    }
    for node in &nodes {
        until_applied(node, &etags).await;
    }
    // One resumes from its last event, one keeps its old stream until the new one is there.
    let mut resuming = SessionClient::open(&nodes[0], None).await;
    let mut overlapping = SessionClient::open(&nodes[0], None).await;
    let mut listening = ListenClient::new(&uris);
    listening.holds(&etags);
    for uri in &uris {
        resuming.subscribed(&nodes[0], uri).await;
        overlapping.subscribed(&nodes[0], uri).await;
    }
    let mut old = overlapping.stream(&nodes[0], false).await;
    let begin = Instant::now();
    for round in 0..rounds {
        let node = &nodes[(round + 1) % 3];
        let others = [&nodes[round % 3], &nodes[(round + 2) % 3]];
        let mut changed = Etags::new();
        let away = &uris[round % 4];
        changed.insert(away.clone(), put(others[0], away, &format!("away {round}")).await);
        until_applied(node, &changed).await;
        let mut new = overlapping.stream(node, false).await;
        let end = overlapping.read_to_end(&mut old).await;
        assert!(
            matches!(&end, Some(end) if end.starts_with("moved: ")),
            "round {round}: {end:?}"
        );
        let mut resumed = resuming.stream(node, true).await;
        let mut listened = listening.listen(node).await;
        let there = &uris[(round + 1) % 4];
        changed.insert(
            there.clone(),
            put(others[1], there, &format!("there {round}")).await,
        );
        overlapping.read_until(&mut new, &changed).await;
        resuming.read_until(&mut resumed, &changed).await;
        listening.read_until(&mut listened, &changed).await;
        for (told, client) in [
            (&overlapping.told, "without an id"),
            (&resuming.told, "with Last-Event-ID"),
            (&listening.told, "that listens"),
        ] {
            assert!(
                told.repeats.is_empty(),
                "round {round}: the client {client} was told again: {:?}",
                told.repeats
            );
        }
        old = new;
        etags.extend(changed);
    }
    let elapsed = begin.elapsed();
    let mut moved = 0.0;
    for node in &nodes {
        moved += metric(node, "tidings_cluster_sessions_moved_total").await;
    }
    eprintln!(
        "{rounds} rounds of 3 clients in {:.1} s, {moved} moves of 2 sessions, {} changes: each told once",
        elapsed.as_secs_f64(),
        rounds * 2
    );
    assert!(moved >= (rounds * 2) as f64, "{moved}");
    // In the first rounds each client gets the list as it is, and no other.
    assert!(overlapping.told.lists.len() <= 3, "{:?}", overlapping.told.lists);
    assert!(resuming.told.lists.len() <= 3, "{:?}", resuming.told.lists);
}

#[tokio::test]
async fn hopping_clients_are_told_each_final_once() {
    hop(ROUNDS_SHORT).await;
}

#[tokio::test]
#[ignore = "takes minutes; TIDINGS_CLUSTER_ROUNDS sets the number of rounds"]
async fn hopping_clients_long_are_told_each_final_once() {
    let rounds = match std::env::var(ROUNDS) {
        Ok(rounds) => rounds.parse().unwrap(),
        Err(_unset) => 1_000,
    };
    hop(rounds).await;
}

#[tokio::test]
async fn answered_subscription_survives_kill_of_its_node() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = start(["a", "b"], folder.path(), &config(brokers, "death"));
    let mut etags = Etags::new();
    for uri in ["demo://kept", "demo://left"] {
        etags.insert(uri.to_owned(), put(&a, uri, "one").await);
    }
    until_applied(&b, &etags).await;
    let mut client = SessionClient::open(&a, None).await;
    client.subscribed(&a, "demo://left").await;
    client.unsubscribed(&a, "demo://left").await;
    client.subscribed(&a, "demo://kept").await;
    // Killed: it can tell no other node anything.
    drop(a);
    put(&b, "demo://left", "two").await;
    let two = put(&b, "demo://kept", "two").await;
    let mut stream = client.stream(&b, false).await;
    client
        .read_until(&mut stream, &Etags::from([("demo://kept".to_owned(), two)]))
        .await;
    let three = put(&b, "demo://kept", "three").await;
    client
        .read_until(&mut stream, &Etags::from([("demo://kept".to_owned(), three)]))
        .await;
    assert!(client.told.repeats.is_empty(), "{:?}", client.told.repeats);
    assert!(
        !client
            .told
            .has(&Etags::from([("demo://left".to_owned(), String::new())])),
        "an ended subscription was told"
    );
    assert_eq!(client.delete(&b).await.status, 204);
}

#[tokio::test]
async fn position_after_a_death_is_told_nothing_again() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = start(["a", "b"], folder.path(), &config(brokers, "stands"));
    let one = Etags::from([("demo://x".to_owned(), put(&a, "demo://x", "one").await)]);
    put(&a, "demo://y", "one").await;
    until_applied(&b, &one).await;
    let mut client = SessionClient::open(&a, None).await;
    client.subscribed(&a, "demo://x").await;
    client.subscribed(&a, "demo://y").await;
    let mut stream = client.stream(&a, false).await;
    let told = Etags::from([("demo://x".to_owned(), put(&a, "demo://x", "told").await)]);
    client.read_until(&mut stream, &told).await;
    drop(a);
    client.read_to_end(&mut stream).await;
    let missed = Etags::from([("demo://y".to_owned(), put(&b, "demo://y", "missed").await)]);
    // A request first, as of a client in the middle of its work: the node does not know yet where it stands.
    assert_eq!(client.ping(&b).await.status, 200);
    let mut stream = client.stream(&b, true).await;
    client.read_until(&mut stream, &missed).await;
    assert!(client.told.repeats.is_empty(), "{:?}", client.told.repeats);
}

#[tokio::test]
async fn session_survives_the_orderly_stop_of_its_node() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = start(["a", "b"], folder.path(), &config(brokers, "stop"));
    let one = Etags::from([("demo://x".to_owned(), put(&a, "demo://x", "one").await)]);
    until_applied(&b, &one).await;
    let mut client = SessionClient::open(&a, None).await;
    client.subscribed(&a, "demo://x").await;
    let mut stream = client.stream(&a, false).await;
    let told = Etags::from([("demo://x".to_owned(), put(&b, "demo://x", "told").await)]);
    client.read_until(&mut stream, &told).await;
    client.read_lists(&mut stream, 2).await;
    a.stop();
    client.read_to_end(&mut stream).await;
    // What it was told was written down, so it needs no id to be told nothing again.
    let mut stream = client.stream(&b, false).await;
    let next = Etags::from([("demo://x".to_owned(), put(&b, "demo://x", "next").await)]);
    client.read_until(&mut stream, &next).await;
    assert!(client.told.repeats.is_empty(), "{:?}", client.told.repeats);
    assert_eq!(client.told.lists.len(), 2, "{:?}", client.told.lists);
}

/// The line of a token in the file of its principal.
fn token_line(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}\n")
}

#[tokio::test]
async fn session_of_another_principal_is_unknown() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from(
        "[auth]\nanonymous = 'none'\n[[auth.rule]]\nroles = ['reader']\nmay = ['list', 'read', 'subscribe']\n\
         match = ['demo://*']\n[[auth.rule]]\nroles = ['writer']\nmay = ['list', 'read', 'subscribe', 'publish']\n\
         match = ['*']\n",
    );
    for (name, role) in [("ann", "reader"), ("bob", "reader"), ("writer", "writer")] {
        fs::write(
            folder.path().join(name),
            token_line(&format!("the-token-of-{name}-0123456789")),
        )
        .unwrap();
        text.push_str(&format!(
            "[[auth.token]]\nname = '{name}'\nfile = '{name}'\nroles = ['{role}']\n"
        ));
    }
    text.push_str(&config(brokers, "principals"));
    let [a, b] = start(["a", "b"], folder.path(), &text);
    let publisher = super::session_client::http();
    let change = async |node: &Node, text: &'static str| {
        let url = format!("{}/v1/resources/demo%3A%2F%2Fx", node.address);
        let request = publisher.put(url).header("content-type", "text/plain").body(text);
        let answer = request
            .bearer_auth("the-token-of-writer-0123456789")
            .send()
            .await
            .unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        let etag = answer.headers()["etag"].to_str().unwrap();
        Etags::from([("demo://x".to_owned(), etag.trim_matches('"').to_owned())])
    };
    change(&a, "one").await;
    let mut ann = SessionClient::open(&a, Some("the-token-of-ann-0123456789")).await;
    ann.subscribed(&a, "demo://x").await;
    let mut stream = ann.stream(&a, false).await;
    let two = change(&a, "two").await;
    ann.read_until(&mut stream, &two).await;
    let mut bob = SessionClient::open(&b, Some("the-token-of-bob-0123456789")).await;
    let own = std::mem::replace(&mut bob.id, "0123456789abcdef0123456789abcdef".to_owned());
    let unknown = bob.ping(&b).await;
    bob.id.clone_from(&ann.id);
    let foreign = bob.ping(&b).await;
    assert_eq!(
        (foreign.status, &foreign.text),
        (404, &unknown.text),
        "it tells that there is a session"
    );
    // It moved nothing: the stream goes on.
    let three = change(&b, "three").await;
    ann.read_until(&mut stream, &three).await;
    bob.id = own;
    assert_eq!(bob.ping(&a).await.status, 200);
    // Ids of a caller with rights are encrypted, and good on each node.
    let last = ann.last.clone().unwrap();
    assert_eq!(last.len(), 40, "{last}");
    drop(a);
    let mut stream = ann.stream(&b, true).await;
    let four = change(&b, "four").await;
    ann.read_until(&mut stream, &four).await;
    assert!(ann.told.repeats.is_empty(), "{:?}", ann.told.repeats);
}

#[tokio::test]
async fn ended_session_is_ended_on_all_nodes() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = start(["a", "b"], folder.path(), &config(brokers, "ended"));
    let mut client = SessionClient::open(&a, None).await;
    let mut stream = client.stream(&a, false).await;
    // At a node that did not have it.
    assert_eq!(client.delete(&b).await.status, 204);
    client.read_to_end(&mut stream).await;
    for node in [&a, &b] {
        let refused = client.ping(node).await;
        assert_eq!(refused.status, 404, "{}: {}", node.name, refused.text);
    }
    // At the node that has it.
    let client = SessionClient::open(&a, None).await;
    assert_eq!(client.delete(&a).await.status, 204);
    assert_eq!(client.ping(&b).await.status, 404);
}

#[tokio::test]
async fn session_asked_at_two_nodes_is_at_one() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = start(["a", "b", "c"], folder.path(), &config(brokers, "at-once"));
    let one = Etags::from([("demo://x".to_owned(), put(&a, "demo://x", "one").await)]);
    for node in [&b, &c] {
        until_applied(node, &one).await;
    }
    let mut client = SessionClient::open(&a, None).await;
    client.subscribed(&a, "demo://x").await;
    for round in 0..5 {
        let (mut at_b, mut at_c) = tokio::join!(client.stream(&b, false), client.stream(&c, false));
        let changed = put(&a, "demo://x", &format!("{round}")).await;
        let told = Etags::from([("demo://x".to_owned(), changed)]);
        // The one that lost the session has ended its stream, the other one tells.
        let ended = tokio::select! {
            end = at_b.rest() => (end, true),
            end = at_c.rest() => (end, false),
        };
        let rest = match ended.1 {
            true => &mut at_c,
            false => &mut at_b,
        };
        assert!(ended.0.contains(": moved: "), "round {round}: {}", ended.0);
        client.read_until(rest, &told).await;
    }
    assert!(client.told.repeats.is_empty(), "{:?}", client.told.repeats);
}

#[tokio::test]
async fn lists_are_told_where_they_differ_alone() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let prompts = |name: &str, prompts: &[&str]| {
        let dir = folder.path().join(name);
        fs::create_dir_all(dir.join("prompts")).unwrap();
        for prompt in prompts {
            fs::write(
                dir.join("prompts").join(format!("{prompt}.md")),
                "---\n---\nHello\n",
            )
            .unwrap();
        }
        format!("[workspace]\ndir = {dir:?}\n{}", config(brokers, "lists"))
    };
    let same = prompts("same", &["one"]);
    let other = prompts("other", &["one", "two"]);
    let a = Node::start("a", folder.path(), &same);
    let b = Node::start("b", folder.path(), &same);
    let c = Node::start("c", folder.path(), &other);
    put(&a, "demo://x", "one").await;
    let mut client = SessionClient::open(&a, None).await;
    let mut stream = client.stream(&a, false).await;
    // All three lists have something.
    client.read_lists(&mut stream, 3).await;
    let mut now = 3;
    for (node, more) in [(&b, 0), (&a, 0), (&c, 1), (&b, 1)] {
        let mut next = client.stream(node, false).await;
        client.read_to_end(&mut stream).await;
        client.subscribed(node, "demo://x").await;
        let told = Etags::from([(
            "demo://x".to_owned(),
            put(node, "demo://x", &format!("{} {now} {more}", node.name)).await,
        )]);
        // A change of the resource comes behind those of the lists.
        client.read_until(&mut next, &told).await;
        now += more;
        assert_eq!(
            client.told.lists.len(),
            now,
            "{}: {:?}",
            node.name,
            client.told.lists
        );
        stream = next;
    }
    assert_eq!(client.told.lists[3..], ["notifications/prompts/list_changed"; 2]);
}

#[tokio::test]
async fn session_is_not_refused_while_the_log_is_down() {
    let Some(mut brokers) = Brokers::start(1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = start(["a", "b"], folder.path(), &config(&brokers, "outage"));
    put(&a, "demo://x", "one").await;
    let client = SessionClient::open(&a, None).await;
    client.subscribed(&a, "demo://x").await;
    brokers.kill(0);
    // Its node goes on with it, and another one does not say that it is gone.
    assert_eq!(client.ping(&a).await.status, 200);
    let elsewhere = client.ping(&b).await;
    assert_eq!(elsewhere.status, 503, "{}", elsewhere.text);
    assert!(elsewhere.retry_after);
    // No answer says that a subscription is kept which is not.
    let refused = client.subscribe(&a, "demo://x").await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    brokers.up(0);
    let begin = Instant::now();
    while client.ping(&b).await.status != 200 {
        assert!(begin.elapsed() < PATIENCE, "the session does not come back");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn subscription_without_room_in_the_record_is_refused() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = start(["a", "b"], folder.path(), &config(brokers, "room"));
    let long = |n: usize| format!("demo://{}/{n}", "x".repeat(1_950));
    for n in 0..32 {
        put(&a, &long(n), "one").await;
    }
    let client = SessionClient::open(&a, None).await;
    let mut taken = 0;
    let refused = loop {
        let reply = client.subscribe(&a, &long(taken)).await;
        if !reply.text.contains("\"result\"") {
            break reply;
        }
        taken += 1;
    };
    assert!((28..=31).contains(&taken), "{taken}");
    let error: serde_json::Value = serde_json::from_str(&refused.text).unwrap();
    assert_eq!(error["error"]["code"], json!(-32602), "{error}");
    assert!(refused.text.contains("64 KiB"), "{error}");
    let counted = "tidings_limit_reached_total{limit=\"subscriptions in the record of a session\"}";
    assert_eq!(metric(&a, counted).await, 1.0);
    // What was answered goes along, and what was refused is not there.
    let _stream = client.stream(&b, false).await;
    let counts = b.ask("GET", "/v1/sessions", "").await.text;
    let counts: serde_json::Value = serde_json::from_str(&counts).unwrap();
    assert_eq!(counts["items"][0]["subscriptions"], json!(taken), "{counts}");
}
