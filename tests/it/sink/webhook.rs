//! The webhook against a receiver that verifies every signature.

use std::fs;
use std::process::Command;
use std::time::Duration;

use tidings::sink::{FileOptions, JsonLines, SecretSource, Webhook, WebhookOptions};
use tidings_actors::attach::{AttachOptions, Attachment, Health};
use tidings_actors::{Filter, NoticeKind};

use super::receiver::{Receiver, Reply, SECRET};
use crate::support::{Bench, until};

const DETACH_TIMEOUT: Duration = Duration::from_secs(60);

fn options(receiver: &Receiver) -> WebhookOptions {
    WebhookOptions {
        allow_private: true,
        ..WebhookOptions::new(receiver.url(), SecretSource::Text(SECRET.to_owned()))
    }
}

/// Attaches a webhook for resources only.
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
async fn retries_send_the_same_signed_message() {
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
    assert!(recovered(&attached, 2).await);
    let received = receiver.received();
    assert_eq!(received.len(), 5, "{received:?}");
    for again in &received[1..4] {
        assert_eq!((&again.id, &again.text), (&received[0].id, &received[0].text));
        assert_eq!(again.path, "/hook", "a redirect was followed");
    }
    assert_ne!(received[4].id, received[0].id);
    let data = &received[0].body["data"];
    assert_eq!(
        (&received[0].body["type"], &data["uri"]),
        (&"resource.updated".into(), &"demo://a".into())
    );
    assert_eq!(
        (&data["kind"], &data["etag"]),
        (&"updated".into(), &"v1-1000".into())
    );
    assert_eq!(received[0].body["timestamp"], data["time"]);
    assert_eq!(received[4].body["type"], "resource.removed");
    assert_eq!(attached.info().retries, 3);
    assert!(attached.detach(DETACH_TIMEOUT).await);
}

/// Waits for `count` deliveries and a healthy state. Returns true if no error is left.
async fn recovered(attached: &Attachment, count: u64) -> bool {
    until("deliveries", async || attached.info().delivered == count).await;
    until("health", async || attached.info().health == Health::Running).await;
    attached.info().error.is_none()
}

#[tokio::test]
async fn hanging_receiver_is_seen_and_delays_no_other_sink() {
    let bench = Bench::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let receiver = Receiver::start([Reply::Hang]).await;
    let slow = WebhookOptions {
        timeout: Duration::from_secs(1),
        ..options(&receiver)
    };
    let hook = attach(&bench, &slow).await;
    let journal = FileOptions::new(&path);
    let journal = bench
        .bus
        .attach(AttachOptions::new("j"), move || JsonLines::open(&journal));
    let journal = journal.await.unwrap();
    bench.put("demo://a", "1").await;
    until("the stall", async || hook.info().health == Health::Stalled).await;
    bench.put("demo://a", "2").await;
    assert!(journal.detach(DETACH_TIMEOUT).await);
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written.matches("\"kind\":\"updated\"").count(), 2, "{written}");
    until("the failure", async || hook.info().error.is_some()).await;
    assert_eq!(
        hook.info().error.as_deref(),
        Some("the receiver did not answer in time")
    );
    assert!(recovered(&hook, 2).await);
    assert!(hook.detach(DETACH_TIMEOUT).await);
}

#[tokio::test]
async fn given_up_notice_is_counted_kept_and_reported() {
    let bench = Bench::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dead.jsonl");
    // The answers to the first notice, and to the gap that reports its loss.
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
    assert!(recovered(&hook, 1).await);
    assert!(hook.detach(DETACH_TIMEOUT).await);
}

#[tokio::test]
async fn gone_receiver_gets_no_further_requests() {
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
    assert_eq!(receiver.received().len(), 1);
    assert!(hook.detach(DETACH_TIMEOUT).await);
}

#[tokio::test]
async fn private_address_gets_no_connection() {
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
        until("the refusal", async || match hook.info().error {
            Some(error) => error.contains("no public address"),
            None => false,
        })
        .await;
        hook.detach(Duration::ZERO).await;
    }
    assert_eq!(receiver.received(), []);
}

#[tokio::test]
async fn documented_receiver_verifies_signatures() {
    let bench = Bench::start();
    let receiver = Receiver::start([]).await;
    let hook = attach(&bench, &options(&receiver)).await;
    bench.put("demo://a", "1").await;
    let got = receiver.until(1).await.remove(0);
    assert!(hook.detach(DETACH_TIMEOUT).await);
    let page = include_str!("../../../docs/sinks.md");
    let (_, rest) = page.split_once("```python\n").unwrap();
    let program = rest.split("```").next().unwrap();
    let [id, timestamp, signature] = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .map(|name| got.headers[name].to_str().unwrap().to_owned());
    let call = format!("{program}\nimport sys\nprint(verify(*sys.argv[1:5], sys.argv[5].encode()))");
    // The signature covers the body, so a changed one must not verify.
    for (body, expected) in [
        (got.text.clone(), "True\n"),
        (got.text.replace("demo://a", "demo://b"), "False\n"),
    ] {
        let output = Command::new("python3")
            .args(["-c", &call, SECRET, &id, &timestamp, &signature, &body])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{stderr}");
    }
}
