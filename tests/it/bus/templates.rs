//! Templates: their members are read, listed, subscribed to and touched like registered resources.

use std::sync::{Arc, Mutex};

use tidings::{
    Body, Descriptor, PublishError, ReadError, ResourceTemplate, ResourceUri, SubscribeError, Variables,
};

use tokio::sync::oneshot;

use crate::support::{Bench, START, text, until, uri, within};

/// A template whose members have an id of digits and that lists the ids in `listed`.
fn users(listed: &Arc<Mutex<Vec<u8>>>) -> ResourceTemplate {
    let listed = listed.clone();
    template().list(move || {
        let ids = listed.lock().unwrap().clone();
        async move {
            Ok(ids
                .iter()
                .map(|id| Descriptor::new(uri(&format!("app://users/{id}"))))
                .collect())
        }
    })
}

fn template() -> ResourceTemplate {
    let template = ResourceTemplate::new(
        "app://users/{id}",
        |_: ResourceUri, variables: Variables| async move {
            let id = variables.get("id").unwrap_or_default().to_owned();
            let known = id.bytes().all(|byte| byte.is_ascii_digit());
            Ok(known.then(|| Body::text(format!("user {id}"))))
        },
    );
    template.unwrap().media_type("text/plain")
}

#[tokio::test]
async fn member_works_without_registration() {
    let bench = Bench::start();
    bench.bus.add_template(template()).await.unwrap();
    bench.pass_seconds(9);
    let read = bench.bus.read("app://users/7").await.unwrap();
    assert_eq!(read.body.as_text(), Some("user 7"));
    assert_eq!(
        (read.etag.version, read.etag.updated_at),
        (1, START),
        "the time of its template"
    );
    assert_eq!(read.descriptor.media_type.as_deref(), Some("text/plain"));

    let mut client = bench.client().await;
    assert_eq!(client.subscribe("app://users/7").await, 1);
    assert_eq!(
        bench.bus.touch("app://users/8").await.unwrap().notified,
        0,
        "another member"
    );
    let touched = bench.bus.touch("app://users/7").await.unwrap();
    assert_eq!((touched.etag.version, touched.notified), (2, 1));
    assert_eq!(client.received(), ["app://users/7 v2"]);
    assert_eq!(bench.bus.read("app://users/7").await.unwrap().etag, touched.etag);
    assert_eq!(bench.bus.read("app://users/9").await.unwrap().etag.version, 1);
}

#[tokio::test]
async fn unknown_member_is_not_found() {
    let bench = Bench::start();
    bench.bus.add_template(template()).await.unwrap();
    assert!(matches!(
        bench.bus.read("app://users/anna").await,
        Err(ReadError::NotFound(_))
    ));
    assert!(matches!(
        bench.bus.read("app://groups/1").await,
        Err(ReadError::NotFound(_))
    ));
    assert_eq!(
        bench.bus.touch("app://groups/1").await,
        Err(PublishError::NotFound(uri("app://groups/1")))
    );
    assert_eq!(
        bench.bus.etags(vec![uri("app://groups/1")]).await.unwrap(),
        [None]
    );
}

#[tokio::test]
async fn template_decides_if_members_are_subscribable() {
    let bench = Bench::start();
    bench
        .bus
        .add_template(template().subscribable(false))
        .await
        .unwrap();
    let client = bench.client().await;
    let member = uri("app://users/1");
    let answers = client.session.subscribe(vec![member.clone()]).await.unwrap();
    assert_eq!(answers, [Err(SubscribeError::NotSubscribable(member))]);
}

#[tokio::test]
async fn registered_resource_hides_the_member() {
    let bench = Bench::start();
    bench.bus.add_template(template()).await.unwrap();
    let mut client = bench.subscriber("app://users/1").await;
    bench.bus.touch("app://users/1").await.unwrap();
    assert_eq!(bench.put("app://users/1", "registered").await, 3);
    assert_eq!(client.received(), ["app://users/1 v3"]);
    assert_eq!(
        bench.bus.read("app://users/1").await.unwrap().body.as_text(),
        Some("registered")
    );
    bench.bus.remove("app://users/1").await.unwrap();
    let member = bench.bus.read("app://users/1").await.unwrap();
    assert_eq!((member.body.as_text(), member.etag.version), (Some("user 1"), 4));
    assert_eq!(client.received(), ["app://users/1 v4 removed"]);
}

#[tokio::test]
async fn same_members_listed_again_are_no_change() {
    let bench = Bench::start();
    let listed = Arc::new(Mutex::new(vec![2, 1]));
    assert!(bench.bus.add_template(users(&listed)).await.unwrap().changed);
    let mut client = bench.list_client().await;
    assert_eq!(client.received(), ["resources changed"]);

    for order in [vec![2, 1], vec![1, 2]] {
        *listed.lock().unwrap() = order;
        let members = bench.bus.listed_members().await.unwrap();
        let names: Vec<_> = members.iter().map(|(member, _)| member.uri.as_str()).collect();
        assert_eq!(names, ["app://users/1", "app://users/2"]);
        assert!(members.iter().all(|(_, etag)| etag.version == 1));
        assert_eq!(client.received(), [""; 0]);
    }
    *listed.lock().unwrap() = vec![1, 2, 3];
    let (one, two) = tokio::join!(bench.bus.listed_members(), bench.bus.listed_members());
    assert_eq!((one.unwrap().len(), two.unwrap().len()), (3, 3));
    assert_eq!(client.received(), ["resources changed"], "two scans notify once");
}

