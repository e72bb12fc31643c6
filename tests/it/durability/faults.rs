//! A disk that is full, fails or hangs: changes are refused or wait, everything else goes on, and writing
//! resumes by itself. Nothing acknowledged is lost by it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tidings::wire::connection::HttpAnswer;
use tidings::wire::dialect::{Dialect, Revision};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clients::{Client, tool_etag};
use super::disk::{Control, EIO, ENOSPC};
use super::home::{Connection, Home, Life};
use crate::support::number;

/// The time within which the service learns of a disk that fails, or that works again.
const NOTICED_MAX: Duration = Duration::from_secs(10);
const URI: &str = "fault://kept";

/// A service with acknowledged contents, a listener of both eras, and a disk that is about to fail.
struct Failing {
    home: Home,
    life: Life,
    connection: Connection,
    /// URI, etag and text of each acknowledged change.
    acknowledged: Vec<(String, String, String)>,
    clients: Vec<Client>,
}

impl Failing {
    async fn start(home: Home) -> Failing {
        let life = home.start().await;
        let mut connection = life.connect();
        let mut acknowledged = Vec::new();
        for (uri, text) in [(URI, "kept"), ("fault://large", &"large ".repeat(20_000))] {
            let etag = connection.put_etag(uri, text).await;
            acknowledged.push((uri.to_owned(), etag, text.to_owned()));
        }
        let mut clients = Vec::new();
        for revision in [Revision::R2025_11_25, Revision::R2026_07_28] {
            let mut client = Client::new(revision, [URI.to_owned()]);
            client
                .known
                .insert(URI.to_owned(), Some(acknowledged[0].1.clone()));
            client.connect(&life).await.unwrap();
            clients.push(client);
        }
        Failing {
            home,
            life,
            connection,
            acknowledged,
            clients,
        }
    }

    /// Puts new contents of this size until one is refused, and checks the refusal.
    async fn until_refused(&mut self, bytes: usize, statuses: &[u16]) {
        let began = Instant::now();
        for number in 0.. {
            assert!(began.elapsed() < NOTICED_MAX, "no change is refused");
            let uri = format!("fault://filler/{number}");
            let text = format!("filler {number}").repeat(bytes / 9 + 1);
            let answer = self.connection.put(&uri, &text).await.unwrap();
            match answer.head.etag() {
                Some(etag) if answer.head.is_success() => {
                    self.acknowledged.push((uri, etag.to_owned(), text));
                }
                _ => {
                    self.assert_refusal(&answer, statuses);
                    return;
                }
            }
        }
    }

    fn assert_refusal(&self, answer: &HttpAnswer, statuses: &[u16]) {
        let text = String::from_utf8_lossy(&answer.body);
        assert!(
            statuses.contains(&answer.head.status),
            "{} and not one of {statuses:?}: {text}; {}",
            answer.head.status,
            self.home.log()
        );
        assert!(
            answer.head.header("retry-after").is_some(),
            "no Retry-After: {text}"
        );
    }

