//! `/metrics`: known traffic shows exact numbers, and the page lists exactly the exported metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use metrics_util::debugging::DebuggingRecorder;
use serde_json::json;
use tidings::Bus;
use tidings::attach::{AttachOptions, Delivery, Subscriber, SubscriberError};

use super::client::{Client, listen, updates};
use super::events::{Events, updated_etag};
use super::http::{Request, within};
use super::server::Server;
use crate::http::upstreams::ServedGateway;

const A: &str = "demo://a";
const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"));

/// The content of one scrape.
struct Scrape {
    /// Name → type, and whether there is a help text.
    kinds: BTreeMap<String, (String, bool)>,
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Sample {
    /// Reads a line such as `name{a="b",c="d"} 1`; no value here has quotes or commas in it.
    fn parse(line: &str) -> Sample {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let pairs = labels.trim_end_matches('}').split(',');
        let mut labels = BTreeMap::new();
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (label, value) = pair.split_once('=').expect("a label has a value");
            labels.insert(label.to_owned(), value.trim_matches('"').to_owned());
        }
        Sample {
            name: name.to_owned(),
            labels,
            value: value.parse().expect("a number"),
        }
    }

    /// Returns true for a sample of this name with at least these labels, each written `label=value`.
    fn fits(&self, name: &str, labels: &[&str]) -> bool {
        self.name == name
            && labels.iter().all(|wanted| {
                let (label, value) = wanted.split_once('=').expect("a label has a value");
                self.labels.get(label).map(String::as_str) == Some(value)
            })
    }
}

impl Scrape {
    async fn of(server: SocketAddr) -> Scrape {
        let reply = Request::new("GET", "/metrics").send(server).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let content_type = reply.header("content-type");
        assert_eq!(content_type, Some("text/plain; version=0.0.4; charset=utf-8"));
        let mut kinds: BTreeMap<String, (String, bool)> = BTreeMap::new();
        let mut samples = Vec::new();
        for line in reply.text().lines().filter(|line| !line.is_empty()) {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let name = help.split(' ').next().expect("a name");
                kinds.entry(name.to_owned()).or_default().1 = help.len() > name.len() + 1;
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type");
                kinds.entry(name.to_owned()).or_default().0 = kind.to_owned();
            } else {
                samples.push(Sample::parse(line));
            }
        }
        Scrape { kinds, samples }
    }

    /// The sum of the samples of `series`, written `name` or `name label=value`; 0 when there are none.
    fn value(&self, series: &str) -> f64 {
        let words: Vec<&str> = series.split(' ').collect();
        let samples = self
            .samples
            .iter()
            .filter(|sample| sample.fits(words[0], &words[1..]));
        samples.map(|sample| sample.value).sum()
    }

    /// The metric that a sample belongs to.
    fn metric<'s>(&self, sample: &'s Sample) -> &'s str {
        for part in ["_bucket", "_sum", "_count"] {
            if let Some(name) = sample.name.strip_suffix(part)
                && let Some((kind, _)) = self.kinds.get(name)
                && kind == "histogram"
            {
                return name;
            }
        }
        &sample.name
    }
}

/// Waits for the next message, which must be the update with this etag.
async fn assert_update(stream: &mut Events, etag: &str) {
    assert_eq!(updated_etag(&stream.message().await), etag);
}

