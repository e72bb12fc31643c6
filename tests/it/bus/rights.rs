//! Rights at delivery: a subscriber gets nothing that it may not be told of any more, however late it reads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidings::rights::{Audience, ListQuery, Standing, Viewer};
use tidings::{
    Descriptor, EndReason, ListKind, PublishError, ResourceTemplate, ResourceUri, SubscribeError, Variables,
};

use crate::support::{Bench, Client, list_options, tool, until, uri, within};

/// An audience that sees every item whose name has none of the hidden texts.
#[derive(Clone)]
struct Sees {
    id: u64,
    hidden: Vec<&'static str>,
}

impl Sees {
    fn all_but(id: u64, hidden: &[&'static str]) -> Sees {
        let hidden = hidden.to_vec();
        Sees { id, hidden }
    }

    fn shows(&self, name: &str) -> bool {
        !self.hidden.iter().any(|hidden| name.contains(hidden))
    }
}

impl Audience for Sees {
    fn id(&self) -> u64 {
        self.id
    }

    fn shows_resource(&self, uri: &ResourceUri) -> bool {
        self.shows(uri.as_str())
    }

    fn shows_template(&self, uri_template: &str) -> bool {
        self.shows(uri_template)
    }

    fn shows_tool(&self, name: &str) -> bool {
        self.shows(name)
    }

    fn shows_prompt(&self, name: &str) -> bool {
        self.shows(name)
    }
}

/// A template that lists one member, and fails to as long as `is_broken` is set.
fn breaking(uri_template: &str, member: &'static str, is_broken: &Arc<AtomicBool>) -> ResourceTemplate {
    let is_broken = is_broken.clone();
    ResourceTemplate::new(uri_template, |_: ResourceUri, _: Variables| async { Ok(None) })
        .unwrap()
        .list(move || {
            let is_broken = is_broken.load(Ordering::SeqCst);
            async move {
                match is_broken {
                    true => Err("no database".into()),
                    false => Ok(vec![Descriptor::new(uri(member))]),
                }
            }
        })
}

#[tokio::test]
async fn failure_of_a_hidden_template_is_not_told() {
    let bench = Bench::start();
    let is_broken = Arc::<AtomicBool>::default();
    for (template, member, broken) in [
        ("note://{id}", "note://a", Arc::default()),
        ("secret://{id}", "secret://a", is_broken.clone()),
    ] {
        let template = breaking(template, member, &broken);
        bench.bus.add_template(template).await.unwrap();
    }
    let outsider: Arc<dyn Audience> = Arc::new(Sees::all_but(1, &["secret"]));
    let insider: Arc<dyn Audience> = Arc::new(Sees::all_but(2, &[]));
    let uris = async |audience| -> Result<Vec<String>, PublishError> {
        let members = bench.bus.members_shown(Some(audience)).await?;
        Ok(members.iter().map(|(member, _)| member.uri.to_string()).collect())
    };
    assert_eq!(uris(&insider).await.unwrap(), ["note://a", "secret://a"]);
    is_broken.store(true, Ordering::SeqCst);
    assert_eq!(uris(&outsider).await.unwrap(), ["note://a"]);
    let error = uris(&insider).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "template secret://{id} cannot list its members: no database"
    );
}

/// The rights of one client, which the test changes.
struct Rights {
    generation: AtomicU64,
    ended: AtomicBool,
    hidden: Mutex<BTreeSet<ResourceUri>>,
    audience: Mutex<Sees>,
}

impl Rights {
    fn new() -> Arc<Rights> {
        Arc::new(Rights {
            generation: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            hidden: Mutex::default(),
            audience: Mutex::new(Sees::all_but(0, &[])),
        })
    }

