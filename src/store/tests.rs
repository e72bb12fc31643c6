use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{StorageBackend, TableDefinition};
use tidings_actors::{
    Body, Bus, Cause, ChangeKind, Content, Descriptor, Digest, Etag, KeptContent, KeptLine, Life, Limits,
    Line, LineState, Lineage, ListHash, ListKind, LoggedChange, Owner, Record, Resource, ResourceTemplate,
    ResourceUri, SessionOptions, SubscriberKind, Variables,
};

use super::*;

/// A limit of removed URIs that these tests do not reach.
const REMOVED_MAX: usize = 1000;

/// The number of bytes that are damaged, one after the other.
const FLIPS: usize = 20;

pub(super) fn uri(name: &str) -> ResourceUri {
    ResourceUri::new(&format!("demo://{name}")).unwrap()
}

/// A line of the embedder, removed if it has no digest.
pub(super) fn line(offset: u64, version: u64, digest: Option<u128>) -> Line {
    let etag = Etag {
        version,
        updated_at: 100 + offset,
        life: 0,
    };
    Line {
        etag,
        digest: digest.map(Digest),
        state: match digest {
            Some(_) => LineState::Live,
            None => LineState::Removed,
        },
        offset,
        owner: digest.map(|_| Owner::Embedder),
        unclaimed_since: None,
    }
}

pub(super) fn record(offset: u64, name: &str, version: u64, digest: Option<u128>) -> Record {
    Record::Line {
        uri: uri(name),
        line: line(offset, version, digest),
        content: KeptContent::None,
    }
}

/// A batch that ends at `offset`.
pub(super) fn batch(offset: u64, records: impl Into<Vec<Record>>) -> Batch {
    Batch {
        records: records.into(),
        offset,
        floor: 0,
        log_start: 0,
    }
}

/// The record of a resource of the API.
pub(super) fn put(offset: u64, resource: Resource) -> Record {
    let digest = resource.digest().expect("the body is held");
    let mut line = line(offset, offset, Some(digest.0));
    line.owner = Some(Owner::Api);
    Record::Line {
        uri: resource.uri().clone(),
        line,
        content: KeptContent::Resource(resource.into()),
    }
}

/// A text of the size that gets a file of its own.
pub(super) fn long(letter: &str) -> String {
    letter.repeat(tables::INLINE_MAX + 1)
}

/// The lines of records, as they are loaded.
fn lines(records: &[&Record]) -> Vec<(ResourceUri, Line, Option<Resource>)> {
    let mut lines = Vec::new();
    for record in records {
        let Record::Line { uri, line, content } = record else {
            continue;
        };
        let resource = match content {
            KeptContent::Resource(resource) => Some((**resource).clone()),
            _ => None,
        };
        lines.push((uri.clone(), line.clone(), resource));
    }
    lines
}

pub(super) fn loaded_lines(checkpoint: Checkpoint) -> Vec<(ResourceUri, Line, Option<Resource>)> {
    let lines = checkpoint.lines.into_iter();
    lines
        .map(|KeptLine { uri, line, resource }| (uri, line, resource))
        .collect()
}

pub(super) fn open(dir: &Path) -> RedbStore {
    RedbStore::open(dir, REMOVED_MAX).unwrap()
}

/// Opens and loads the store, and returns the text of the error.
pub(super) fn load_error(dir: &Path) -> String {
    let loaded = RedbStore::open(dir, REMOVED_MAX).and_then(|mut store| store.load());
    loaded.unwrap_err().to_string()
}

/// The files of bodies in the folder `dir`.
pub(super) fn body_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(dir.join("bodies")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            files.push(file.unwrap().path());
        }
    }
    files
}

/// Copies the folder, as a kill at this moment would leave it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }
}

#[test]
fn appended_lines_are_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made/when/missing");
    let mut store = open(&dir);
    let first = store.load().unwrap();
    assert_eq!((first.offset, first.floor), (0, 0));
    assert!(first.lines.is_empty() && first.lives.is_empty());

    let old = record(1, "a", 1, Some(7));
    let b = record(2, "b", 1, Some(8));
    let new = record(3, "a", 2, Some(9));
    let gone = record(4, "c", 6, None);
    store.append(&batch(2, [old, b.clone()])).unwrap();
    let mut last = batch(5, [new.clone(), gone.clone()]);
    last.floor = 3;
    store.append(&last).unwrap();
    drop(store);

    let again = open(&dir).load().unwrap();
    assert_eq!((again.offset, again.floor), (5, 3));
    assert_eq!(loaded_lines(again), lines(&[&b, &new, &gone]));
}

