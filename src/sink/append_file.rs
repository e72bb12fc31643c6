//! A file of lines: each is appended whole or not at all, and the file is rotated by size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidings_actors::attach::SubscriberError;

use super::record::LINE_START;

/// An upper bound of the length of a line, to which the search for a torn line is limited.
const LINE_MAX: u64 = 256 << 10;

/// The interval at which a moved or removed file is noticed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A symbolic link is refused: rotation would rename the link itself, and a user who can create it could
/// point the sink at another file.
const OPEN_FLAGS: nix::libc::c_int = nix::libc::O_NOFOLLOW | nix::libc::O_NOCTTY;

/// When lines are flushed to the disk with fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Never; the operating system decides.
    Never,
    /// When the file is rotated or closed.
    Rotate,
    /// At most this long after a line was written.
    Interval(Duration),
    /// Before a line counts as written.
    Always,
}

/// The options of a file of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOptions {
    /// The path. A missing file is created with mode 0600; a symbolic link is refused.
    pub path: PathBuf,
    /// Size in bytes at which the file is rotated (default 64 MiB). A longer line gets a file of its own.
    pub bytes_max: u64,
    /// Number of rotated files to keep (default 5).
    pub files_max: usize,
    /// When lines are flushed to the disk (default: within a second).
    pub fsync: Fsync,
}

impl FileOptions {
    /// Returns the defaults for the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> FileOptions {
        FileOptions {
            path: path.into(),
            bytes_max: 64 << 20,
            files_max: 5,
            fsync: Fsync::Interval(Duration::from_secs(1)),
        }
    }

    /// Returns the value for [`AttachOptions::idle_every`](tidings_actors::attach::AttachOptions::idle_every)
    /// with which lines are flushed in time although no further line comes.
    pub fn idle_every(&self) -> Duration {
        let most = Duration::from_secs(1);
        match self.fsync {
            Fsync::Interval(every) => every.min(most),
            _ => most,
        }
    }
}

/// A failed operation on a file.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be {action}: {error}", path.display())]
pub(super) struct FileError {
    path: PathBuf,
    action: &'static str,
    error: io::Error,
}

impl From<FileError> for SubscriberError {
    /// Asks the bus to try again: a full disk may be cleared, and a missing folder may be created.
    fn from(error: FileError) -> SubscriberError {
        SubscriberError::Again(error.to_string())
    }
}

/// The file while it is open.
#[derive(Debug)]
struct OpenFile {
    file: File,
    /// The length up to the last whole line.
    len: u64,
    /// True if the file can be truncated and rotated, unlike a device or a pipe.
    regular: bool,
    /// Device and inode, by which a moved file is recognized.
    identity: (u64, u64),
}

/// A file that lines are appended to. After an error the caller keeps the line and tries again.
#[derive(Debug)]
pub(super) struct AppendFile {
    options: FileOptions,
    /// `None` after an error that left the file in doubt; the next line opens and repairs it.
    open: Option<OpenFile>,
    /// The time of the oldest line that was not flushed to the disk.
    unsynced: Option<Instant>,
    checked: Instant,
}

impl AppendFile {
    /// Opens the file, creates it if necessary, and repairs a torn last line.
    pub(super) fn open(options: FileOptions) -> Result<AppendFile, FileError> {
        match OpenFile::open(&options.path) {
            Ok(open) => Ok(AppendFile {
                options,
                open: Some(open),
                unsynced: None,
                checked: Instant::now(),
            }),
            Err(error) => Err(FileError {
                path: options.path,
                action: "opened",
                error,
            }),
        }
    }

    fn describe<T>(&self, action: &'static str, result: io::Result<T>) -> Result<T, FileError> {
        result.map_err(|error| FileError {
            path: self.options.path.clone(),
            action,
            error,
        })
    }

    /// Returns the last line without its line feed; that of the newest rotated file if the file is empty, and
    /// `None` if there is none or the line is longer than expected.
    pub(super) fn last_line(&self) -> Result<Option<Vec<u8>>, FileError> {
        match &self.open {
            // A crash after a rotation leaves an empty file.
            Some(open) if open.regular && open.len == 0 => self.describe("read", self.last_rotated_line()),
            Some(open) if open.regular => self.describe("read", open.last_line()),
            _ => Ok(None),
        }
    }

