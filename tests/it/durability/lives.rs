//! Many lives of one service: what former lives had is bounded, and no etag names two contents.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::disk::Control;
use super::home::{Connection, Home, Life};
use super::rounds;

/// The time within which the resources of a life are served, and those of the lives before are gone.
const SERVED_MAX: Duration = Duration::from_secs(20);

/// The memory and the store of a life.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    resident_kib: u64,
    store_kib: u64,
}

/// Returns the bytes of all files in a folder, in KiB.
fn folder_kib(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        bytes += match path.is_dir() {
            true => folder_kib(&path) << 10,
            false => fs::metadata(&path).unwrap().len(),
        };
    }
    bytes >> 10
}

/// Returns the number of listed resources whose URI begins so.
async fn count_listed(connection: &mut Connection, prefix: &str) -> usize {
    let mut count = 0;
    let mut after = String::new();
    loop {
        let path = format!("/v1/resources?limit=1000{after}");
        let request = connection.target.request_to("GET", &path).finish();
        let answer = connection.ask(&request).await.unwrap();
        let listed: Value = serde_json::from_slice(&answer.body).unwrap();
        let items = listed["items"].as_array().unwrap();
        count += items
            .iter()
            .filter(|item| item["uri"].as_str().unwrap().starts_with(prefix))
            .count();
        match listed["next"].as_str() {
            Some(next) => {
                let next = tidings::wire::http1::resource_path(next);
                after = format!("&after={}", next.trim_start_matches("/v1/resources/"));
            }
            None => return count,
        }
    }
}

/// Lives whose `register` prints resources that no life before had.
async fn run(lives: usize, resources: usize) -> Vec<Footprint> {
    let mut home = Home::new(
        "[bus]\nremoved_max = 100\n\n[register]\nrefresh = \"1s\"\n\n[workspace]\ndebounce = \"10ms\"\n",
    );
    let served = home.serve_folder();
    let script = served.join("register");
    fs::write(&script, "#!/bin/sh\ncat document.json\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut footprints = Vec::new();
    for life in 0..lives {
        let registered: Vec<Value> = (0..resources)
            .map(|number| {
                let uri = format!("run://{life}/{number}");
                json!({ "uri": uri, "text": "a registered text", "mediaType": "text/plain" })
            })
            .collect();
        let document = json!({ "resources": registered }).to_string();
        fs::write(served.join("document.json"), document).unwrap();
        let service = home.start().await;
        wait_registered(&service, life, resources).await;
        footprints.push(Footprint {
            resident_kib: service.resident_kib(),
            store_kib: folder_kib(home.data()),
        });
        service.kill().await;
    }
    footprints
}

/// Waits until the service serves the resources of this life and no others.
async fn wait_registered(service: &Life, life: usize, resources: usize) {
    let mut connection = service.connect();
    let began = Instant::now();
    loop {
        let own = count_listed(&mut connection, &format!("run://{life}/")).await;
        let all = count_listed(&mut connection, "run://").await;
        if own == resources && all == resources {
            return;
        }
        assert!(
            began.elapsed() < SERVED_MAX,
            "{own} of {resources} are listed, and {all} in all"
        );
        sleep(Duration::from_millis(20)).await;
    }
}

/// The later lives must need no more than the first quarter of them. The database doubles its file when its
/// free pages are scattered, and truncates it later, so that only a greater growth is one.
fn assert_bounded(footprints: &[Footprint]) {
    let (early, late) = footprints.split_at(footprints.len() / 4);
    for (name, figure, percent) in [
        ("store", store_kib as fn(&Footprint) -> u64, 250),
        ("memory", resident_kib, 125),
    ] {
        let before = early.iter().map(figure).max().unwrap();
        let after = late.iter().map(figure).max().unwrap();
        assert!(
            after * 100 <= before * percent,
            "the {name} grew from {before} to {after} KiB: {footprints:#?}"
        );
    }
}

fn store_kib(footprint: &Footprint) -> u64 {
    footprint.store_kib
}

fn resident_kib(footprint: &Footprint) -> u64 {
    footprint.resident_kib
}

#[tokio::test]
async fn former_lives_take_no_room() {
    assert_bounded(&run(12, 2_000).await);
}

#[tokio::test]
#[ignore = "20 lives, or DURABILITY_ROUNDS, of 2,000 resources"]
async fn long() {
    let footprints = run(rounds(20), 2_000).await;
    println!("{footprints:#?}");
    assert_bounded(&footprints);
}

/// Puts a text in a new life without a store, and checks that the etag of the life before is not that of it.
async fn etag_of_life(home: &Home, text: &str, before: Option<&str>) -> String {
    let life = home.start().await;
    let mut connection = life.connect();
    let etag = connection.put_etag("lives://a", text).await;
    if let Some(before) = before {
        assert_ne!(etag, before, "two contents in two lives");
        let condition = connection.resource("GET", "lives://a");
        let request = condition
            .header("If-None-Match", &format!("\"{before}\""))
            .finish();
        let answer = connection.ask(&request).await.unwrap();
        assert_eq!(answer.head.status, 200, "{before} is taken for {etag}");
    }
    life.kill().await;
    etag
}

#[tokio::test]
async fn lives_of_one_second_share_no_etag() {
    let home = Home::without_store("");
    for _ in 0..3 {
        let etag = etag_of_life(&home, "first", None).await;
        etag_of_life(&home, "second", Some(&etag)).await;
    }
}

#[tokio::test]
async fn clock_set_back_repeats_no_etag() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i32;
    for seconds in [0, 1, 3_600] {
        let home = Home::without_store("").with_layer();
        let layer = home.layer.as_ref().unwrap();
        layer.set(Control::ClockSecond, now);
        let first = etag_of_life(&home, "first", None).await;
        layer.set(Control::ClockSecond, now - seconds);
        etag_of_life(&home, "second", Some(&first)).await;
    }
    // With a store the versions tell the contents apart, and go on.
    let home = Home::new("").with_layer();
    let first = etag_of_life(&home, "first", None).await;
    home.layer
        .as_ref()
        .unwrap()
        .set(Control::ClockSecond, now - 3_600);
    let second = etag_of_life(&home, "second", Some(&first)).await;
    assert!(
        first.starts_with("v1-") && second.starts_with("v2-"),
        "{first} {second}"
    );
}