#[test]
fn every_other_record_is_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.load().unwrap();
    let hash = ListHash::EMPTY.with(Digest(5));
    let etag = line(2, 4, None).etag;
    let changes = [
        ChangeKind::Resource(uri("a"), etag, Cause::Removed),
        ChangeKind::List(ListKind::Tools),
        ChangeKind::Resource(uri("b"), etag, Cause::Updated),
    ];
    let mut records = vec![
        Record::Life(70),
        Record::List(ListKind::Tools, hash, 3),
        Record::Cursor("webhook".into(), Some(1)),
        Record::Cursor("journal".into(), Some(1)),
    ];
    for (offset, change) in (2..).zip(changes.clone()) {
        records.push(Record::Change(LoggedChange { offset, change }));
    }
    store.append(&batch(4, records)).unwrap();
    let mut last = batch(
        6,
        [
            Record::Cursor("webhook".into(), Some(3)),
            Record::Cursor("journal".into(), None),
            Record::Life(80),
        ],
    );
    last.log_start = 3;
    store.append(&last).unwrap();
    drop(store);

    let checkpoint = open(folder.path()).load().unwrap();
    assert_eq!(
        checkpoint.lives,
        [Life { epoch: 70, end: 4 }, Life { epoch: 80, end: 6 }]
    );
    assert_eq!(checkpoint.lists, [None, Some((hash, 3)), None]);
    assert_eq!(checkpoint.cursors, [("webhook".into(), 3)]);
    let [_, _, change] = changes;
    assert_eq!(checkpoint.changes, [LoggedChange { offset: 4, change }]);
}

#[test]
fn former_lives_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    for epoch in 1..=100 {
        store.append(&batch(epoch, [Record::Life(epoch)])).unwrap();
    }
    let lives = store.load().unwrap().lives;
    assert_eq!(lives.len(), Lineage::FORMER_MAX);
    assert_eq!((lives[0].epoch, lives[63]), (37, Life { epoch: 100, end: 100 }));
}

#[test]
fn content_is_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.load().unwrap();
    let described = Descriptor {
        name: "name".into(),
        title: Some("Title".into()),
        description: Some(String::new()),
        media_type: None,
        subscribable: false,
        listed: false,
        ..Descriptor::new(uri("described"))
    };
    let records = [
        put(1, text("short", "x")),
        put(2, Resource::blob(uri("blob"), vec![0, 255]).unwrap()),
        put(3, text("long", &long("x"))),
        put(4, Resource::blob(uri("equal"), long("x")).unwrap()),
        put(5, Resource::new(described, Content::Held(Body::text("")))),
    ];
    store.append(&batch(5, records.clone())).unwrap();
    drop(store);
    // Equal bytes share a file.
    assert_eq!(body_files(folder.path()).len(), 1);
    let checkpoint = open(folder.path()).load().unwrap();
    let records: Vec<&Record> = records.iter().collect();
    assert_eq!(loaded_lines(checkpoint), lines(&records));
}

#[test]
fn kept_content_survives_a_change_of_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.load().unwrap();
    let resources = [text("short", "x"), text("long", &long("x"))];
    for (offset, resource) in (1..).zip(resources.clone()) {
        store.append(&batch(offset, [put(offset, resource)])).unwrap();
    }
    for (offset, resource) in (3..).zip(resources.clone()) {
        let Record::Line { uri, line, .. } = put(offset, resource) else {
            continue;
        };
        let content = KeptContent::Same;
        store
            .append(&batch(offset, [Record::Line { uri, line, content }]))
            .unwrap();
    }
    drop(store);
    let checkpoint = open(folder.path()).load().unwrap();
    let kept: Vec<_> = checkpoint
        .lines
        .into_iter()
        .map(|kept| (kept.line.offset, kept.resource))
        .collect();
    let [short, long] = resources;
    assert_eq!(kept, [(3, Some(short)), (4, Some(long))]);
}