    fn last_rotated_line(&self) -> io::Result<Option<Vec<u8>>> {
        let path = rotated(&self.options.path, 1);
        let opened = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let meta = file.metadata()?;
        let rotated = OpenFile {
            file,
            len: meta.len(),
            regular: meta.is_file(),
            identity: identity(&meta),
        };
        rotated.last_line()
    }

    /// Appends `line`, which ends with a line feed. After an error the file is as it was before.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<(), FileError> {
        let appended = self.try_append(line);
        self.describe("written", appended)
    }

    fn try_append(&mut self, line: &[u8]) -> io::Result<()> {
        // Before the write: an error after it would make the caller write the line twice.
        self.try_sync_if_due()?;
        self.close_if_moved()?;
        if self.is_full(line.len() as u64) {
            self.rotate()?;
        }
        let always = self.options.fsync == Fsync::Always;
        let open = self.opened()?;
        if let Err(error) = open.write(line, always) {
            if !open.take_back() {
                self.open = None;
            }
            return Err(error);
        }
        open.len += line.len() as u64;
        // The oldest line counts, so a steady stream of lines cannot postpone the flush.
        if !always {
            self.unsynced.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Flushes lines to the disk whose time has come.
    pub(super) fn sync_if_due(&mut self) -> Result<(), FileError> {
        let synced = self.try_sync_if_due();
        self.describe("brought to the disk", synced)
    }

    /// Flushes all lines to the disk, unless the policy leaves that to the operating system.
    pub(super) fn sync(&mut self) -> Result<(), FileError> {
        let synced = self.try_sync();
        self.describe("brought to the disk", synced)
    }

    fn try_sync_if_due(&mut self) -> io::Result<()> {
        match (self.options.fsync, self.unsynced) {
            (Fsync::Interval(every), Some(since)) if since.elapsed() >= every => self.try_sync(),
            _ => Ok(()),
        }
    }

    fn try_sync(&mut self) -> io::Result<()> {
        if let Some(open) = &self.open
            && open.regular
            && self.unsynced.is_some()
            && self.options.fsync != Fsync::Never
        {
            open.file.sync_data()?;
        }
        self.unsynced = None;
        Ok(())
    }

    fn opened(&mut self) -> io::Result<&mut OpenFile> {
        if self.open.is_none() {
            self.open = Some(OpenFile::open(&self.options.path)?);
        }
        Ok(self.open.as_mut().expect("it was opened just now"))
    }

    fn is_full(&self, more: u64) -> bool {
        match &self.open {
            // An empty file takes any line, or a line longer than the limit would rotate for ever.
            Some(open) => open.regular && open.len > 0 && open.len + more > self.options.bytes_max,
            None => false,
        }
    }

    /// Closes the file if another program has moved or removed it, as log rotation tools do.
    fn close_if_moved(&mut self) -> io::Result<()> {
        if self.checked.elapsed() < CHECK_EVERY {
            return Ok(());
        }
        self.checked = Instant::now();
        let Some(open) = &self.open else { return Ok(()) };
        if let Ok(found) = std::fs::symlink_metadata(&self.options.path)
            && identity(&found) == open.identity
        {
            return Ok(());
        }
        // The file is not seen again, so its lines are flushed now.
        self.try_sync()?;
        self.open = None;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.try_sync()?;
        let path = &self.options.path;
        let keep = self.options.files_max;
        // From the oldest to the newest, so that a crash in between loses no file that was to be kept.
        for number in (1..keep).rev() {
            rename_if_present(&rotated(path, number), &rotated(path, number + 1))?;
        }
        if keep == 0 {
            std::fs::remove_file(path)?;
        } else {
            rename_if_present(path, &rotated(path, 1))?;
        }
        // At once, so that an error concerns the line that is kept, rather than a later one.
        self.open = None;
        self.opened()?;
        if self.options.fsync != Fsync::Never {
            self.sync_folder()?;
        }
        Ok(())
    }

    /// Makes the names of the rotated files durable, which fsync of a file does not.
    fn sync_folder(&self) -> io::Result<()> {
        let folder = match self.options.path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => return Ok(()),
        };
        File::open(folder)?.sync_all()
    }
}

