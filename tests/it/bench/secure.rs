//! The load over TLS: tokens and certificates on every connection, and the words for what is wrong.

use std::path::Path;
use std::process::Command;

use rcgen::SanType;
use serde_json::Value;
use tempfile::TempDir;
use tidings::bench::{Credentials, Settings};

use super::shared::streams;
use super::{all_kinds, bench, run, stderr};
use crate::http::tls::authority::Authority;
use crate::mcp::server::{Server, binary};

/// A service behind TLS that lets only known clients in.
struct Secure {
    server: Server,
    folder: TempDir,
    url: String,
}

impl Secure {
    async fn start() -> Secure {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        authority.issue_server(1).write(folder.path());
        let name = SanType::URI("spiffe://bench/load".try_into().unwrap());
        let own = authority.issue(&[name], 2);
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", &authority.pem());
        write("own.pem", &own.certificate);
        write("own.key", &own.key);
        let made = Command::new(binary())
            .args(["token", "new", "load", "--file"])
            .arg(folder.path().join("hashes"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        write("token", &String::from_utf8(made.stdout).unwrap());
        let path = folder.path().display();
        let config = format!(
            "[tls]\ncertificate = '{path}/server.pem'\nkey = '{path}/server.key'\nclient_ca = '{path}/ca.pem'\n\
             [auth]\nanonymous = 'none'\n\
             [[auth.token]]\nname = 'load'\nfile = '{path}/hashes'\nroles = ['load']\n\
             [[auth.certificate]]\nname = 'spiffe://bench/load'\nroles = ['load']\n\
             [[auth.rule]]\nroles = ['load']\nmatch = ['*', 'tool:*', 'prompt:*']\n\
             may = ['list', 'read', 'subscribe', 'publish', 'call', 'admin', 'metrics']\n"
        );
        let server = Server::with(&config).await;
        let url = format!("https://localhost:{}/mcp", server.address.port());
        Secure { server, folder, url }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_speaks_tls_with_its_token() {
    let secure = Secure::start().await;
    let folder: &Path = secure.folder.path();
    let credentials = Credentials::default()
        .with_token_file(folder.join("token"))
        .with_authorities(folder.join("ca.pem"));
    let settings = Settings {
        url: secure.url.clone(),
        credentials,
        ..all_kinds(&secure.server)
    };
    let report = run(settings).await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.matching.as_str(), report.updates.sent), ("version", 220));
    assert_eq!(report.updates.refused, 0);
    for name in ["reading", "slow", "stalled"] {
        let group = report.group(name).unwrap();
        assert_eq!(
            group.deliveries + group.conflated,
            group.owed,
            "{name}: {group:?}"
        );
        assert_eq!((group.untold, group.missing_finals), (0, 0), "{name}: {group:?}");
    }
    for name in ["churn", "polling"] {
        let group = report.group(name).unwrap();
        assert!(group.deliveries > 0, "{name}: {group:?}");
    }
    let Value::String(tls) = &report.settings["tls"] else {
        panic!("{:?}", report.settings);
    };
    assert!(tls.starts_with("TLS 1.3, TLS13_"), "{tls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_connections_agree_on_http2() {
    let secure = Secure::start().await;
    let folder: &Path = secure.folder.path();
    let settings = Settings {
        url: secure.url.clone(),
        credentials: Credentials::default()
            .with_token_file(folder.join("token"))
            .with_authorities(folder.join("ca.pem")),
        ..streams(&secure.server)
    };
    let report = run(settings).await;
    assert_eq!(report.problems, Vec::<String>::new());
    let reading = report.group("reading").unwrap();
    assert_eq!((reading.clients, reading.untold), (50, 0), "{reading:?}");
    let tls = report.settings["tls"].as_str().unwrap();
    assert!(tls.starts_with("TLS 1.3, TLS13_"), "{tls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_lets_the_load_in() {
    let secure = Secure::start().await;
    let [ca, certificate, key, token] =
        ["ca.pem", "own.pem", "own.key", "token"].map(|name| secure.path(name));
    let load = [
        &secure.url,
        "--sessions",
        "6",
        "--duration",
        "500ms",
        "--warm-up",
        "0s",
        "--settle",
        "20s",
    ];
    let trusting = [&load[..], &["--ca-certificate", &ca]].concat();
    let own = [
        &trusting[..],
        &["--client-certificate", &certificate, "--client-key", &key],
    ]
    .concat();
    let output = bench(&own).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("over TLS 1.3, TLS13_"), "{table}");

    for (arguments, code, words) in [
        (&load[..], 1, "--ca-certificate"),
        (&trusting, 77, "--token-file"),
        (
            &[&load[..], &["--ca-certificate", &token]].concat(),
            1,
            "CA certificate",
        ),
    ] {
        let output = bench(arguments).await;
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(words), "{text}");
    }
    let plain = secure.url.replace("https:", "http:");
    let output = bench(&[&plain, "--ca-certificate", &ca]).await;
    assert!(stderr(&output).contains("https"), "{}", stderr(&output));
    assert!(!output.status.success());
}