#[test]
fn file_of_a_body_goes_with_its_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = RedbStore::open(folder.path(), 0).unwrap();
    store.load().unwrap();
    let body = long("x");
    let names = ["replaced", "removed", "forgotten"];
    for (offset, name) in (1..).zip(names) {
        store
            .append(&batch(offset, [put(offset, text(name, &body))]))
            .unwrap();
    }
    let ends = [
        put(4, text("replaced", "short")),
        record(5, "removed", 5, None),
        Record::Forget(uri("forgotten")),
    ];
    for (offset, end) in (4..).zip(ends) {
        assert_eq!(body_files(folder.path()).len(), 1, "{end:?}");
        store.append(&batch(offset, [end])).unwrap();
    }
    assert!(body_files(folder.path()).is_empty());
    drop(store);
    let left = RedbStore::open(folder.path(), 0).unwrap().load().unwrap();
    assert_eq!((left.lines.len(), left.floor), (1, 5));
}

#[test]
fn orphaned_body_is_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.load().unwrap();
    store
        .append(&batch(1, [put(1, text("kept", &long("x")))]))
        .unwrap();
    // A crash after the file and before the transaction.
    store.bodies.write([long("y").as_bytes()]).unwrap();
    drop(store);
    assert_eq!(body_files(folder.path()).len(), 2);
    let loaded = open(folder.path()).load().unwrap();
    assert_eq!((loaded.lines.len(), body_files(folder.path()).len()), (1, 1));
}

#[test]
fn bodies_of_another_history_stay_for_one_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.load().unwrap();
    store.append(&batch(1, [put(1, text("a", &long("x")))])).unwrap();
    drop(store);
    let file = folder.path().join(STORE_FILE);
    let saved = folder.path().join("saved");
    std::fs::rename(&file, &saved).unwrap();
    assert!(open(folder.path()).load().unwrap().lines.is_empty());
    std::fs::rename(&saved, &file).unwrap();
    assert_eq!(open(folder.path()).load().unwrap().lines.len(), 1);
}

#[test]
fn appended_records_are_durable_without_a_close() {
    let folder = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.append(&batch(0, [Record::Life(9)])).unwrap();
    for offset in 1..=20 {
        let body = match offset % 2 {
            0 => long(&offset.to_string()),
            _ => offset.to_string(),
        };
        let record = put(offset, text("a", &body));
        store.append(&batch(offset, [record.clone()])).unwrap();
        // A copy has the bytes that a kill at this moment would leave.
        let dir = copies.path().join(offset.to_string());
        copy(folder.path(), &dir);
        let left = open(&dir).load().unwrap();
        assert_eq!(
            left.lives,
            [Life {
                epoch: 9,
                end: offset
            }]
        );
        assert_eq!(loaded_lines(left), lines(&[&record]));
    }
}

#[test]
fn oldest_removed_lines_are_folded_into_the_floor() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = RedbStore::open(folder.path(), 2).unwrap();
    store.load().unwrap();
    let kept = record(1, "live", 50, Some(1));
    store.append(&batch(1, [kept.clone()])).unwrap();
    let removed = [
        record(2, "a", 4, None),
        record(3, "b", 9, None),
        record(4, "c", 2, None),
    ];
    store.append(&batch(4, removed)).unwrap();
    let checkpoint = store.load().unwrap();
    assert_eq!(checkpoint.floor, 4);
    assert_eq!(checkpoint.lines.len(), 3);

    // A resource that came back is not removed any more, so its old entry folds nothing.
    let back = [
        record(5, "b", 10, Some(3)),
        record(6, "d", 5, None),
        record(7, "b", 11, None),
    ];
    store.append(&batch(7, back)).unwrap();
    let checkpoint = store.load().unwrap();
    assert_eq!(checkpoint.floor, 4);
    let names: Vec<_> = checkpoint.lines.iter().map(|kept| kept.uri.as_str()).collect();
    assert_eq!(names, ["demo://live", "demo://d", "demo://b"]);

    drop(store);
    let checkpoint = RedbStore::open(folder.path(), 0).unwrap().load().unwrap();
    assert_eq!(checkpoint.floor, 11);
    assert_eq!(loaded_lines(checkpoint), lines(&[&kept]));
}

