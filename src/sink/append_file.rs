//! A file that lines are appended to: whole or not at all, rotated by size, brought to the disk as a policy says.
//!
//! Owns: the open file, its length, its rotated predecessors FILE.1, FILE.2, …, and what a crash or a full disk left
//! behind. Never: knows what a line means, keeps a line that it could not write, or retries by itself.
//! Called by the sinks that write files, each on its own thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::record::BEGINS;

/// No record of ours is longer.
const LINE_MAX: u64 = 256 << 10;

/// How often it is looked whether the file is still where it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A link is refused: rotation would rename the link, and whoever may place one could aim us at another file.
const OPEN_FLAGS: nix::libc::c_int = nix::libc::O_NOFOLLOW | nix::libc::O_NOCTTY;

/// When lines are brought to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Whenever the system likes.
    Never,
    /// When the file is rotated, and at the end.
    Rotate,
    /// At most this long after a line was written.
    Interval(Duration),
    /// Before a line counts as written.
    Always,
}

/// A file of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOptions {
    /// Where it is. Made with mode 0600 when it is not there; a symbolic link is refused.
    pub path: PathBuf,
    /// Size in bytes at which it is rotated (default 64 MiB). A longer line has a file of its own.
    pub bytes_max: u64,
    /// Rotated files that are kept (default 5); the oldest is removed.
    pub files_max: usize,
    /// When lines are brought to the disk (default: within a second).
    pub fsync: Fsync,
}

impl FileOptions {
    /// The file at `path`, with the defaults.
    pub fn new(path: impl Into<PathBuf>) -> FileOptions {
        FileOptions {
            path: path.into(),
            bytes_max: 64 << 20,
            files_max: 5,
            fsync: Fsync::Interval(Duration::from_secs(1)),
        }
    }
}

/// The file while it is open.
#[derive(Debug)]
struct Open {
    file: File,
    /// Where the next line goes.
    len: u64,
    /// Whether it can be cut and rotated: it is no device and no pipe.
    regular: bool,
    /// Device and inode.
    identity: (u64, u64),
}

/// A file that lines are appended to. What went wrong with a line is told to the caller, who keeps the line.
#[derive(Debug)]
pub(super) struct AppendFile {
    options: FileOptions,
    /// None after a failure that left it in doubt; opened again, and mended, with the next line.
    open: Option<Open>,
    /// When the oldest line was written that is not known to be on the disk.
    unsynced: Option<Instant>,
    looked: Instant,
}

