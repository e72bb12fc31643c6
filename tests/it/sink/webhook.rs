//! The webhook, against a receiver that verifies every signature.

use std::fs;
use std::process::Command;
use std::time::Duration;

use tidings::sink::{FileOptions, JsonLines, JsonLinesOptions, SecretSource, Webhook, WebhookOptions};
use tidings_actors::attach::{AttachOptions, Attachment, Health};
use tidings_actors::{Filter, NoticeKind};

use super::receiver::{Receiver, Reply, SECRET};
use crate::support::{Bench, until};

const PATIENCE: Duration = Duration::from_secs(60);

fn options(receiver: &Receiver) -> WebhookOptions {
    WebhookOptions {
        allow_private: true,
        ..WebhookOptions::new(receiver.url(), SecretSource::Text(SECRET.to_owned()))
    }
}

/// Attaches a webhook that is told of resources, not of lists.
async fn attach(bench: &Bench, options: &WebhookOptions) -> Attachment {
    let filter = Filter::default().kinds([NoticeKind::Updated, NoticeKind::Removed]);
    let mut attach = AttachOptions::new("hook").filter(filter);
    attach.stall_timeout = Duration::from_millis(50);
    attach.idle_every = Duration::from_millis(50);
    let options = options.clone();
    bench
        .bus
        .attach(attach, move || Webhook::open(&options))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_notice_is_one_signed_message_however_often_it_is_sent() {
    let bench = Bench::start();
    let receiver = Receiver::start([
        Reply::Status(500),
        Reply::With(302, "location", "/elsewhere".to_owned()),
        Reply::With(429, "retry-after", "1".to_owned()),
    ])
    .await;
    let attached = attach(&bench, &options(&receiver)).await;
    bench.put("demo://a", "1").await;
    bench.bus.remove("demo://a").await.unwrap();
    assert!(attached_until_done(&attached, 2).await);
    let got = receiver.got();
    assert_eq!(got.len(), 5, "{got:?}");
    for again in &got[1..4] {
        assert_eq!((&again.id, &again.text), (&got[0].id, &got[0].text));
        assert_eq!(again.path, "/hook", "a redirect was followed");
    }
    assert_ne!(got[4].id, got[0].id);
    let data = &got[0].body["data"];
    assert_eq!(
        (&got[0].body["type"], &data["uri"]),
        (&"resource.updated".into(), &"demo://a".into())
    );
    assert_eq!(
        (&data["kind"], &data["etag"]),
        (&"updated".into(), &"v1-1000".into())
    );
    assert_eq!(got[0].body["timestamp"], data["time"]);
    assert_eq!(got[4].body["type"], "resource.removed");
    assert_eq!(attached.info().retries, 3);
    assert!(attached.detach(PATIENCE).await);
}

async fn attached_until_done(attached: &Attachment, count: u64) -> bool {
    until("deliveries", async || attached.info().delivered == count).await;
    until("health", async || attached.info().health == Health::Running).await;
    attached.info().error.is_none()
}

#[tokio::test]
async fn a_receiver_that_hangs_is_seen_and_costs_nobody_else_anything() {
    let bench = Bench::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let receiver = Receiver::start([Reply::Hang]).await;
    let slow = WebhookOptions {
        timeout: Duration::from_secs(1),
        ..options(&receiver)
    };
    let hook = attach(&bench, &slow).await;
    let journal = JsonLinesOptions::new(&path);
    let journal = bench
        .bus
        .attach(AttachOptions::new("j"), move || JsonLines::open(&journal));
    let journal = journal.await.unwrap();
    bench.put("demo://a", "1").await;
    until("the stall", async || hook.info().health == Health::Stalled).await;
    bench.put("demo://a", "2").await;
    assert!(journal.detach(PATIENCE).await);
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written.matches("\"kind\":\"updated\"").count(), 2, "{written}");
    until("the failure", async || hook.info().error.is_some()).await;
    assert_eq!(
        hook.info().error.as_deref(),
        Some("the receiver did not answer in time")
    );
    assert!(attached_until_done(&hook, 2).await);
    assert!(hook.detach(PATIENCE).await);
}