/// Writes a file of format 1: a live and a removed line.
fn write_former_format(dir: &Path) {
    const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    const LINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lines");
    const REMOVED: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("removed");
    let database = Database::create(dir.join(STORE_FILE)).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut meta = transaction.open_table(META).unwrap();
        for (name, value) in [("format", 1), ("epoch", 50), ("offset", 9), ("floor", 2)] {
            meta.insert(name, value).unwrap();
        }
        let mut lines = transaction.open_table(LINES).unwrap();
        for (name, offset, digest) in [("demo://live", 8u64, Some(7u128)), ("demo://gone", 9, None)] {
            let mut bytes = vec![1, if digest.is_some() { 3 } else { 0 }];
            for number in [4, 100 + offset, offset] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend(digest.iter().flat_map(|digest| digest.to_le_bytes()));
            lines.insert(name, bytes.as_slice()).unwrap();
        }
        let mut removed = transaction.open_table(REMOVED).unwrap();
        removed.insert((9, "demo://gone"), ()).unwrap();
    }
    transaction.commit().unwrap();
}

#[test]
fn former_format_is_upgraded() {
    let folder = tempfile::tempdir().unwrap();
    write_former_format(folder.path());
    let mut store = open(folder.path());
    let checkpoint = store.load().unwrap();
    assert_eq!((checkpoint.offset, checkpoint.floor), (9, 2));
    assert_eq!(checkpoint.lives, [Life { epoch: 50, end: 9 }]);
    let mut live = line(8, 4, Some(7));
    live.owner = None;
    let expected = [(uri("live"), live, None), (uri("gone"), line(9, 4, None), None)];
    assert_eq!(loaded_lines(checkpoint), expected);

    // Former lines give way to new ones like any other.
    let back = record(10, "gone", 5, Some(1));
    store.append(&batch(10, [back.clone()])).unwrap();
    drop(store);
    let checkpoint = RedbStore::open(folder.path(), 0).unwrap().load().unwrap();
    assert_eq!(checkpoint.lines.len(), 2);
    assert_eq!(loaded_lines(checkpoint)[1..], lines(&[&back]));
}

/// Opens the store of `dir`; `pause` stands for the pauses in which the start waits for the file.
fn open_pausing(dir: &Path, pause: impl FnMut(Duration)) -> Result<RedbStore, StoreError> {
    let file = dir.join(STORE_FILE);
    RedbStore::try_open(dir, &file, REMOVED_MAX, pause).map_err(|fault| fault.of(&file))
}

#[test]
fn file_in_use_is_reported_after_two_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let _store = open(folder.path());
    let mut waited = Duration::ZERO;
    let text = match open_pausing(folder.path(), |pause| waited += pause) {
        Ok(_) => panic!("two stores have one file"),
        Err(error) => error.to_string(),
    };
    assert!(
        text.contains(STORE_FILE) && text.contains("in use by another process"),
        "{text}"
    );
    assert_eq!(waited, Duration::from_secs(2));
}

/// A process that was killed has its files for some milliseconds more.
#[test]
fn file_that_becomes_free_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Some(open(folder.path()));
    let mut waited = Duration::ZERO;
    let opened = open_pausing(folder.path(), |pause| {
        waited += pause;
        if waited >= Duration::from_millis(300) {
            holder = None;
        }
    });
    let loaded = opened.and_then(|mut store| store.load());
    assert!(loaded.is_ok(), "{loaded:?}");
    assert_eq!(waited, Duration::from_millis(300));
}

#[test]
fn newer_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    write(store.database.read().as_ref().unwrap(), |tables| {
        tables.set(FORMAT_KEY, FORMAT + 1)
    })
    .unwrap();
    drop(store);
    let text = load_error(folder.path());
    assert!(
        text.contains(STORE_FILE) && text.contains("format 3, which is newer"),
        "{text}"
    );
}

#[test]
fn uncreatable_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let text = load_error(&file);
    assert!(text.contains("cannot be used"), "{text}");
}