impl AppendFile {
    /// Opens the file, makes it when it is not there, and mends its end.
    pub(super) fn open(options: FileOptions) -> io::Result<AppendFile> {
        let open = Open::at(&options.path)?;
        Ok(AppendFile {
            options,
            open: Some(open),
            unsynced: None,
            looked: Instant::now(),
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.options.path
    }

    /// The last line, without its line feed; none when there is none, or none of a usual length.
    pub(super) fn last_line(&self) -> io::Result<Option<Vec<u8>>> {
        match &self.open {
            Some(open) if open.regular => open.last_line(),
            _ => Ok(None),
        }
    }

    /// Appends `line`, which has its line feed. When this fails, the file is as it was.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        // First, since a failure after the line is written would have it written again.
        self.sync_if_due()?;
        self.look()?;
        if self.is_full(line.len() as u64) {
            self.rotate()?;
        }
        let always = self.options.fsync == Fsync::Always;
        let open = self.opened()?;
        if let Err(error) = open.write(line, always) {
            if !open.mend() {
                self.open = None;
            }
            return Err(error);
        }
        open.len += line.len() as u64;
        if !always {
            self.unsynced.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Brings lines to the disk whose time has come.
    pub(super) fn sync_if_due(&mut self) -> io::Result<()> {
        match (self.options.fsync, self.unsynced) {
            (Fsync::Interval(every), Some(since)) if since.elapsed() >= every => self.sync(),
            _ => Ok(()),
        }
    }

    /// Brings everything to the disk, unless the policy leaves that to the system.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Some(open) = self.open.as_ref().filter(|open| open.regular)
            && self.unsynced.is_some()
            && self.options.fsync != Fsync::Never
        {
            open.file.sync_data()?;
        }
        self.unsynced = None;
        Ok(())
    }

    fn opened(&mut self) -> io::Result<&mut Open> {
        if self.open.is_none() {
            self.open = Some(Open::at(&self.options.path)?);
        }
        Ok(self.open.as_mut().expect("it was opened just now"))
    }

    fn is_full(&self, more: u64) -> bool {
        let open = self.open.as_ref().filter(|open| open.regular && open.len > 0);
        open.is_some_and(|open| open.len + more > self.options.bytes_max)
    }

    /// Lets go of a file that somebody has moved away or removed.
    fn look(&mut self) -> io::Result<()> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        let Some(open) = &self.open else { return Ok(()) };
        let there = std::fs::symlink_metadata(&self.options.path);
        if there.is_ok_and(|there| identity(&there) == open.identity) {
            return Ok(());
        }
        self.sync()?;
        self.open = None;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let (path, keep) = (&self.options.path, self.options.files_max);
        // From the oldest to the newest, so that an end in between leaves every file that was to be kept.
        for number in (1..keep).rev() {
            rename_if_there(&rotated(path, number), &rotated(path, number + 1))?;
        }
        if keep == 0 {
            std::fs::remove_file(path)?;
        } else {
            rename_if_there(path, &rotated(path, 1))?;
        }
        self.open = None;
        self.opened()?;
        if self.options.fsync != Fsync::Never
            && let Some(folder) = self.options.path.parent()
        {
            let folder = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Open> {
        let opened = OpenOptions::new()
            .read(true)
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
        let mut open = Open {
            file,
            len: meta.len(),
            regular: kind.is_file(),
            identity: identity(&meta),
        };
        if open.regular {
            open.mend_end()?;
        }
        Ok(open)
    }

    /// Writes `line` with one call, unless the system takes it in parts.
    fn write(&mut self, line: &[u8], sync: bool) -> io::Result<()> {
        self.file.write_all(line)?;
        if sync && self.regular {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Takes back a line of which a part was written. False when that failed.
    fn mend(&self) -> bool {
        !self.regular || self.file.set_len(self.len).is_ok()
    }

    /// A process that died while it wrote leaves half a line: one of ours is cut off. What is none of ours is left,
    /// and ended, so that what follows stands on a line of its own.
    fn mend_end(&mut self) -> io::Result<()> {
        let (begin, tail) = self.tail()?;
        if tail.is_empty() || tail.ends_with(b"\n") {
            return Ok(());
        }
        let start = tail
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let torn = &tail[start..];
        let known = start > 0 || begin == 0;
        if known && torn.iter().zip(BEGINS).all(|(is, ours)| is == ours) {
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
        match tail.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => Ok(Some(tail.split_off(at + 1))),
            None => Ok((begin == 0).then_some(tail)),
        }
    }

    /// The end of the file, and where it begins.
    fn tail(&self) -> io::Result<(u64, Vec<u8>)> {
        let begin = self.len.saturating_sub(LINE_MAX);
        let mut tail = vec![0; usize::try_from(self.len - begin).unwrap_or_default()];
        self.file.read_exact_at(&mut tail, begin)?;
        Ok((begin, tail))
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

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
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

    /// All files, oldest first, as one text.
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
    fn a_file_is_made_for_its_owner_alone_and_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(&dir);
        AppendFile::open(options.clone()).unwrap();
        let mode = fs::metadata(&options.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&options.path, &link).unwrap();
        let error = AppendFile::open(FileOptions::new(link)).unwrap_err();
        assert_eq!(error.to_string(), "it is a symbolic link; name the file itself");
    }

    #[test]
    fn the_oldest_file_goes_when_there_are_enough() {
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
    fn half_a_line_of_ours_is_cut_off_and_any_other_is_ended() {
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
    fn a_full_disk_is_told_and_another_file_is_taken_when_somebody_moved_it() {
        let mut full = AppendFile::open(FileOptions::new("/dev/full")).unwrap();
        for _ in 0..2 {
            let error = full.append(b"line\n").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        let dir = tempfile::tempdir().unwrap();
        let options = options(&dir);
        let mut file = AppendFile::open(options.clone()).unwrap();
        file.append(b"one\n").unwrap();
        fs::rename(&options.path, dir.path().join("away")).unwrap();
        file.looked = file.looked.checked_sub(LOOK_EVERY).unwrap();
        file.append(b"two\n").unwrap();
        assert_eq!(fs::read(dir.path().join("away")).unwrap(), b"one\n");
        assert_eq!(fs::read(&options.path).unwrap(), b"two\n");
    }

    proptest! {
        #[test]
        fn no_line_is_lost_or_torn_by_rotation(
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