    /// Everything that is no change goes on, and the failure can be seen.
    async fn assert_degraded(&mut self) {
        assert!(self.life.runs(), "{}", self.home.log());
        let answer = self.ask("/readyz").await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.head.status, 503, "{text}");
        assert!(
            text.contains("store") || text.contains("disk"),
            "/readyz gives no reason: {text}"
        );
        self.until_store_down().await;
        let (_, etag, text) = self.acknowledged[0].clone();
        let read = self.connection.get(URI).await.unwrap();
        assert_eq!(
            (read.head.etag(), read.body),
            (Some(etag.as_str()), text.into_bytes())
        );
        assert_eq!(tool_etag(&mut self.connection, URI).await, Ok(etag.clone()));
        assert_eq!(self.ask("/v1/resources").await.head.status, 200);
        let mut late = Client::new(Revision::R2025_11_25, [URI.to_owned()]);
        late.known.insert(URI.to_owned(), Some(etag));
        late.connect(&self.life).await.unwrap();
        assert_eq!(late.told().len(), 0);
    }

    /// Waits until the service writes again, by itself.
    async fn assert_resumed(&mut self) {
        let began = Instant::now();
        while self.ask("/readyz").await.head.status != 200 {
            assert!(
                began.elapsed() < NOTICED_MAX,
                "it does not resume: {}",
                self.home.log()
            );
            sleep(Duration::from_millis(20)).await;
        }
        self.until_store_up(1.0).await;
        let etag = self.connection.put_etag(URI, "after the failure").await;
        self.acknowledged[0] = (URI.to_owned(), etag.clone(), "after the failure".to_owned());
        // The streams that were open all the time carry the change.
        for client in &self.clients {
            let began = Instant::now();
            while client.told().last().map(|told| told.etag.clone()) != Some(etag.clone()) {
                assert!(
                    began.elapsed() < NOTICED_MAX,
                    "{}: {:?}",
                    client.name(),
                    client.told()
                );
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(client.told().len(), 1, "{}", client.name());
        }
    }

    /// Kills the service and starts it again: everything acknowledged is there.
    async fn assert_kept(self) {
        self.life.kill().await;
        let life = self.home.start().await;
        let mut connection = life.connect();
        for (uri, etag, text) in &self.acknowledged {
            let answer = connection.get(uri).await.unwrap();
            assert_eq!(answer.head.etag(), Some(etag.as_str()), "{uri}");
            assert_eq!(answer.body, text.as_bytes(), "{uri}");
        }
        let refused = connection.get("fault://refused").await.unwrap();
        assert_eq!(refused.head.status, 404, "a change that was refused is there");
        life.end().await;
    }

    async fn ask(&mut self, path: &str) -> HttpAnswer {
        let request = self.life.target.request_to("GET", path).finish();
        self.connection.ask(&request).await.unwrap()
    }

    /// Waits until the metric shows the failure. A disk without room for a large body may have room for the
    /// small write by which the store is tried, so that only further changes keep it down.
    async fn until_store_down(&mut self) {
        let began = Instant::now();
        let text = "large ".repeat(50_000);
        while self.metric("tidings_store_up").await != Some(0.0) {
            assert!(began.elapsed() < NOTICED_MAX, "tidings_store_up stays up");
            let answer = self.connection.put("fault://refused", &text).await.unwrap();
            self.assert_refusal(&answer, &[503, 507]);
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for the metric, which follows the store within about a second.
    async fn until_store_up(&mut self, expected: f64) {
        let began = Instant::now();
        while self.metric("tidings_store_up").await != Some(expected) {
            assert!(
                began.elapsed() < NOTICED_MAX,
                "tidings_store_up is not {expected}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn metric(&mut self, name: &str) -> Option<f64> {
        let answer = self.ask("/metrics").await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    }
}

/// A file system of a fixed size in memory, where the test may mount one.
struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    fn mount(place: PathBuf, size: &str) -> Option<SmallDisk> {
        fs::create_dir_all(&place).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tidings-test"])
            .arg(&place)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk { place }),
            _ => None,
        }
    }

    /// Fills a part of the disk with a file.
    fn fill(&self, bytes: usize) -> PathBuf {
        let file = self.place.join("filler");
        fs::write(&file, vec![7; bytes]).unwrap();
        file
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.place).status();
        if !matches!(unmounted, Ok(status) if status.success()) {
            eprintln!("{} stays mounted", self.place.display());
        }
    }
}

#[tokio::test]
async fn full_disk_refuses_changes_until_it_has_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut home = Home::without_store("");
    let Some(disk) = SmallDisk::mount(folder.path().join("small"), "12m") else {
        // Without the right to mount, the layer says that the disk is full.
        let failing = Failing::start(Home::new("").with_layer()).await;
        return fails_by_layer(failing, Control::WriteError, ENOSPC, &[507]).await;
    };
    let filler = disk.fill(4 << 20);
    home.set_data(disk.place.join("data"));
    let mut failing = Failing::start(home).await;
    failing.until_refused(150_000, &[507]).await;
    failing.assert_degraded().await;
    fs::remove_file(filler).unwrap();
    failing.assert_resumed().await;
    failing.assert_kept().await;
}

async fn fails_by_layer(mut failing: Failing, control: Control, error: i32, statuses: &[u16]) {
    let layer = failing.home.layer.as_ref().unwrap();
    layer.set(control, error);
    failing.until_refused(100, statuses).await;
    failing.until_refused(100_000, statuses).await;
    failing.assert_degraded().await;
    failing.home.layer.as_ref().unwrap().set(control, 0);
    failing.assert_resumed().await;
    failing.assert_kept().await;
}

#[tokio::test]
async fn failed_sync_refuses_changes_until_it_works() {
    let failing = Failing::start(Home::new("").with_layer()).await;
    fails_by_layer(failing, Control::SyncError, EIO, &[503]).await;
}

#[tokio::test]
async fn failed_write_refuses_changes_until_it_works() {
    let failing = Failing::start(Home::new("").with_layer()).await;
    fails_by_layer(failing, Control::WriteError, EIO, &[503]).await;
}

#[tokio::test]
async fn write_without_room_refuses_changes() {
    let failing = Failing::start(Home::new("").with_layer()).await;
    fails_by_layer(failing, Control::WriteError, ENOSPC, &[507]).await;
}