#[test]
fn damaged_body_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.load().unwrap();
    store.append(&batch(1, [put(1, text("a", &long("x")))])).unwrap();
    drop(store);
    let file = body_files(folder.path()).remove(0);
    let whole = std::fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[100] ^= 1;
    for (bytes, problem) in [
        (Some(flipped), "was altered".to_owned()),
        (
            Some(whole[..12].to_vec()),
            format!("has 12 of {} bytes", whole.len()),
        ),
        (Some(Vec::new()), format!("has 0 of {} bytes", whole.len())),
        (None, "is missing".to_owned()),
    ] {
        match bytes {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let error = load_error(folder.path());
        let expected = format!(
            "the store failed: {} with the body of demo://a {problem}; restore",
            file.display()
        );
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn body_with_another_digest_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    let Record::Line {
        uri,
        mut line,
        content,
    } = put(1, text("a", "x"))
    else {
        panic!("a put is a line");
    };
    line.digest = Some(Digest(1));
    store
        .append(&batch(1, [Record::Line { uri, line, content }]))
        .unwrap();
    let error = store.load().unwrap_err().to_string();
    assert!(error.contains("the body of demo://a was altered"), "{error}");
}

#[test]
fn damaged_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.append(&batch(0, [Record::Life(9)])).unwrap();
    let all: Vec<Record> = (1..200).map(|n| put(n, text(&format!("n{n}"), "body"))).collect();
    store.append(&batch(199, all.clone())).unwrap();
    drop(store);
    let file = folder.path().join(STORE_FILE);
    let whole = std::fs::read(&file).unwrap();

    let mut half = whole.clone();
    half.truncate(whole.len() / 2);
    for bytes in [b"not a store at all".to_vec(), vec![0x55; 100_000], half] {
        std::fs::write(&file, bytes).unwrap();
        let text = load_error(folder.path());
        assert!(text.contains(STORE_FILE) && text.contains("damaged"), "{text}");
    }

    // Damage only bytes that are not 0, since most of a new file is empty pages.
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let expected: Vec<&Record> = all.iter().collect();
    let mut reported = 0;
    for at in used.iter().copied().step_by(used.len() / FLIPS) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&file, bytes).unwrap();
        match RedbStore::open(folder.path(), REMOVED_MAX).and_then(|mut store| store.load()) {
            Err(error) => {
                reported += 1;
                assert!(error.to_string().contains(STORE_FILE), "{error}");
            }
            // The byte was in a page of an older transaction, which no longer matters.
            Ok(checkpoint) => {
                assert_eq!(checkpoint.lives, [Life { epoch: 9, end: 199 }], "byte {at}");
                assert_eq!(loaded_lines(checkpoint), lines(&expected), "byte {at}");
            }
        }
    }
    assert!(reported > 0);
}

/// A file whose operations fail on demand.
#[derive(Debug)]
struct FaultyFile {
    file: FileBackend,
    fails: Arc<AtomicBool>,
    /// The error of writes, or none if only syncs fail.
    write_error: Option<ErrorKind>,
}

impl FaultyFile {
    fn check(&self, error: Option<ErrorKind>) -> std::io::Result<()> {
        match error {
            Some(error) if self.fails.load(Ordering::Relaxed) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.check(self.write_error)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.check(Some(ErrorKind::Other))?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.check(self.write_error)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> std::io::Result<()> {
        self.file.close()
    }
}

/// Puts a file that can fail below the store. It fails while the answer is true.
fn make_faulty(store: &mut RedbStore, write_error: Option<ErrorKind>) -> Arc<AtomicBool> {
    let fails = Arc::new(AtomicBool::new(false));
    store.database.close();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&store.file)
        .unwrap();
    let file = FaultyFile {
        file: FileBackend::new(file).unwrap(),
        fails: fails.clone(),
        write_error,
    };
    store
        .database
        .replace(Builder::new().create_with_backend(file).unwrap());
    fails
}

/// A failed fsync may leave the batch in the file, though the bus has refused its changes.
#[test]
fn failed_batch_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    store.load().unwrap();
    let hash = ListHash::EMPTY.with(Digest(5));
    let change = |offset| {
        let change = ChangeKind::List(ListKind::Tools);
        Record::Change(LoggedChange { offset, change })
    };
    let kept = [
        put(1, text("changed", &long("x"))),
        put(2, text("removed", "x")),
        record(3, "back", 3, None),
        Record::List(ListKind::Tools, hash, 4),
        change(4),
    ];
    store.append(&batch(4, kept.clone())).unwrap();

    let fails = make_faulty(&mut store, None);
    fails.store(true, Ordering::Relaxed);
    let failed = [
        put(5, text("changed", &long("y"))),
        put(6, text("changed", "short")),
        record(7, "removed", 7, None),
        put(8, text("back", "x")),
        put(9, text("new", &long("z"))),
        Record::List(ListKind::Tools, ListHash::EMPTY, 10),
        change(10),
    ];
    assert!(!store.append(&batch(10, failed)).unwrap_err().full);

