//! The work of operators on a store that no service uses: check, backup, restore and compact.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, Write};
use std::path::Path;

use redb::Database;
use tidings_actors::{Batch, Content, LineState, Record, Resource, Store, StoreError};

use super::backup::{self, BackupError, Counts, Failure, Reader, Restored};
use super::body_files::{BODIES_FOLDER, BodyFolder, sync_folder};
use super::error::Fault;
use super::snapshot::Snapshot;
use super::{RedbStore, STORE_FILE, open_database, private_files};

/// The folder in which a backup is restored before it becomes the store.
const RESTORING_FOLDER: &str = "restoring";

/// The records of one transaction of a restore. More would take more memory, fewer more syncs.
const RESTORED_AT_ONCE: usize = 256;

/// The state that [`check`] found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The last offset.
    pub offset: u64,
    /// URIs that are registered, or were in a former life.
    pub live: u64,
    /// Removed URIs and touched members of templates whose version is kept.
    pub removed: u64,
    /// Resources with a body.
    pub bodies: u64,
    /// The bytes of these bodies.
    pub body_bytes: u64,
    /// Files of bodies.
    pub body_files: u64,
    /// Files that no resource needs; the next start removes them.
    pub orphans: u64,
    /// Changes in the change log.
    pub changes: u64,
    /// Cursors of attached subscribers.
    pub cursors: u64,
    /// Former lives.
    pub lives: u64,
}

/// Verifies everything in the store of the folder `dir`, and repairs only the state that a crash left.
///
/// # Errors
/// [`StoreError`] that names the file and the remedy.
pub fn check(dir: &Path) -> Result<CheckReport, StoreError> {
    in_store(dir, |database, folder| {
        try_check(&Snapshot::begin(database, folder)?, folder)
    })
}

/// Writes a backup of the store of the folder `dir` to `out`.
///
/// # Errors
/// [`BackupError`] if the store cannot be read, or `out` cannot be written.
pub fn backup(dir: &Path, out: &mut dyn Write) -> Result<Counts, BackupError> {
    let file = dir.join(STORE_FILE);
    let folder = BodyFolder::of(dir);
    let written = match open_database(&file, false) {
        Ok(database) => write_backup(&database, &folder, out),
        Err(fault) => Err(fault.into()),
    };
    written.map_err(|failure| failure.of(&file))
}

fn write_backup(database: &Database, folder: &BodyFolder, out: &mut dyn Write) -> Result<Counts, Failure> {
    backup::write(&Snapshot::begin(database, folder)?, out)
}

/// Rewrites the file of the store in the folder `dir` without free pages. Returns its size before and after.
///
/// # Errors
/// [`StoreError`] that names the file and the remedy.
pub fn compact(dir: &Path) -> Result<(u64, u64), StoreError> {
    in_store(dir, |database, _| {
        let file = dir.join(STORE_FILE);
        let before = fs::metadata(&file)?.len();
        // Each pass moves pages to the front; the last one finds none to move.
        while database.compact()? {}
        Ok((before, fs::metadata(&file)?.len()))
    })
}

/// Runs `work` with the store of `dir`, which must be there and unused.
fn in_store<T>(
    dir: &Path,
    work: impl FnOnce(&mut Database, &BodyFolder) -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let file = dir.join(STORE_FILE);
    let done = match open_database(&file, false) {
        Ok(mut database) => work(&mut database, &BodyFolder::of(dir)),
        Err(fault) => Err(fault),
    };
    done.map_err(|fault| fault.of(&file))
}