impl OpenFile {
    fn open(path: &Path) -> io::Result<OpenFile> {
        let opened = OpenOptions::new()
            .read(true)
            // The system positions each write, so another writer to the same file cannot be overwritten.
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OPEN_FLAGS)
            .open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(nix::libc::ELOOP) => io::Error::other("it is a symbolic link; name the file itself"),
            _ => error,
        })?;
        let meta = file.metadata()?;
        let kind = meta.file_type();
        if kind.is_socket() || kind.is_block_device() {
            return Err(io::Error::other("it is no file that lines can be appended to"));
        }
        let mut open = OpenFile {
            file,
            len: meta.len(),
            regular: kind.is_file(),
            identity: identity(&meta),
        };
        if open.regular {
            open.repair_end()?;
        }
        Ok(open)
    }

    /// Writes `line`, with a single call unless the system accepts only a part.
    fn write(&mut self, line: &[u8], sync: bool) -> io::Result<()> {
        self.file.write_all(line)?;
        if sync && self.regular {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Removes the part of a line that a failed write left. Returns false if that fails.
    fn take_back(&self) -> bool {
        !self.regular || self.file.set_len(self.len).is_ok()
    }

    /// Repairs a last line without a line feed, as a killed process leaves it.
    ///
    /// The beginning of one of our own lines is cut off. Any other text may belong to the user, so it gets a
    /// line feed.
    fn repair_end(&mut self) -> io::Result<()> {
        let (begin, tail) = self.tail()?;
        if tail.is_empty() || tail.ends_with(b"\n") {
            return Ok(());
        }
        let start = start_of_last_line(&tail);
        let torn = &tail[start..];
        let start_known = start > 0 || begin == 0;
        let compared = torn.len().min(LINE_START.len());
        if start_known && torn[..compared] == LINE_START[..compared] {
            self.len = begin + start as u64;
            return self.file.set_len(self.len);
        }
        self.file.write_all(b"\n")?;
        self.len += 1;
        Ok(())
    }

    fn last_line(&self) -> io::Result<Option<Vec<u8>>> {
        let (begin, mut tail) = self.tail()?;
        if tail.pop().is_none() {
            return Ok(None);
        }
        let start = start_of_last_line(&tail);
        if start == 0 && begin > 0 {
            return Ok(None);
        }
        Ok(Some(tail.split_off(start)))
    }

    /// Returns the last [`LINE_MAX`] bytes and their position in the file.
    fn tail(&self) -> io::Result<(u64, Vec<u8>)> {
        // Only the end is read: a journal may have gigabytes.
        let begin = self.len.saturating_sub(LINE_MAX);
        let mut tail = vec![0; usize::try_from(self.len - begin).unwrap_or_default()];
        self.file.read_exact_at(&mut tail, begin)?;
        Ok((begin, tail))
    }
}

/// Returns the position after the last line feed.
fn start_of_last_line(tail: &[u8]) -> usize {
    match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => at + 1,
        None => 0,
    }
}