    let next = put(5, text("next", "x"));
    store.append(&batch(5, [next.clone()])).unwrap();
    drop(store);
    let checkpoint = open(folder.path()).load().unwrap();
    assert_eq!(checkpoint.offset, 5);
    assert_eq!(checkpoint.lists[1], Some((hash, 4)));
    assert_eq!(checkpoint.changes.len(), 1);
    assert_eq!(body_files(folder.path()).len(), 1);
    let [changed, removed, back, ..] = &kept;
    assert_eq!(loaded_lines(checkpoint), lines(&[changed, removed, back, &next]));
}

#[test]
fn store_goes_on_when_its_disk_does() {
    for (error, full) in [(ErrorKind::StorageFull, true), (ErrorKind::Other, false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path());
        store.load().unwrap();
        let fails = make_faulty(&mut store, Some(error));
        let first = put(1, text("a", &long("x")));
        store.append(&batch(1, [first.clone()])).unwrap();
        fails.store(true, Ordering::Relaxed);
        let refused = store.append(&batch(2, [put(2, text("b", &long("y")))]));
        assert_eq!(refused.unwrap_err().full, full, "{error}");
        // The file is opened again without the fault.
        let next = put(2, text("c", "x"));
        store.append(&batch(2, [next.clone()])).unwrap();
        assert_eq!(body_files(folder.path()).len(), 1);
        drop(store);
        let checkpoint = open(folder.path()).load().unwrap();
        assert_eq!(loaded_lines(checkpoint), lines(&[&first, &next]));
    }
}

#[test]
fn file_that_went_away_is_not_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    make_faulty(&mut store, None).store(true, Ordering::Relaxed);
    std::fs::remove_file(folder.path().join(STORE_FILE)).unwrap();
    for _ in 0..2 {
        assert!(store.append(&batch(1, [record(1, "a", 1, None)])).is_err());
    }
    assert!(!folder.path().join(STORE_FILE).exists());
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

pub(super) fn text(name: &str, body: &str) -> Resource {
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
    assert_eq!(after.lives[0].epoch, before.lives[0].epoch);
    assert_eq!(after.lives.len(), 2);
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
    // The version of the member whose line was forgotten.
    assert_eq!(untouched, 4);
    stop(bus).await;
    let bus = start(folder.path(), 2, 2);
    bus.add_template(members()).await.unwrap();
    assert!(bus.etag("member://4").await.unwrap().version >= untouched);
    stop(bus).await;
}

#[cfg(unix)]
#[test]
fn other_users_read_nothing_of_the_store() {
    use std::os::unix::fs::PermissionsExt;
    fn modes_within(dir: &Path) -> Vec<u32> {
        let mut modes = vec![std::fs::metadata(dir).unwrap().permissions().mode() & 0o777];
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => modes.extend(modes_within(&path)),
                false => modes.push(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777),
            }
        }
        modes
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    for _ in 0..2 {
        drop(open(&dir));
        let mut modes = modes_within(&dir);
        modes.sort_unstable();
        assert_eq!(modes, [0o600, 0o700, 0o700]);
        // As an earlier version left them.
        for (path, mode) in [(dir.join(STORE_FILE), 0o644), (dir.join("bodies"), 0o755)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    let body = dir.join("bodies").join("b");
    drop(private_files::create(&body).unwrap());
    assert_eq!(
        std::fs::metadata(&body).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[cfg(unix)]
#[test]
fn folder_that_exists_is_closed_unless_shared() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let set_mode = |mode| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
    let mode = || std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
    std::fs::create_dir(&dir).unwrap();
    // Empty, and as an earlier version left it.
    for _ in 0..2 {
        set_mode(0o755);
        drop(open(&dir));
        assert_eq!(mode(), 0o700);
    }
    // Another's files stay in reach, and those of the store are closed by themselves.
    std::fs::write(dir.join("notes.txt"), "of another").unwrap();
    set_mode(0o755);
    std::fs::set_permissions(dir.join(STORE_FILE), std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(&dir));
    assert_eq!(mode(), 0o755);
    for own in [STORE_FILE, "bodies"] {
        let own = std::fs::metadata(dir.join(own)).unwrap();
        assert_eq!(own.permissions().mode() & 0o077, 0);
    }
}
