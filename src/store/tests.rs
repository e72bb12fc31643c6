use std::time::{Duration, Instant};

use tidings_actors::{
    Body, Bus, Digest, Etag, Limits, Line, Resource, ResourceTemplate, SessionOptions, SubscriberKind,
    Variables,
};

use super::*;

/// A limit of removed URIs that these tests do not reach.
const REMOVED_MAX: usize = 1000;

/// The number of bytes that are damaged, one after the other.
const FLIPS: usize = 20;

fn uri(name: &str) -> ResourceUri {
    ResourceUri::new(&format!("demo://{name}")).unwrap()
}

fn record(offset: u64, name: &str, version: u64, digest: Option<u128>) -> Record {
    let etag = Etag {
        version,
        updated_at: 100 + offset,
        life: 0,
    };
    let line = Line {
        etag,
        digest: digest.map(Digest),
        live: digest.is_some(),
    };
    Record {
        offset,
        floor: 0,
        line: Some((uri(name), line)),
    }
}

fn lines(records: &[&Record]) -> Vec<(ResourceUri, Line)> {
    let lines = records.iter().map(|record| record.line.clone());
    lines.flatten().collect()
}

fn open(dir: &Path) -> RedbStore {
    RedbStore::open(dir, REMOVED_MAX).unwrap()
}

#[test]
fn appended_records_are_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made/when/missing");
    let mut store = open(&dir);
    let first = store.load().unwrap();
    assert_ne!(first.epoch, 0);
    assert_eq!((first.offset, first.floor, first.lines.len()), (0, 0, 0));

    let old = record(1, "a", 1, Some(7));
    let b = record(2, "b", 1, Some(8));
    let new = record(3, "a", 2, Some(9));
    let gone = record(4, "c", 6, None);
    store.append(&[old, b.clone()]).unwrap();
    let list_only = Record {
        offset: 5,
        floor: 3,
        line: None,
    };
    store.append(&[new.clone(), gone.clone(), list_only]).unwrap();
    drop(store);

    let again = open(&dir).load().unwrap();
    assert_eq!((again.epoch, again.offset, again.floor), (first.epoch, 5, 3));
    assert_eq!(again.lines, lines(&[&b, &new, &gone]));
}

#[test]
fn appended_records_are_durable_without_a_close() {
    let folder = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    let epoch = store.load().unwrap().epoch;
    for offset in 1..=20 {
        store
            .append(&[record(offset, "a", offset, Some(offset.into()))])
            .unwrap();
        // A copy has the bytes that a kill at this moment would leave.
        std::fs::copy(folder.path().join(STORE_FILE), copy.path().join(STORE_FILE)).unwrap();
        let left = open(copy.path()).load().unwrap();
        assert_eq!((left.epoch, left.offset), (epoch, offset));
        assert_eq!(left.lines[0].1.etag.version, offset);
    }
}

#[test]
fn oldest_removed_lines_are_folded_into_the_floor() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = RedbStore::open(folder.path(), 2).unwrap();
    store.load().unwrap();
    let kept = record(1, "live", 50, Some(1));
    store.append(std::slice::from_ref(&kept)).unwrap();
    store
        .append(&[
            record(2, "a", 4, None),
            record(3, "b", 9, None),
            record(4, "c", 2, None),
        ])
        .unwrap();
    let checkpoint = store.load().unwrap();
    assert_eq!(checkpoint.floor, 4);
    assert_eq!(checkpoint.lines.len(), 3);

    // A resource that came back is not removed any more, so its old entry folds nothing.
    store
        .append(&[
            record(5, "b", 10, Some(3)),
            record(6, "d", 5, None),
            record(7, "b", 11, None),
        ])
        .unwrap();
    let checkpoint = store.load().unwrap();
    assert_eq!(checkpoint.floor, 4);
    let names: Vec<_> = checkpoint.lines.iter().map(|(uri, _)| uri.as_str()).collect();
    assert_eq!(names, ["demo://live", "demo://d", "demo://b"]);

    drop(store);
    let checkpoint = RedbStore::open(folder.path(), 0).unwrap().load().unwrap();
    assert_eq!((checkpoint.floor, checkpoint.lines), (11, lines(&[&kept])));
}

#[test]
fn file_in_use_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let _store = open(folder.path());
    let text = RedbStore::open(folder.path(), REMOVED_MAX)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains(STORE_FILE) && text.contains("in use by another process"),
        "{text}"
    );
}

#[test]
fn newer_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path())
        .write(|tables| tables.set("format", FORMAT + 1))
        .unwrap();
    let text = RedbStore::open(folder.path(), REMOVED_MAX)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains(STORE_FILE) && text.contains("format 2, which is newer"),
        "{text}"
    );
}

#[test]
fn uncreatable_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let text = RedbStore::open(&file, REMOVED_MAX).unwrap_err().to_string();
    assert!(text.contains("cannot be used"), "{text}");
}