    fn hide(&self, names: &[&str]) {
        *self.hidden.lock().unwrap() = names.iter().map(|name| uri(name)).collect();
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn join(&self, audience: Sees) {
        *self.audience.lock().unwrap() = audience;
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn set_ended(&self, ended: bool) {
        self.ended.store(ended, Ordering::SeqCst);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

impl Viewer for Rights {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn standing(&self) -> Standing {
        match self.ended.load(Ordering::SeqCst) {
            true => Standing::Ended,
            false => Standing::Valid,
        }
    }

    fn may_be_told(&self, uri: &ResourceUri) -> bool {
        !self.hidden.lock().unwrap().contains(uri)
    }

    fn audience(&self) -> Arc<dyn Audience> {
        Arc::new(self.audience.lock().unwrap().clone())
    }
}

/// Opens a client with these rights that watches these lists.
async fn client(bench: &Bench, rights: &Arc<Rights>, lists: &[ListKind]) -> Client {
    let mut options = list_options(lists, false);
    options.viewer = Some(rights.clone());
    let client = bench.client_with(options).await;
    within(client.session.ready()).await.unwrap();
    client
}

#[tokio::test]
async fn lost_right_ends_the_subscription_and_what_waits() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let rights = Rights::new();
    let mut reader = client(&bench, &rights, &[]).await;
    for name in ["demo://a", "demo://b"] {
        reader.subscribe(name).await;
        bench.update(name, "two").await;
    }
    rights.hide(&["demo://a"]);
    assert_eq!(reader.received(), ["demo://b v2"]);
    // The subscription leaves the shard as well, without a word of the client.
    until("the end of the subscription", async || {
        bench.bus.subscribers(&uri("demo://a")).await.unwrap().is_empty()
    })
    .await;
    for round in 0..100 {
        bench.update("demo://a", &format!("hidden {round}")).await;
    }
    assert_eq!(reader.received(), [""; 0]);
    assert_eq!(bench.bus.stats().await.unwrap().subscriptions, 1);
}

#[tokio::test]
async fn changed_policy_reaches_sessions_without_a_reader() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let rights = Rights::new();
    let mut silent = client(&bench, &rights, &[]).await;
    silent.subscribe("demo://a").await;
    bench.update("demo://a", "two").await;
    rights.hide(&["demo://a"]);
    within(bench.bus.rights_changed()).await.unwrap();
    let stats = bench.bus.stats().await.unwrap();
    assert_eq!((stats.subscriptions, stats.pending), (0, 0));
    assert!(bench.bus.subscribers(&uri("demo://a")).await.unwrap().is_empty());
    assert_eq!(silent.received(), [""; 0]);
}

#[tokio::test]
async fn hidden_resource_is_refused_like_an_unknown_one() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let rights = Rights::new();
    rights.hide(&["demo://a", "demo://none"]);
    let reader = client(&bench, &rights, &[]).await;
    let names = ["demo://a", "demo://b", "demo://none", "demo://other"].map(uri);
    let answers = within(reader.session.subscribe(names.to_vec())).await.unwrap();
    let refused = |at: usize| Err(SubscribeError::NotFound(names[at].clone()));
    assert_eq!(answers[0], refused(0));
    assert!(answers[1].is_ok());
    assert_eq!(answers[2..], [refused(2), refused(3)]);
}

#[tokio::test]
async fn expired_credential_ends_streams_until_a_new_one() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let rights = Rights::new();
    let mut reader = client(&bench, &rights, &[]).await;
    reader.subscribe("demo://a").await;
    let waiting = async { reader.next().await };
    let expire = async {
        rights.set_ended(true);
        bench.update("demo://a", "two").await
    };
    let (told, _) = tokio::join!(waiting, expire);
    assert_eq!(told, Err(EndReason::Unauthorized));
    assert_eq!(reader.session.ended(), None);
    rights.set_ended(false);
    reader.session.recheck();
    assert_eq!(reader.received(), ["demo://a v2"]);
}

#[tokio::test]
async fn recheck_ends_a_stream_that_waits() {
    let bench = Bench::start();
    let rights = Rights::new();
    let Client {
        session, mut reader, ..
    } = client(&bench, &rights, &[]).await;
    let mut entries = Vec::new();
    let expire = async {
        rights.set_ended(true);
        session.recheck();
    };
    let (ended, ()) = tokio::join!(within(reader.drain(&mut entries)), expire);
    assert_eq!(ended, tidings::Drained::Ended(EndReason::Unauthorized));
}

#[tokio::test]
async fn moved_session_loses_what_was_hidden_before() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let rights = Rights::new();
    let mut reader = client(&bench, &rights, &[]).await;
    for round in 0..6 {
        reader.subscribe("demo://a").await;
        reader.subscribe("demo://b").await;
        rights.hide(&["demo://a"]);
        reader = reader.read_on(&bench.bus, round % 2).await;
        let body = format!("round {round}");
        let told = bench.update("demo://b", &body).await.etag.version;
        bench.update("demo://a", &body).await;
        assert_eq!(reader.received(), [format!("demo://b v{told}")]);
        rights.hide(&[]);
    }
}