/// A listing that begins first and ends last has older members than one that ran meanwhile.
#[tokio::test]
async fn overlapping_listings_tell_of_one_change_once() {
    let bench = Bench::start();
    let ids = Arc::new(Mutex::new(vec![1]));
    let gates = Arc::new(Mutex::new(Vec::<oneshot::Receiver<()>>::new()));
    let listed = ids.clone();
    let waits = gates.clone();
    let slow = template().list(move || {
        let seen = listed.lock().unwrap().clone();
        let gate = waits.lock().unwrap().pop();
        async move {
            if let Some(gate) = gate {
                gate.await.unwrap();
            }
            Ok(seen
                .iter()
                .map(|id| Descriptor::new(uri(&format!("app://users/{id}"))))
                .collect())
        }
    });
    bench.bus.add_template(slow).await.unwrap();
    let mut client = bench.list_client().await;
    assert_eq!(client.received(), ["resources changed"]);

    // The first listing has seen one member and waits.
    let (open, gate) = oneshot::channel();
    gates.lock().unwrap().push(gate);
    let bus = bench.bus.clone();
    let first = tokio::spawn(async move { bus.listed_members().await });
    until("the first listing", async || gates.lock().unwrap().is_empty()).await;
    // The second one sees two members and tells of them.
    ids.lock().unwrap().push(2);
    bench.bus.listed_members().await.unwrap();
    assert_eq!(client.received(), ["resources changed"]);
    open.send(()).unwrap();
    assert_eq!(within(first).await.unwrap().unwrap().len(), 1);
    bench.bus.listed_members().await.unwrap();
    assert_eq!(client.received(), [""; 0]);
}

#[tokio::test]
async fn failing_lister_error_names_the_template() {
    let bench = Bench::start();
    let failing = template().list(|| async { Err("no database".into()) });
    let error = bench.bus.add_template(failing).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "template app://users/{id} cannot list its members: no database"
    );
    assert!(bench.bus.templates().await.unwrap().is_empty());
}

#[tokio::test]
async fn only_another_description_changes_a_template() {
    let bench = Bench::start();
    assert!(bench.bus.add_template(template()).await.unwrap().changed);
    assert!(!bench.bus.add_template(template()).await.unwrap().changed);
    assert!(
        bench
            .bus
            .add_template(template().title("Users"))
            .await
            .unwrap()
            .changed
    );
    assert_eq!(bench.bus.stats().await.unwrap().templates, 1);
    assert!(
        bench
            .bus
            .remove_template("app://users/{id}")
            .await
            .unwrap()
            .changed
    );
    assert!(
        !bench
            .bus
            .remove_template("app://users/{id}")
            .await
            .unwrap()
            .changed
    );
    assert!(matches!(
        within(bench.bus.read("app://users/1")).await,
        Err(ReadError::NotFound(_))
    ));
}

#[tokio::test]
async fn members_do_not_count_as_resources() {
    let bench = Bench::start();
    bench.bus.add_template(template()).await.unwrap();
    bench.bus.register(text("demo://a", "x")).await.unwrap();
    bench.bus.touch("app://users/5").await.unwrap();
    let stats = bench.bus.stats().await.unwrap();
    assert_eq!((stats.resources, stats.templates, stats.changes), (1, 1, 2));
}

#[tokio::test]
async fn removals_elsewhere_leave_untouched_members_alone() {
    let bench = Bench::with(|limits| limits.removed_max = 2);
    bench.bus.add_template(template()).await.unwrap();
    let untouched = bench.bus.read("app://users/1").await.unwrap().etag;
    for name in ["a", "b", "c", "d"] {
        let other = format!("demo://{name}");
        bench.put(&other, "x").await;
        bench.bus.remove(&*other).await.unwrap();
    }
    assert_eq!(bench.bus.read("app://users/1").await.unwrap().etag, untouched);
}

/// The bus cannot compare the contents that readers return.
#[tokio::test]
async fn other_reader_makes_other_members() {
    let bench = Bench::start();
    let first = template();
    bench.bus.add_template(first.clone()).await.unwrap();
    let untouched = bench.bus.read("app://users/1").await.unwrap().etag;
    bench.bus.add_template(first).await.unwrap();
    assert_eq!(bench.bus.read("app://users/1").await.unwrap().etag, untouched);
    bench.bus.add_template(template()).await.unwrap();
    let other = bench.bus.read("app://users/1").await.unwrap().etag;
    assert!(other.version > untouched.version, "{other} after {untouched}");
}

#[tokio::test]
async fn template_change_tells_subscribers_of_members() {
    let bench = Bench::start();
    bench.bus.add_template(template()).await.unwrap();
    bench.put("app://users/2", "registered").await;
    let mut client = bench.client().await;
    client.subscribe("app://users/1").await;
    client.subscribe("app://users/2").await;
    bench.bus.add_template(template()).await.unwrap();
    assert_eq!(client.received(), ["app://users/1 v3"], "another reader");
    bench.bus.remove_template("app://users/{id}").await.unwrap();
    assert_eq!(client.received(), ["app://users/1 v5 removed"]);
    bench.bus.add_template(template()).await.unwrap();
    assert_eq!(client.received().len(), 1);
    // Another template has the member from here on, and the first one again.
    let other = ResourceTemplate::new("app://{kind}/1", |_: ResourceUri, _: Variables| async {
        Ok(None)
    });
    bench.bus.add_template(other.unwrap()).await.unwrap();
    assert_eq!(client.received(), [""; 0], "its text comes later");
    bench.bus.remove_template("app://users/{id}").await.unwrap();
    assert_eq!(client.received().len(), 1);
    assert_eq!(
        bench.bus.read("app://users/2").await.unwrap().body.as_text(),
        Some("registered")
    );
}