/// Limits the size of the files that a process writes.
fn limit_files(pid: u32, bytes: &str) {
    let status = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--fsize={bytes}:")])
        .status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn file_size_limit_is_no_death() {
    let mut failing = Failing::start(Home::new("")).await;
    let length = fs::metadata(failing.home.data().join("tidings.redb"))
        .unwrap()
        .len();
    limit_files(failing.life.pid(), &length.to_string());
    failing.until_refused(30_000, &[503, 507]).await;
    failing.assert_degraded().await;
    limit_files(failing.life.pid(), "unlimited");
    failing.assert_resumed().await;
    failing.assert_kept().await;
}

/// The times of one kind of request.
#[derive(Debug)]
struct Times {
    kind: &'static str,
    all: Vec<Duration>,
}

impl Times {
    /// Returns the time that 99 of 100 requests stay below.
    fn p99(&self) -> Duration {
        let mut all = self.all.clone();
        all.sort_unstable();
        all[(all.len() - 1) * 99 / 100]
    }
}

/// A client that asks for something that is not being written.
struct Asker {
    kind: &'static str,
    connection: Connection,
    /// The client as the newest revision has it, and one with a session.
    stateless: Dialect,
    session: Dialect,
}

impl Asker {
    async fn new(kind: &'static str, life: &Life) -> Asker {
        let mut connection = life.connect();
        let mut session = Dialect::new(Revision::R2025_11_25, "asker");
        let answer = connection.ask(&session.initialize(&life.target)).await.unwrap();
        session.session = answer.head.session().map(str::to_owned);
        connection.ask(&session.initialized(&life.target)).await.unwrap();
        Asker {
            kind,
            connection,
            stateless: Dialect::new(Revision::R2026_07_28, "asker"),
            session,
        }
    }

    fn request(&self) -> Vec<u8> {
        let target = &self.connection.target;
        match self.kind {
            "read" => self.connection.resource("GET", URI).finish(),
            "list" => target.request_to("GET", "/v1/resources").finish(),
            "poll" => {
                let params = json!({ "name": "get_resource_etag", "arguments": { "uri": URI } });
                self.stateless.request(target, 1, "tools/call", params)
            }
            "open" => Dialect::new(Revision::R2025_11_25, "asker").initialize(target),
            method => self.session.request(target, 2, method, json!({ "uri": URI })),
        }
    }

    /// Asks again and again.
    async fn run(mut self, until: Instant) -> Times {
        let mut all = Vec::new();
        // At least once, since the first request may be held itself.
        while all.is_empty() || Instant::now() < until {
            let request = self.request();
            let asked = Instant::now();
            let answer = self.connection.ask(&request).await.unwrap();
            all.push(asked.elapsed());
            assert!(answer.head.is_success(), "{}: {answer:?}", self.kind);
            sleep(Duration::from_millis(3)).await;
        }
        let kind = self.kind;
        Times { kind, all }
    }
}

/// Delays every sync while a change is written; returns the times of the requests beside it.
async fn hold_sync(held: Duration) -> Vec<Times> {
    let failing = Failing::start(Home::new("").with_layer()).await;
    let mut askers = Vec::new();
    for kind in [
        "read",
        "list",
        "poll",
        "open",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        askers.push(Asker::new(kind, &failing.life).await);
    }
    let layer = failing.home.layer.as_ref().unwrap();
    layer.set(Control::SyncDelay, i32::try_from(held.as_millis()).unwrap());
    let mut writer = failing.life.connect();
    let began = Instant::now();
    let writing = tokio::spawn(async move {
        let answer = writer.put("fault://held", "held").await.unwrap();
        assert!(answer.head.is_success(), "{answer:?}");
    });
    sleep(Duration::from_millis(50)).await;
    let mut tasks = JoinSet::new();
    for asker in askers {
        tasks.spawn(asker.run(began + held));
    }
    let times = tasks.join_all().await;
    writing.await.unwrap();
    assert!(began.elapsed() >= held, "the sync was not held");
    failing.life.kill().await;
    times
}

/// Lists the kinds of requests whose p99 is not below the limit.
fn slow_kinds(times: &[Times], limit: Duration) -> Vec<String> {
    let mut slow = Vec::new();
    for times in times {
        let p99 = times.p99();
        if p99 >= limit {
            slow.push(format!("{}: p99 {p99:?} of {}", times.kind, times.all.len()));
        }
    }
    slow
}

#[tokio::test]
async fn held_sync_delays_no_other_request() {
    let held = Duration::from_secs(2);
    let times = hold_sync(held).await;
    // The machine of the tests may be busy; a request that waits for the disk takes far longer.
    assert_eq!(slow_kinds(&times, held / 4), [""; 0]);
}

#[tokio::test]
#[ignore = "holds a sync for 6 s, or DURABILITY_SECONDS, and needs a quiet machine"]
async fn long() {
    let times = hold_sync(Duration::from_secs(number("DURABILITY_SECONDS", 6))).await;
    for times in &times {
        println!(
            "{}: {} requests, p99 {:?}",
            times.kind,
            times.all.len(),
            times.p99()
        );
    }
    assert_eq!(slow_kinds(&times, Duration::from_millis(20)), [""; 0]);
}