#[tokio::test]
async fn what_is_given_up_is_kept_counted_and_told_to_the_receiver() {
    let bench = Bench::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dead.jsonl");
    // The first notice, then the word that it is missing.
    let receiver = Receiver::start([Reply::Status(400), Reply::Status(503)]).await;
    let options = WebhookOptions {
        attempts: 1,
        dead_letters: Some(FileOptions::new(&path)),
        ..options(&receiver)
    };
    let hook = attach(&bench, &options).await;
    bench.put("demo://a", "1").await;
    let got = receiver.until(2).await;
    assert_eq!(
        (&got[1].body["type"], &got[1].body["data"]["lost"]),
        (&"gap".into(), &1.into())
    );
    until("the failure", async || hook.info().health == Health::Failing).await;
    let info = hook.info();
    assert_eq!(info.lost, 1);
    assert_eq!(
        info.error.as_deref(),
        Some("the receiver answered 400; given up after 1 requests")
    );
    let letter: serde_json::Value = serde_json::from_str(fs::read_to_string(&path).unwrap().trim()).unwrap();
    assert_eq!(
        (&letter["uri"], &letter["id"]),
        (&"demo://a".into(), &got[0].id.clone().into())
    );
    assert_eq!(letter["error"], "the receiver answered 400");
    bench.put("demo://a", "2").await;
    assert!(attached_until_done(&hook, 1).await);
    assert!(hook.detach(PATIENCE).await);
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_nothing_more() {
    let bench = Bench::start();
    let receiver = Receiver::start([Reply::Status(410)]).await;
    let hook = attach(&bench, &options(&receiver)).await;
    bench.put("demo://a", "1").await;
    receiver.until(1).await;
    for number in 2..5 {
        bench.put("demo://a", &number.to_string()).await;
    }
    until("losses", async || hook.info().lost == 4).await;
    let info = hook.info();
    assert_eq!(info.health, Health::Failing);
    assert!(info.error.unwrap().contains("answered 410"));
    assert_eq!(receiver.got().len(), 1);
    assert!(hook.detach(PATIENCE).await);
}

#[tokio::test]
async fn an_address_inside_is_not_connected_to() {
    let bench = Bench::start();
    let receiver = Receiver::start([]).await;
    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let options = WebhookOptions {
            url: format!("http://{host}:{}/", receiver.address.port()),
            allow_private: false,
            ..options(&receiver)
        };
        let hook = attach(&bench, &options).await;
        bench.put("demo://a", host).await;
        until("the refusal", async || {
            hook.info()
                .error
                .is_some_and(|error| error.contains("no public address"))
        })
        .await;
        hook.detach(Duration::ZERO).await;
    }
    assert_eq!(receiver.got(), []);
}

#[tokio::test]
async fn a_receiver_verifies_with_the_lines_of_the_page() {
    let bench = Bench::start();
    let receiver = Receiver::start([]).await;
    let hook = attach(&bench, &options(&receiver)).await;
    bench.put("demo://a", "1").await;
    let got = receiver.until(1).await.remove(0);
    assert!(hook.detach(PATIENCE).await);
    let page = include_str!("../../../docs/sinks.md");
    let (_, rest) = page.split_once("```python\n").unwrap();
    let program = rest.split("```").next().unwrap();
    let header = |name: &str| got.headers[name].to_str().unwrap().to_owned();
    let verify = |body: &str| {
        let call = format!("{program}\nimport sys\nprint(verify(*sys.argv[1:5], sys.argv[5].encode()))");
        let output = Command::new("python3")
            .args([
                "-c",
                &call,
                SECRET,
                &header("webhook-id"),
                &header("webhook-timestamp"),
            ])
            .args([&header("webhook-signature"), body])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(verify(&got.text), "True\n");
    assert_eq!(verify(&got.text.replace("demo://a", "demo://b")), "False\n");
}
