//! Servers that let nodes in by certificate and by user, with the permissions that the page of the cluster
//! lists.

use std::path::Path;

use rcgen::SanType;

use super::brokers::{self, Brokers};
use super::node::{Node, path_of};
use crate::http::tls::authority::Authority;

/// The password of the user.
const PASSWORD: &str = "hidden-from-all";

/// Returns the users of the servers as the page has them.
fn authorization() -> String {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cluster.md")).unwrap();
    let begin = page.find("authorization {").unwrap();
    let block = &page[begin..];
    let block = &block[..block.find("```").unwrap()];
    assert!(block.contains("$TIDINGS_PASSWORD"), "{block}");
    block.replace("$TIDINGS_PASSWORD", &format!("\"{PASSWORD}\""))
}

/// Writes the certificates, and returns the configuration of the servers.
fn certificates(folder: &Path) -> String {
    let authority = Authority::new();
    let here = SanType::IpAddress("127.0.0.1".parse().unwrap());
    let server = authority.issue(&[here], 1);
    let node = authority.issue(&[SanType::DnsName("node".try_into().unwrap())], 2);
    let stranger = Authority::named("stranger").issue(&[SanType::DnsName("node".try_into().unwrap())], 3);
    for (name, text) in [
        ("ca.pem", authority.pem()),
        ("server.pem", server.certificate),
        ("server.key", server.key),
        ("node.pem", node.certificate),
        ("node.key", node.key),
        ("stranger.pem", stranger.certificate),
        ("stranger.key", stranger.key),
        ("password", format!("{PASSWORD}\n")),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let folder = folder.display();
    format!(
        "tls {{ cert_file: \"{folder}/server.pem\", key_file: \"{folder}/server.key\", ca_file: \"{folder}/ca.pem\", \
         verify: true }}\n"
    )
}

fn config(brokers: &Brokers, folder: &Path, certificate: &str) -> String {
    let path = folder.display();
    format!(
        "[bus]\nremoved_max = 1\n[cluster]\nengine = 'nats'\nurls = {:?}\nreplicas = 1\nuser = 'tidings'\n\
         password_file = '{path}/password'\ntls_ca = '{path}/ca.pem'\ntls_cert = '{path}/{certificate}.pem'\n\
         tls_key = '{path}/{certificate}.key'\nread = 'latest'\nsweep_after = '2s'\n",
        brokers.urls(),
    )
}

#[tokio::test]
async fn node_needs_no_more_permissions_than_the_page_lists() {
    if brokers::program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let more = certificates(folder.path()) + &authorization();
    let mut brokers = Brokers::start_with(1, &more).unwrap();
    let node_config = config(&brokers, folder.path(), "node");
    let a = Node::start("a", folder.path(), &node_config);
    let b = Node::start("b", folder.path(), &node_config);
    // Records, larger bodies, leases, reads of the latest state, and what the node with the task upkeep does.
    let large = "x".repeat(300_000);
    for n in 0..4 {
        let uri = format!("demo://{n}");
        let put = a.put(&uri, &format!("{large}{n}")).await;
        assert_eq!(put.status, 201, "{}", put.text);
        assert_eq!(b.get(&uri).await.etag, put.etag);
        assert_eq!(b.ask("DELETE", &path_of(&uri), "").await.status, 204);
    }
    a.put("demo://large", &large).await;
    a.until("removed resources are forgotten", async |node| {
        let metrics = [
            node.ask("GET", "/metrics", "").await,
            b.ask("GET", "/metrics", "").await,
        ];
        let has = |name: &str| metrics.iter().any(|metrics| has_counted(&metrics.text, name));
        has("tidings_cluster_forgotten_total") && has("tidings_cluster_swept_total")
    })
    .await;
    // The log is opened again after its server was gone.
    brokers.kill(0);
    brokers.up(0);
    a.until("it writes again", async |node| {
        node.put("demo://after", "x").await.status < 300
    })
    .await;
    b.until_body("demo://large", &large).await;
    drop((a, b));
    let log = brokers.log(0);
    let violations: Vec<_> = log.lines().filter(|line| line.contains("Violation")).collect();
    assert!(violations.is_empty(), "{violations:#?}");
}

fn has_counted(metrics: &str, name: &str) -> bool {
    let line = metrics.lines().find(|line| line.starts_with(name));
    matches!(line, Some(line) if !line.ends_with(" 0"))
}

#[tokio::test]
async fn certificate_of_a_stranger_is_let_in_nowhere() {
    if brokers::program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let brokers = Brokers::start_with(1, &certificates(folder.path())).unwrap();
    let node = Node::spawn("x", folder.path(), &config(&brokers, folder.path(), "stranger"));
    node.until("it says so", async |_| {
        let log = std::fs::read_to_string(folder.path().join("x.log")).unwrap();
        log.contains("no server of the shared log answers") && log.contains("UnknownCA")
    })
    .await;
    assert_eq!(node.ask("GET", "/readyz", "").await.status, 503);
    assert_eq!(node.cluster().await["health"], "disconnected");
}

#[tokio::test]
async fn log_is_read_while_no_consumer_can_be_made() {
    if brokers::program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), PASSWORD).unwrap();
    // As when the leader of all streams is gone, which makes consumers, and that of the log is not.
    let more = format!(
        "authorization {{ users: [ {{ user: maker, password: {PASSWORD} }}, {{ user: reader, password: {PASSWORD}, \
         permissions: {{ publish: {{ deny: \"$JS.API.CONSUMER.CREATE.TIDINGS_default.>\" }} }} }} ] }}\n"
    );
    let brokers = Brokers::start_with(1, &more).unwrap();
    let config = |user: &str| {
        format!(
            "[cluster]\nengine = 'nats'\nurls = {:?}\nreplicas = 1\nuser = '{user}'\npassword_file = '{}/password'\n",
            brokers.urls(),
            folder.path().display(),
        )
    };
    let maker = Node::start("maker", folder.path(), &config("maker"));
    maker.put("demo://small", "before").await;
    let reader = Node::start("reader", folder.path(), &config("reader"));
    reader.until_body("demo://small", "before").await;
    // More than one answer has, and one whose body is kept apart.
    for n in 0..200 {
        maker.put("demo://small", &n.to_string()).await;
        maker.put(&format!("demo://{n}"), "x").await;
    }
    let large = "x".repeat(300_000);
    let put = maker.put("demo://large", &large).await;
    reader.until_body("demo://large", &large).await;
    assert_eq!(reader.get("demo://large").await.etag, put.etag);
    for uri in ["demo://small", "demo://0", "demo://199"] {
        assert_eq!(reader.get(uri).await.etag, maker.get(uri).await.etag, "{uri}");
    }
    // Its own changes have their place, too.
    let put = reader.put("demo://small", "own").await;
    assert_eq!(put.status, 204, "{}", put.text);
    maker.until_body("demo://small", "own").await;
    assert_eq!(maker.get("demo://small").await.etag, put.etag);
    drop((maker, reader));
    assert!(brokers.log(0).contains("Violation"));
}
