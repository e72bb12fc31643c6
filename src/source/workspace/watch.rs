//! The file watcher: it says where something happened, never what.
//!
//! Owns: the watches on `DIR` (so that its folders may come later), on all of `DIR/resources` and on the files of
//! `prompts` and `tools`, and the bounded way of its events to the task. What does not fit, and every failure, becomes "look at everything". A watcher
//! that cannot be had is reported once and tried again at the next full look; until then those find the changes.

use super::folder::{Folder, Place};
use super::path::FilePath;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Where something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// At this path below the resources; at its root: anywhere.
    Resource(FilePath),
    /// In `prompts` or `tools`.
    DefinitionFolders,
    /// To `register`.
    Register,
}

/// Where the watcher's thread puts what it hears.
#[derive(Debug, Clone)]
pub(super) struct Marks {
    /// Where something happened.
    pub(super) paths: mpsc::Sender<Mark>,
    /// Rung when events were lost.
    pub(super) lost: Arc<Notify>,
}

/// The watcher of one folder.
pub(super) struct FolderWatch {
    marks: Marks,
    /// Whether there should be one.
    wanted: bool,
    watcher: Option<RecommendedWatcher>,
    failing: bool,
}

impl FolderWatch {
    /// A watcher that does not watch yet; without `wanted` it never will.
    pub(super) fn new(marks: Marks, wanted: bool) -> FolderWatch {
        FolderWatch {
            marks,
            wanted,
            watcher: None,
            failing: false,
        }
    }

    /// Watches the whole folder, also what was missed so far. Walks the folder, so it may take a while.
    pub(super) fn cover(&mut self, folder: &Folder) {
        if !self.wanted {
            return;
        }
        match self.try_cover(folder) {
            Ok(()) => self.failing = false,
            Err(error) if !std::mem::replace(&mut self.failing, true) => {
                let dir = folder.base.display();
                tracing::warn!(%dir, %error, "cannot watch all of the folder; changes are found every workspace.rescan \
                     (on Linux, raise fs.inotify.max_user_watches or max_user_instances)");
            }
            Err(_) => {}
        }
    }

    fn try_cover(&mut self, folder: &Folder) -> notify::Result<()> {
        let mut watcher = match self.watcher.take() {
            Some(watcher) => watcher,
            None => start(folder.clone(), self.marks.clone())?,
        };
        let watched = watcher
            .watch(&folder.base, RecursiveMode::NonRecursive)
            .and_then(|()| self.cover_root(&mut watcher, folder));
        self.watcher = Some(watcher);
        watched
    }

    fn cover_root(&self, watcher: &mut RecommendedWatcher, folder: &Folder) -> notify::Result<()> {
        // A folder that is a link to elsewhere is not ours to watch either.
        let Place::Here(_) = folder.place() else {
            return Ok(());
        };
        // The watcher follows no links, and the folder may be one; the dot steps through it.
        match watcher.watch(&folder.root.join("."), RecursiveMode::Recursive) {
            // What vanishes meanwhile needs no watch, but the rest behind it was left out.
            Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => {
                self.marks.lost.notify_one();
                Ok(())
            }
            other => other,
        }
    }

    /// Watches the files of a folder beside the resources, if there is one.
    pub(super) fn cover_flat(&mut self, folder: &Folder) {
        let Some(watcher) = self.watcher.as_mut() else {
            return;
        };
        if let Place::Here(_) = folder.place()
            && let Err(error) = watcher.watch(&folder.root.join("."), RecursiveMode::NonRecursive)
        {
            tracing::debug!(dir = %folder.root.display(), %error, "could not watch a folder");
            self.marks.lost.notify_one();
        }
    }

    /// Watches this folder for certain before it is looked at: the watcher itself may be late.
    pub(super) fn cover_below(&mut self, folder: &Folder, path: &FilePath) {
        let full = path.at(&folder.root);
        let is_folder = std::fs::symlink_metadata(&full).is_ok_and(|metadata| metadata.is_dir());
        if let Some(watcher) = self.watcher.as_mut().filter(|_| is_folder)
            && let Err(error) = watcher.watch(&full, RecursiveMode::Recursive)
        {
            tracing::debug!(path = path.as_str(), %error, "could not watch a folder");
            self.marks.lost.notify_one();
        }
    }
}

fn start(folder: Folder, marks: Marks) -> notify::Result<RecommendedWatcher> {
    let hear = move |event: notify::Result<Event>| match event {
        Ok(event) => marks.hear(&folder, &event),
        Err(error) => {
            tracing::debug!(%error, "the file watcher failed");
            marks.lost.notify_one();
        }
    };
    RecommendedWatcher::new(hear, Config::default().with_follow_symlinks(false))
}