#[tokio::test]
async fn known_traffic_shows_exact_metrics() {
    let server = Server::with("[session]\nannounce_on_connect = false\n").await;
    server.put(A, "1").await;
    let before = Scrape::of(server.address).await;

    // Three subscribers, of which one has no stream.
    let reading = Client::open(server.address, "2025-06-18").await;
    let silent = Client::open(server.address, "2024-11-05").await;
    reading.subscribe(A).await;
    silent.subscribe(A).await;
    let mut stream = reading.stream().await;
    let (_, mut listening) = listen(server.address, &json!(1), updates(&[A])).await;
    // Two changes and one publish without a change; a call that succeeds and one that fails.
    for body in ["2", "3"] {
        let etag = server.put(A, body).await;
        assert_update(&mut stream, &etag).await;
        assert_update(&mut listening, &etag).await;
    }
    server.put(A, "3").await;
    reading.tool("get_resource_etag", json!({ "uri": A })).await;
    reading
        .tool("get_resource_etag", json!({ "uri": "demo://nowhere" }))
        .await;

    let after = Scrape::of(server.address).await;
    for (series, growth) in [
        ("tidings_sessions", 3.0),
        ("tidings_sessions revision=2025-06-18 transport=http", 1.0),
        ("tidings_sessions revision=2024-11-05 transport=http", 1.0),
        ("tidings_sessions revision=2026-07-28 transport=http", 1.0),
        ("tidings_sessions_opened_total", 3.0),
        ("tidings_sessions_ended_total", 0.0),
        ("tidings_streams transport=http", 2.0),
        ("tidings_subscriptions", 3.0),
        ("tidings_subscriptions_denied_total", 0.0),
        ("tidings_changes_total outcome=changed", 2.0),
        ("tidings_changes_total outcome=unchanged", 1.0),
        ("tidings_changes_total outcome=refused", 0.0),
        ("tidings_notices_total kind=updated", 2.0),
        ("tidings_notices_total", 2.0),
        // The session without a stream received neither; for the second change that is one entry less.
        ("tidings_told_total", 5.0),
        ("tidings_conflated_total", 1.0),
        ("tidings_delivered_total transport=http", 4.0),
        ("tidings_outbox_entries", 1.0),
        ("tidings_delivery_seconds_count transport=http", 4.0),
        ("tidings_list_notifications_due_total", 0.0),
        ("tidings_list_notifications_suppressed_total rule=known", 6.0),
        ("tidings_fan_out_seconds_count", 2.0),
        ("tidings_tool_calls_total outcome=ok", 1.0),
        ("tidings_tool_calls_total outcome=error", 1.0),
        ("tidings_http_requests_total route=api status=2xx", 3.0),
        ("tidings_http_requests_total route=metrics", 1.0),
        ("tidings_limit_reached_total", 0.0),
        ("tidings_mailbox_refused_total", 0.0),
        ("tidings_requests_in_flight", 0.0),
    ] {
        assert_eq!(after.value(series) - before.value(series), growth, "{series}");
    }
    assert_eq!(after.value("tidings_registered_items kind=resource"), 1.0);
    assert_eq!(after.value("tidings_build_info"), 1.0);

    // All subscribers leave, and the gauges return to zero.
    drop(stream);
    reading.delete().await;
    silent.delete().await;
    drop(listening);
    within("the end of all sessions", async {
        loop {
            let now = Scrape::of(server.address).await;
            let left = [
                "tidings_sessions",
                "tidings_streams",
                "tidings_subscriptions",
                "tidings_outbox_entries",
            ];
            if left.iter().all(|series| now.value(series) == 0.0) {
                assert_eq!(now.value("tidings_sessions_ended_total reason=closed"), 3.0);
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn reached_limit_is_counted_under_its_key() {
    let server =
        Server::with("[session]\nsubscriptions_max = 1\n[bus]\nresources_max = 2\nbody_bytes_max = 1024\n")
            .await;
    server.put(A, "1").await;
    server.put("demo://b", "1").await;
    assert_eq!(server.api("PUT", "demo://c", "1").await.status, 507);
    assert_eq!(server.api("PUT", A, &"x".repeat(1025)).await.status, 413);
    let client = Client::open(server.address, "2025-11-25").await;
    client.subscribe(A).await;
    let refused = client
        .request("resources/subscribe", json!({ "uri": "demo://b" }))
        .await;
    assert!(refused.json().get("error").is_some());
    let scrape = Scrape::of(server.address).await;
    for key in [
        "bus.resources_max",
        "bus.body_bytes_max",
        "session.subscriptions_max",
    ] {
        let series = format!("tidings_limit_reached_total limit={key}");
        assert_eq!(scrape.value(&series), 1.0, "{key}");
    }
    assert_eq!(scrape.value("tidings_source_errors_total source=http"), 2.0);
    assert_eq!(scrape.value("tidings_subscriptions_denied_total"), 1.0);
}

/// A row of the page: type, and per label its values.
type Row = (String, BTreeMap<String, BTreeSet<String>>);

fn rows(heading: &str) -> BTreeMap<String, Row> {
    let (_, section) = PAGE.split_once(heading).expect("the page has this heading");
    let (_, table) = section.split_once("\n| Name | Type |").expect("a table");
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(row).collect()
}

/// Reads a line of the page's tables.
fn row(line: &str) -> (String, Row) {
    let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    assert_eq!(cells.len(), 5, "{line}");
    let mut labels = BTreeMap::new();
    for cell in cells[2].split("; ").filter(|cell| *cell != "–") {
        let (label, values) = cell.split_once(": ").expect("a label has values");
        let values = values.split(", ").map(str::to_owned).collect();
        labels.insert(label.trim_matches('`').to_owned(), values);
    }
    let name = cells[0].trim_matches('`').to_owned();
    (name, (cells[1].to_owned(), labels))
}

/// Returns false for metrics of attached subscribers, which have a table of their own. The service has one
/// such subscriber, for its event streams.
fn is_of_service(name: &str) -> bool {
    !name.starts_with("tidings_subscriber_")
}

#[tokio::test]
async fn metrics_page_lists_all_exported_metrics() {
    let server = Server::start().await;
    server.put(A, "1").await;
    let client = Client::open(server.address, "2025-11-25").await;
    client.subscribe(A).await;
    let scrape = Scrape::of(server.address).await;
    let rows = rows("## All metrics");
    let documented: Vec<_> = rows
        .iter()
        .map(|(name, (kind, _))| (name.as_str(), kind.as_str()))
        .collect();
    let exported: Vec<_> = scrape
        .kinds
        .iter()
        .filter(|(name, _)| is_of_service(name))
        .map(|(name, (kind, _))| (name.as_str(), kind.as_str()))
        .collect();
    assert_eq!(exported, documented, "exported, documented");
    for (name, (_, helped)) in &scrape.kinds {
        assert!(helped, "{name} has no help text");
    }

    // Every exported label and value is documented.
    let mut seen: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
    for sample in scrape.samples.iter().filter(|sample| is_of_service(&sample.name)) {
        let name = scrape.metric(sample);
        let labels = &rows[name].1;
        let shown = sample.labels.iter().filter(|(label, _)| *label != "le");
        assert_eq!(shown.clone().count(), labels.len(), "labels of {name}");
        for (label, value) in shown {
            let values = labels
                .get(label)
                .unwrap_or_else(|| panic!("{name} has a label {label}"));
            assert!(
                values.contains(value) || values.contains("any"),
                "{name} has {label}={value}"
            );
            seen.insert((name, label, value));
        }
    }
    // Every documented value is exported, except those that appear with the first session of a kind.
    let later = ["revision", "transport", "version"];
    for (name, (_, labels)) in &rows {
        for (label, values) in labels
            .iter()
            .filter(|(label, _)| !later.contains(&label.as_str()))
        {
            for value in values {
                assert!(
                    seen.contains(&(name.as_str(), label.as_str(), value.as_str())),
                    "{name} lacks {label}={value}"
                );
            }
        }
    }
}

#[tokio::test]
async fn metrics_page_lists_those_of_a_gateway() {
    let gateway = ServedGateway::start().await;
    let scrape = Scrape::of(gateway.address).await;
    let mut exported: BTreeMap<String, Row> = BTreeMap::new();
    for (name, (kind, is_helped)) in &scrape.kinds {
        if name.starts_with("tidings_upstream_") {
            assert!(is_helped, "{name} has no help text");
            exported.insert(name.clone(), (kind.clone(), BTreeMap::new()));
        }
    }
    for sample in &scrape.samples {
        if let Some((_, labels)) = exported.get_mut(scrape.metric(sample)) {
            let shown = sample.labels.iter().filter(|(label, _)| *label != "le");
            for (label, value) in shown {
                // The operator names the servers.
                let value = if label == "upstream" { "any" } else { value };
                labels.entry(label.clone()).or_default().insert(value.to_owned());
            }
        }
    }
    assert_eq!(exported, rows("### A gateway"), "exported, documented");
    assert_eq!(scrape.value("tidings_upstream_up upstream=server"), 1.0);
}

#[tokio::test]
async fn metrics_page_lists_attached_subscriber() {
    struct Nothing;
    impl Subscriber for Nothing {
        fn take(&mut self, _: &Delivery) -> Result<(), SubscriberError> {
            Ok(())
        }
    }
    let recorder = DebuggingRecorder::new();
    let bus = Bus::builder().start().unwrap();
    let attached = {
        let attaching = bus.attach(AttachOptions::new("nothing"), || Ok(Nothing));
        // Handles belong to the recorder of the thread that makes them, which is this one.
        let _recording = metrics::set_default_local_recorder(&recorder);
        attaching.await.unwrap()
    };
    let mut exported: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (key, ..) in recorder.snapshotter().snapshot().into_vec() {
        let labels = exported.entry(key.key().name().to_owned()).or_default();
        for label in key.key().labels() {
            let values = labels.entry(label.key().to_owned()).or_default();
            values.insert(label.value().replace("nothing", "any"));
        }
    }
    let documented = rows("### Attached subscribers");
    let documented: BTreeMap<_, _> = documented
        .into_iter()
        .map(|(name, (_, labels))| (name, labels))
        .collect();
    assert_eq!(exported, documented);
    assert!(attached.detach(std::time::Duration::from_secs(30)).await);
}

#[tokio::test]
async fn metrics_are_guarded_movable_and_optional() {
    let get = Request::new("GET", "/metrics");
    let server = Server::start().await;
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        assert_eq!(
            get.clone().header(name, value).send(server.address).await.status,
            403,
            "{name}"
        );
    }
    // Only GET is answered.
    let post = Request::new("POST", "/metrics").send(server.address).await;
    assert_eq!(post.status, 405);

    // Metrics can be switched off.
    let off = Server::with("[metrics]\nenabled = false\n").await;
    assert_eq!(get.send(off.address).await.status, 404);
    off.assert_healthy().await;

    // Metrics can have a port of their own, which serves nothing else.
    let apart = Server::with("[metrics]\nlisten = \"127.0.0.1:0\"\n").await;
    assert_eq!(get.send(apart.address).await.status, 404);
    let log = apart.file("../log");
    let address = within("where metrics are", async {
        loop {
            let log = std::fs::read_to_string(&log).expect("a log");
            if let Some((_, rest)) = log.split_once("metrics on http://")
                && let Some((address, _)) = rest.split_once("/metrics")
            {
                return address.parse().expect("an address");
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let scrape = Scrape::of(address).await;
    assert_eq!(scrape.value("tidings_build_info"), 1.0);
    assert_eq!(
        Request::new("GET", "/v1/sessions").send(address).await.status,
        404
    );
    let mcp = Request::post("{}").send(address).await;
    assert_eq!(mcp.status, 404);
}