#[test]
fn damaged_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    let epoch = store.load().unwrap().epoch;
    let all: Vec<Record> = (1..200)
        .map(|n| record(n, &format!("n{n}"), n, Some(n.into())))
        .collect();
    store.append(&all).unwrap();
    drop(store);
    let file = folder.path().join(STORE_FILE);
    let whole = std::fs::read(&file).unwrap();

    let mut half = whole.clone();
    half.truncate(whole.len() / 2);
    for bytes in [b"not a store at all".to_vec(), vec![0x55; 100_000], half] {
        std::fs::write(&file, bytes).unwrap();
        let text = RedbStore::open(folder.path(), REMOVED_MAX)
            .unwrap_err()
            .to_string();
        assert!(text.contains(STORE_FILE) && text.contains("damaged"), "{text}");
    }

    // Damage only bytes that are not 0, since most of a new file is empty pages.
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let mut reported = 0;
    for at in used.iter().copied().step_by(used.len() / FLIPS) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&file, bytes).unwrap();
        let loaded = match RedbStore::open(folder.path(), REMOVED_MAX) {
            Ok(mut store) => store.load(),
            Err(error) => Err(error),
        };
        match loaded {
            Err(error) => {
                reported += 1;
                assert!(error.to_string().contains(STORE_FILE), "{error}");
            }
            // The byte was in a page of an older transaction, which no longer matters.
            Ok(checkpoint) => {
                assert_eq!(
                    (checkpoint.epoch, checkpoint.lines.len()),
                    (epoch, 199),
                    "byte {at}"
                );
            }
        }
    }
    assert!(reported > 0);
}

/// Opens the store of a bus that has just stopped, whose thread may hold the file for a moment longer.
fn reopen(dir: &Path, removed_max: usize) -> RedbStore {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match RedbStore::open(dir, removed_max) {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}

fn start(dir: &Path, removed_max: usize, now: u64) -> Bus {
    let mut limits = Limits::default();
    limits.removed_max = removed_max;
    limits.shards = 1;
    let builder = Bus::builder().limits(limits).clock(move || now);
    builder.store(reopen(dir, removed_max)).start().unwrap()
}

async fn stop(bus: Bus) {
    bus.shutdown(Duration::ZERO).await;
}

/// A template every member of which exists.
fn members() -> ResourceTemplate {
    ResourceTemplate::new("member://{id}", async |_: ResourceUri, _: Variables| {
        Ok(Some(Body::text("x")))
    })
    .unwrap()
}

fn text(name: &str, body: &str) -> Resource {
    Resource::text(uri(name), body).unwrap()
}

#[tokio::test]
async fn versions_continue_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let bus = start(folder.path(), REMOVED_MAX, 10);
    let same = bus.register(text("same", "x")).await.unwrap();
    bus.register(text("changed", "x")).await.unwrap();
    let changed = bus.update(text("changed", "y")).await.unwrap();
    bus.register(text("removed", "x")).await.unwrap();
    let removed = bus.remove(uri("removed")).await.unwrap();
    stop(bus).await;
    let before = reopen(folder.path(), REMOVED_MAX).load().unwrap();

    let bus = start(folder.path(), REMOVED_MAX, 20);
    let session = bus
        .open(SessionOptions::new(SubscriberKind::Local, "test"))
        .await
        .unwrap();
    session.watch_all().await.unwrap();
    let again = bus.register(text("same", "x")).await.unwrap();
    assert_eq!((again.etag, again.notified), (same.etag, 0));
    let again = bus.register(text("changed", "z")).await.unwrap();
    assert_eq!(
        (again.etag.version, again.notified),
        (changed.etag.version + 1, 1)
    );
    let again = bus.register(text("removed", "x")).await.unwrap();
    assert_eq!(again.etag.version, removed.etag.version + 1);
    drop(session);
    stop(bus).await;
    let after = reopen(folder.path(), REMOVED_MAX).load().unwrap();
    assert_eq!(after.epoch, before.epoch);
    assert!(
        before.offset > 0 && after.offset > before.offset,
        "{} {}",
        before.offset,
        after.offset
    );
}

/// No restart lowers a version, however few removed URIs are kept. This includes members of templates.
#[tokio::test]
async fn restart_never_lowers_a_forgotten_version() {
    for removed_max in [0, 1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let mut highest = std::collections::HashMap::new();
        for run in 1..4 {
            let bus = start(folder.path(), removed_max, run);
            bus.add_template(members()).await.unwrap();
            for name in ["a", "b", "c", "a"] {
                let outcome = bus.register(text(name, "x")).await.unwrap();
                let version = outcome.etag.version;
                assert!(
                    highest.insert(name, version).unwrap_or(0) < version,
                    "{name} {removed_max}"
                );
                let outcome = bus.remove(uri(name)).await.unwrap();
                assert!(highest.insert(name, outcome.etag.version).unwrap_or(0) < outcome.etag.version);
            }
            let member = bus.etag("member://1").await.unwrap().version;
            assert!(
                highest.insert("member", member).unwrap_or(0) <= member,
                "{removed_max}"
            );
            stop(bus).await;
        }
    }
}

/// The ledger may forget another URI than the store does; its floor must hold after a restart all the same.
#[tokio::test]
async fn floor_of_the_ledger_holds_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let bus = start(folder.path(), 2, 1);
    bus.add_template(members()).await.unwrap();
    for member in [
        "member://1",
        "member://1",
        "member://2",
        "member://1",
        "member://3",
    ] {
        bus.touch(member).await.unwrap();
    }
    let untouched = bus.etag("member://4").await.unwrap().version;
    assert_eq!(untouched, 5);
    stop(bus).await;
    let bus = start(folder.path(), 2, 2);
    bus.add_template(members()).await.unwrap();
    assert!(bus.etag("member://4").await.unwrap().version >= untouched);
    stop(bus).await;
}