impl Marks {
    fn hear(&self, folder: &Folder, event: &Event) {
        if event.need_rescan() {
            self.lost.notify_one();
        }
        if !can_change(&event.kind) {
            return;
        }
        for path in &event.paths {
            if let Some(mark) = mark_of(folder, path)
                && self.paths.try_send(mark).is_err()
            {
                self.lost.notify_one();
            }
        }
    }
}

/// What an event at `path` marks.
fn mark_of(folder: &Folder, path: &Path) -> Option<Mark> {
    if let Some(below) = FilePath::below(&folder.root, path) {
        return (folder.hidden || !below.is_hidden()).then_some(Mark::Resource(below));
    }
    if folder.root.starts_with(path) {
        // `DIR` itself, of which the folder is a part.
        return Some(Mark::Resource(FilePath::root()));
    }
    let below = FilePath::below(&folder.base, path).filter(|below| !below.is_hidden())?;
    match below.names().next() {
        Some("prompts" | "tools") => Some(Mark::DefinitionFolders),
        Some("register") => Some(Mark::Register),
        _ => None,
    }
}

/// Whether something may be another after such an event. Our own reading causes the rest of them.
fn can_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => *kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{CreateKind, Flag};
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    fn folder() -> Folder {
        Folder {
            base: PathBuf::from("/d"),
            root: PathBuf::from("/d/resources"),
            hidden: false,
            flat: false,
            file_bytes_max: 1,
            files_max: 1,
            cancelled: Arc::new(AtomicBool::new(false)),
        }
    }

    fn marks(capacity: usize) -> (Marks, mpsc::Receiver<Mark>) {
        let (paths, heard) = mpsc::channel(capacity);
        let lost = Arc::new(Notify::new());
        (Marks { paths, lost }, heard)
    }

    fn created(path: &str) -> Event {
        Event::new(EventKind::Create(CreateKind::File)).add_path(path.into())
    }

    #[test]
    fn marks_what_is_below_and_what_holds_the_folder() {
        let (marks, mut heard) = marks(8);
        for path in [
            "/d/resources/a",
            "/d/prompts/p.md",
            "/d/resources/.git/x",
            "/d",
            "/d/resources",
            "/d/tools",
            "/d/tools/.x.swp",
            "/d/register",
            "/d/other/x",
        ] {
            marks.hear(&folder(), &created(path));
        }
        drop(marks);
        let paths: Vec<_> = std::iter::from_fn(|| heard.try_recv().ok()).collect();
        assert_eq!(
            paths,
            [
                Mark::Resource(FilePath::root().join("a")),
                Mark::DefinitionFolders,
                Mark::Resource(FilePath::root()),
                Mark::Resource(FilePath::root()),
                Mark::DefinitionFolders,
                Mark::Register,
            ]
        );
    }

    #[test]
    fn reading_is_no_change_and_closing_after_writing_is() {
        let access = EventKind::Access;
        assert!(!can_change(&access(AccessKind::Open(AccessMode::Any))));
        assert!(!can_change(&access(AccessKind::Close(AccessMode::Read))));
        assert!(can_change(&access(AccessKind::Close(AccessMode::Write))));
    }

    #[tokio::test]
    async fn what_does_not_fit_and_what_the_system_lost_asks_for_everything() {
        let (full, _heard) = marks(1);
        full.hear(&folder(), &created("/d/resources/a"));
        full.hear(&folder(), &created("/d/resources/b"));
        full.lost.notified().await;

        let (marks, _heard) = marks(1);
        marks.hear(&folder(), &Event::new(EventKind::Other).set_flag(Flag::Rescan));
        marks.lost.notified().await;
        assert!(folder().root.starts_with(Path::new("/d")));
    }

    #[cfg(unix)]
    #[test]
    fn what_a_link_leads_to_is_not_watched() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let folder = Folder {
            root: base.join("resources"),
            base,
            ..folder()
        };
        std::fs::create_dir(&folder.root).unwrap();
        std::fs::create_dir(folder.base.join("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", folder.root.join("link")).unwrap();
        let (marks, mut heard) = marks(64);
        let mut watch = FolderWatch::new(marks, true);
        watch.cover(&folder);
        std::fs::write(folder.base.join("outside/a"), "").unwrap();
        std::fs::write(folder.root.join("sentinel"), "").unwrap();
        let sentinel = FilePath::root().join("sentinel");
        assert_eq!(heard.blocking_recv(), Some(Mark::Resource(sentinel)));
    }
}