#[tokio::test]
async fn pages_are_full_of_what_the_audience_sees() {
    let bench = Bench::start();
    for number in 0..3_000 {
        let name = match number % 100 {
            0 => format!("open-{number:04}"),
            _ => format!("closed-{number:04}"),
        };
        bench.bus.add_tool(tool(&name)).await.unwrap();
    }
    let mut query = ListQuery {
        after: None,
        limit: 20,
        audience: Some(Arc::new(Sees::all_but(1, &["closed"]))),
    };
    let first = within(bench.bus.tools_page(query.clone())).await.unwrap();
    assert_eq!(first.items.len(), 20);
    assert_eq!(first.next.as_deref(), Some("open-1900"));
    query.after = first.next;
    let second = within(bench.bus.tools_page(query.clone())).await.unwrap();
    assert_eq!((second.items.len(), second.next), (10, None));
    query.audience = None;
    query.after = None;
    let all = within(bench.bus.tools_page(query)).await.unwrap();
    assert_eq!(all.next.as_deref(), Some("closed-0020"));
}

#[tokio::test]
async fn hidden_tool_changes_no_list_of_the_others() {
    let bench = Bench::start();
    let ops = Rights::new();
    let guest = Rights::new();
    ops.join(Sees::all_but(1, &[]));
    guest.join(Sees::all_but(2, &["secret"]));
    let mut everybody = bench.list_client().await;
    let mut operator = client(&bench, &ops, &ListKind::ALL).await;
    let mut visitor = client(&bench, &guest, &ListKind::ALL).await;
    bench.bus.add_tool(tool("secret-restart")).await.unwrap();
    assert_eq!(everybody.received(), ["tools changed"]);
    assert_eq!(operator.received(), ["tools changed"]);
    assert_eq!(visitor.received(), [""; 0]);
    bench.put("demo://secret", "one").await;
    bench.put("demo://open", "one").await;
    assert_eq!(operator.received(), ["resources changed"]);
    assert_eq!(visitor.received(), ["resources changed"]);
    bench.bus.remove("demo://secret").await.unwrap();
    assert_eq!(operator.received(), ["resources changed"]);
    assert_eq!(visitor.received(), [""; 0]);
}

#[tokio::test]
async fn new_policy_counts_each_audience_once() {
    let bench = Bench::start();
    bench.bus.add_tool(tool("secret")).await.unwrap();
    let all: Vec<Arc<Rights>> = (0..30).map(|_| Rights::new()).collect();
    let mut clients = Vec::new();
    for (number, rights) in (0..).zip(&all) {
        rights.join(Sees::all_but(number % 3, &[]));
        clients.push(client(&bench, rights, &ListKind::ALL).await);
    }
    let before = bench.bus.stats().await.unwrap().list_hashes_computed;
    assert_eq!(before, 3);
    for (number, rights) in (0..).zip(&all) {
        let hidden: &[_] = if number % 3 == 0 { &["secret"] } else { &[] };
        rights.join(Sees::all_but(10 + number % 3, hidden));
    }
    within(bench.bus.rights_changed()).await.unwrap();
    for (number, client) in clients.iter_mut().enumerate() {
        if number % 3 == 0 {
            assert_eq!(client.next().await, Ok(vec!["tools changed".to_owned()]));
        }
    }
    bench.until_routed().await;
    for client in &mut clients {
        assert_eq!(client.received(), [""; 0]);
    }
    assert_eq!(bench.bus.stats().await.unwrap().list_hashes_computed, before + 3);
}

#[tokio::test]
async fn long_list_is_walked_beside_changes_of_it() {
    let bench = Bench::start();
    for number in 0..3_500 {
        bench.put(&format!("demo://{number:04}"), "one").await;
    }
    let guests: Vec<Arc<Rights>> = (0..3).map(|_| Rights::new()).collect();
    let opening = async {
        let mut clients = Vec::new();
        for (id, rights) in (1..).zip(&guests) {
            rights.join(Sees::all_but(id, &["secret"]));
            clients.push(client(&bench, rights, &ListKind::ALL).await);
        }
        clients
    };
    let changing = async {
        for number in 0..400 {
            bench
                .put(&format!("demo://{:04}-secret", number * 9), "one")
                .await;
            bench
                .bus
                .remove(format!("demo://{:04}", number * 7).as_str())
                .await
                .unwrap();
        }
    };
    let (mut clients, ()) = tokio::join!(opening, changing);
    bench.until_routed().await;
    for client in &mut clients {
        client.received();
    }
    // The hash of each is that of what it sees: a change that it does not see tells it nothing.
    bench.put("demo://last-secret", "one").await;
    for client in &mut clients {
        assert_eq!(client.received(), [""; 0]);
    }
    bench.put("demo://last", "one").await;
    for client in &mut clients {
        assert_eq!(client.received(), ["resources changed"]);
    }
}