fn try_check(snapshot: &Snapshot, folder: &BodyFolder) -> Result<CheckReport, Fault> {
    let mut report = CheckReport {
        offset: snapshot.number("offset")?,
        lives: snapshot.lives()?.len() as u64,
        cursors: snapshot.cursors()?.len() as u64,
        ..CheckReport::default()
    };
    let mut files = HashSet::new();
    let mut removed: HashMap<String, u64> = HashMap::new();
    snapshot.each_line(|kept, file| {
        if kept.line.offset > report.offset {
            return Err(Fault::Damaged(format!(
                "the line of {} lies beyond the last offset",
                kept.uri
            )));
        }
        match kept.line.state {
            LineState::Live => report.live += 1,
            LineState::Removed | LineState::Touched => {
                removed.insert(kept.uri.as_str().to_owned(), kept.line.offset);
            }
        }
        if let Some(resource) = &kept.resource {
            report.bodies += 1;
            report.body_bytes += held_len(resource);
        }
        files.extend(file);
        Ok(())
    })?;
    report.removed = removed.len() as u64;
    let listed = snapshot.removed()?;
    let all_listed = listed
        .iter()
        .all(|(offset, uri)| removed.get(uri) == Some(offset));
    if !all_listed || listed.len() != removed.len() {
        return Err(Fault::Damaged(
            "the table of removed URIs differs from their lines".into(),
        ));
    }
    // Reads and decodes them.
    snapshot.lists()?;
    snapshot.each_change(|_| {
        report.changes += 1;
        Ok::<(), Fault>(())
    })?;
    report.body_files = files.len() as u64;
    folder.each_orphan(|hash| files.contains(hash), |_| report.orphans += 1)?;
    Ok(report)
}

fn held_len(resource: &Resource) -> u64 {
    match resource.content() {
        Content::Held(body) => body.as_bytes().len() as u64,
        Content::Lazy(_) => 0,
    }
}

/// Restores a backup into the folder `dir`, which must be empty or missing. Returns the numbers of entries,
/// and the offset up to which positions of the former history stay good.
///
/// # Errors
/// [`BackupError`] if the folder is not empty, the text is not a whole backup, or the store cannot be
/// written.
pub fn restore(dir: &Path, input: &mut dyn BufRead) -> Result<(Counts, u64), BackupError> {
    private_files::create_folders(dir)?;
    if fs::read_dir(dir)?.next().is_some() {
        return Err(StoreError::new(format!(
            "{} is not empty; name a new or an empty folder",
            dir.display()
        ))
        .into());
    }
    private_files::restrict_folder(dir);
    // An unfinished restore must not be taken for a store, so it becomes one at the end.
    let restoring = dir.join(RESTORING_FOLDER);
    private_files::create_folders(&restoring)?;
    let restored = restore_through(&restoring, dir, input);
    // Empty, or of no use.
    fs::remove_dir_all(&restoring)?;
    sync_folder(dir)?;
    restored
}

/// Restores into the folder `restoring`, verifies the result and moves it to `dir`, the file last: without it
/// the rest is no store.
fn restore_through(
    restoring: &Path,
    dir: &Path,
    input: &mut dyn BufRead,
) -> Result<(Counts, u64), BackupError> {
    let restored = restore_into(restoring, input)?;
    // Reads back every byte, since the operator may delete the backup after this.
    check(restoring)?;
    fs::rename(restoring.join(BODIES_FOLDER), dir.join(BODIES_FOLDER))?;
    fs::rename(restoring.join(STORE_FILE), dir.join(STORE_FILE))?;
    Ok(restored)
}

fn restore_into(dir: &Path, input: &mut dyn BufRead) -> Result<(Counts, u64), BackupError> {
    let (mut reader, header) = Reader::begin(input)?;
    // The backup has as many removed URIs as the service kept, and the next start applies its own limit.
    let mut store = RedbStore::open(dir, usize::MAX)?;
    let mut batch = Batch {
        floor: header.floor,
        ..Batch::default()
    };
    while let Some(entry) = reader.next()? {
        match entry {
            Restored::Life(life) => {
                // A life ends at the offset that the store has when the next one begins.
                batch.offset = life.end;
                batch.records.push(Record::Life(life.epoch));
                append(&mut store, &mut batch)?;
            }
            Restored::Record(record) => {
                batch.offset = header.offset;
                batch.records.push(record);
                if batch.records.len() >= RESTORED_AT_ONCE {
                    append(&mut store, &mut batch)?;
                }
            }
        }
    }
    batch.offset = header.offset;
    append(&mut store, &mut batch)?;
    Ok((reader.counts(), header.offset))
}