fn identity(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn rename_if_present(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    fn options(dir: &TempDir) -> FileOptions {
        FileOptions {
            fsync: Fsync::Never,
            ..FileOptions::new(dir.path().join("j"))
        }
    }

    fn line(number: usize, padding: usize) -> Vec<u8> {
        format!("{{\"time\":\"{number}{}\"}}\n", "x".repeat(padding)).into_bytes()
    }

    /// Returns the contents of all files, oldest first.
    fn everything(options: &FileOptions) -> Vec<u8> {
        let rotated = (1..=options.files_max)
            .rev()
            .map(|number| rotated(&options.path, number));
        let files = rotated.chain([options.path.clone()]);
        files
            .flat_map(|path| fs::read(path).unwrap_or_default())
            .collect()
    }

    #[test]
    fn new_file_is_private_and_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(&dir);
        AppendFile::open(options.clone()).unwrap();
        let mode = fs::metadata(&options.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&options.path, &link).unwrap();
        let error = AppendFile::open(FileOptions::new(link)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.ends_with("link cannot be opened: it is a symbolic link; name the file itself"),
            "{text}"
        );
    }

    #[test]
    fn rotation_removes_the_oldest_file() {
        let dir = tempfile::tempdir().unwrap();
        let options = FileOptions {
            bytes_max: 20,
            files_max: 2,
            ..options(&dir)
        };
        let mut file = AppendFile::open(options.clone()).unwrap();
        for number in 0..5 {
            file.append(&line(number, 0)).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["j", "j.1", "j.2"]);
        assert_eq!(
            everything(&options),
            [line(2, 0), line(3, 0), line(4, 0)].concat()
        );
        let none = FileOptions {
            files_max: 0,
            ..options
        };
        let mut file = AppendFile::open(none.clone()).unwrap();
        file.append(&line(6, 0)).unwrap();
        assert_eq!(everything(&none), line(6, 0));
    }

    #[test]
    fn torn_line_of_ours_is_cut_and_any_other_ended() {
        for (left, mended) in [
            ("{\"time\":\"0\"}\n{\"time\":\"1", "{\"time\":\"0\"}\n"),
            ("{\"time\":\"0\"}\n{\"ti", "{\"time\":\"0\"}\n"),
            ("{", ""),
            ("", ""),
            ("{\"time\":\"0\"}\n", "{\"time\":\"0\"}\n"),
            ("a note of mine", "a note of mine\n"),
            ("{\"time\":\"0\"}\nmine", "{\"time\":\"0\"}\nmine\n"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let options = options(&dir);
            fs::write(&options.path, left).unwrap();
            let mut file = AppendFile::open(options.clone()).unwrap();
            let last = file.last_line().unwrap();
            assert_eq!(
                last.as_deref(),
                mended.lines().next_back().map(str::as_bytes),
                "{left}"
            );
            file.append(b"next\n").unwrap();
            let text = fs::read_to_string(&options.path).unwrap();
            assert_eq!(text, format!("{mended}next\n"));
        }
    }

    #[test]
    fn full_disk_is_reported() {
        let mut full = AppendFile::open(FileOptions::new("/dev/full")).unwrap();
        for _ in 0..2 {
            let error = full.append(b"line\n").unwrap_err();
            assert_eq!(error.error.kind(), io::ErrorKind::StorageFull);
        }
    }

    #[test]
    fn moved_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(&dir);
        let mut file = AppendFile::open(options.clone()).unwrap();
        file.append(b"one\n").unwrap();
        fs::rename(&options.path, dir.path().join("away")).unwrap();
        file.checked = file.checked.checked_sub(CHECK_EVERY).unwrap();
        file.append(b"two\n").unwrap();
        assert_eq!(fs::read(dir.path().join("away")).unwrap(), b"one\n");
        assert_eq!(fs::read(&options.path).unwrap(), b"two\n");
    }

    proptest! {
        #[test]
        fn rotation_loses_and_tears_no_line(
            bytes_max in 1_u64..400,
            paddings in proptest::collection::vec(0_usize..200, 1..40),
            reopened in proptest::collection::vec(any::<bool>(), 40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let options = FileOptions { bytes_max, files_max: 64, ..options(&dir) };
            let mut file = AppendFile::open(options.clone()).unwrap();
            let mut expected = Vec::new();
            for (number, padding) in paddings.iter().enumerate() {
                if reopened[number] {
                    file = AppendFile::open(options.clone()).unwrap();
                }
                let line = line(number, *padding);
                file.append(&line).unwrap();
                expected.extend_from_slice(&line);
                let len = fs::metadata(&options.path).unwrap().len();
                prop_assert!(len <= bytes_max || len == line.len() as u64);
            }
            prop_assert_eq!(everything(&options), expected);
        }
    }
}