fn append(store: &mut RedbStore, batch: &mut Batch) -> Result<(), StoreError> {
    store.append(batch)?;
    batch.records.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{
        batch, body_files, line, load_error, loaded_lines, long, open, put, record, text, uri,
    };
    use tidings_actors::{
        Cause, ChangeKind, Checkpoint, Digest, KeptContent, ListHash, ListKind, LoggedChange, Owner,
    };

    /// A store with every kind of record.
    fn fill(dir: &Path) {
        let mut store = open(dir);
        store.load().unwrap();
        store.append(&batch(0, [Record::Life(60)])).unwrap();
        store.append(&batch(3, [Record::Life(70)])).unwrap();
        let mut unclaimed = line(2, 2, Some(7));
        unclaimed.owner = Some(Owner::Collection("notes".into()));
        unclaimed.unclaimed_since = Some(99);
        unclaimed.etag.life = 5;
        let etag = unclaimed.etag;
        let change = |offset, change| Record::Change(LoggedChange { offset, change });
        let mut all = vec![
            put(1, text("short", "x\n\u{1F600}")),
            Record::Line {
                uri: uri("unclaimed"),
                line: unclaimed,
                content: KeptContent::None,
            },
            record(3, "removed", 3, None),
            put(4, text("long", &long("x"))),
            put(
                5,
                Resource::blob(uri("blob"), vec![0, 255]).unwrap().title("Blob"),
            ),
            Record::List(ListKind::Prompts, ListHash::EMPTY.with(Digest(u128::MAX)), 6),
            change(6, ChangeKind::List(ListKind::Prompts)),
            change(7, ChangeKind::Resource(uri("short"), etag, Cause::Updated)),
            change(8, ChangeKind::Resource(uri("removed"), etag, Cause::Removed)),
            Record::Cursor("webhook".into(), Some(6)),
        ];
        let mut last = batch(8, all.split_off(3));
        last.floor = 4;
        store.append(&batch(3, all)).unwrap();
        store.append(&last).unwrap();
    }

    /// Everything in the store of `dir`, in a form that can be compared.
    fn state(dir: &Path) -> String {
        let loaded = open(dir).load().unwrap();
        let Checkpoint {
            lives,
            offset,
            floor,
            lists,
            changes,
            cursors,
            ..
        } = &loaded;
        let others = format!("{lives:?} {offset} {floor} {lists:?} {changes:?} {cursors:?}");
        format!("{others} {:?}", loaded_lines(loaded.clone()))
    }

    fn backup_of(dir: &Path) -> Vec<u8> {
        let mut text = Vec::new();
        backup(dir, &mut text).unwrap();
        text
    }

    #[test]
    fn restored_store_equals_the_one_backed_up() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let text = backup_of(folder.path());
        let dir = folder.path().join("new");
        let (counts, offset) = restore(&dir, &mut text.as_slice()).unwrap();
        assert_eq!((counts.lines, counts.changes, counts.lives, offset), (5, 3, 2, 8));
        assert_eq!(state(&dir), state(folder.path()));
        assert_eq!(body_files(&dir).len(), 1);
        // Only the time of the backup differs.
        let again = backup_of(&dir);
        let [again, text] = [again, text].map(String::from_utf8).map(Result::unwrap);
        let lines = text.lines().count() - 2;
        assert!(
            again
                .lines()
                .skip(1)
                .take(lines)
                .eq(text.lines().skip(1).take(lines))
        );
    }

    #[test]
    fn backup_of_a_store_in_use_has_one_state() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let mut store = open(folder.path());
        store.load().unwrap();
        let reader = store.reader();
        let mut writes = WriteBeside {
            store: Some(store),
            text: Vec::new(),
        };
        reader.backup(&mut writes).unwrap();
        // The file of the old body is gone when the reader has finished.
        assert_eq!(body_files(folder.path()).len(), 1);
        drop(writes.store);
        assert!(matches!(
            reader.backup(&mut Vec::new()),
            Err(BackupError::Store(_))
        ));
        let dir = folder.path().join("new");
        restore(&dir, &mut writes.text.as_slice()).unwrap();
        assert_eq!(open(&dir).load().unwrap().offset, 8);
    }

    /// Replaces a body of the store while its backup is written.
    struct WriteBeside {
        store: Option<RedbStore>,
        text: Vec<u8>,
    }

    impl Write for WriteBeside {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if let Some(store) = &mut self.store
                && self.text.is_empty()
            {
                store
                    .append(&batch(9, [put(9, text("long", &long("y")))]))
                    .unwrap();
            }
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn altered_backup_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let text = String::from_utf8(backup_of(folder.path())).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let without_last = lines[..lines.len() - 1].join("\n") + "\n";
        let without_one = lines[..4].join("\n") + "\n" + &lines[5..].join("\n") + "\n";
        for (altered, problem) in [
            (without_last, "is missing: the backup was cut off"),
            (without_one, "has another checksum"),
            (
                text.replace("\"offset\":8", "\"offset\":9"),
                "has another checksum",
            ),
            (
                text.replace("x\\n", "y\\n"),
                "has content that differs from its digest",
            ),
            (text[..text.len() / 2].to_owned(), "cannot be read"),
            (
                text.replace("\"format\":1", "\"format\":2"),
                "has format 2, which is newer",
            ),
            ("{}".into(), "line 1 of the backup cannot be read"),
            (String::new(), "line 1 of the backup is missing"),
        ] {
            let dir = folder.path().join("new");
            let error = restore(&dir, &mut altered.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            // Nothing is left that could be taken for a store.
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{problem}");
        }
    }

    #[test]
    fn restore_needs_an_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let text = backup_of(folder.path());
        let error = restore(folder.path(), &mut text.as_slice())
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not empty"), "{error}");
    }

    #[test]
    fn check_counts_everything() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let orphan = body_files(folder.path())[0].with_extension("new");
        fs::write(orphan, "x").unwrap();
        let report = check(folder.path()).unwrap();
        let expected = CheckReport {
            offset: 8,
            live: 4,
            removed: 1,
            bodies: 3,
            body_bytes: report.body_bytes,
            body_files: 1,
            orphans: 1,
            changes: 3,
            cursors: 1,
            lives: 2,
        };
        assert_eq!(report, expected);
        assert!(report.body_bytes > 64 << 10);
    }

    #[test]
    fn check_finds_what_a_start_would_refuse() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        fs::remove_file(&body_files(folder.path())[0]).unwrap();
        assert_eq!(
            check(folder.path()).unwrap_err().to_string(),
            load_error(folder.path())
        );
        let nothing = folder.path().join("nothing");
        let error = check(&nothing).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
        assert!(!nothing.exists());
    }

    #[test]
    fn compacted_store_is_smaller_and_equal() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let mut store = open(folder.path());
        for offset in 9..200 {
            let body = long("x").split_off(100);
            store
                .append(&batch(offset, [put(offset, text(&format!("n{offset}"), &body))]))
                .unwrap();
        }
        for offset in 200..391 {
            let name = format!("n{}", offset - 191);
            store
                .append(&batch(offset, [Record::Forget(uri(&name))]))
                .unwrap();
        }
        drop(store);
        let before = state(folder.path());
        let (large, small) = compact(folder.path()).unwrap();
        assert!(small < large, "{small} {large}");
        assert_eq!(state(folder.path()), before);
    }
}
