//! The file watcher: it says that something happened to the file, never what.
//!
//! Owns: one watch, on the folder of the file, or on the nearest one above that exists, so that the file may come
//! later, go, and come back with its folder. Every failure and loss rings too. A watcher that cannot be had is
//! reported once and tried again at every look; until then the slow look finds the changes.

use crate::source::file_identity::FileIdentity;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// How often the nearest folder may change while it is being watched.
const ATTEMPTS_MAX: usize = 8;

/// What the watcher's thread knows.
#[derive(Debug, Clone)]
struct Ear {
    file: PathBuf,
    /// Whether the file is a link: then anything in the folder may have moved what it links to.
    linked: Arc<AtomicBool>,
    bell: Arc<Notify>,
}

/// The watcher of one file.
pub(super) struct FileWatch {
    ear: Ear,
    /// Whether there should be one.
    wanted: bool,
    watcher: Option<RecommendedWatcher>,
    watched: Option<(PathBuf, (u64, u64))>,
    failing: bool,
}

impl FileWatch {
    /// A watcher that rings `bell` and does not watch yet; without `wanted` it never will.
    pub(super) fn new(file: PathBuf, bell: Arc<Notify>, wanted: bool) -> FileWatch {
        let ear = Ear {
            file,
            linked: Arc::default(),
            bell,
        };
        FileWatch {
            ear,
            wanted,
            watcher: None,
            watched: None,
            failing: false,
        }
    }

    /// Watches where the file is now. What happens after it returned is heard.
    pub(super) fn cover(&mut self) {
        if !self.wanted {
            return;
        }
        let linked = std::fs::symlink_metadata(&self.ear.file).is_ok_and(|metadata| metadata.is_symlink());
        self.ear.linked.store(linked, Ordering::Relaxed);
        match self.try_cover() {
            Ok(()) => self.failing = false,
            Err(error) if !std::mem::replace(&mut self.failing, true) => {
                let file = self.ear.file.display();
                tracing::warn!(%file, %error, "cannot watch the file of a collection; changes are found every \
                     workspace.rescan (on Linux, raise fs.inotify.max_user_watches or max_user_instances)");
            }
            Err(_) => {}
        }
    }

    fn try_cover(&mut self) -> notify::Result<()> {
        // A folder may come or go between result it and watching it.
        for _ in 0..ATTEMPTS_MAX {
            let nearest = nearest_folder(&self.ear.file);
            if nearest == self.watched {
                return Ok(());
            }
            self.watched = None;
            let Some((folder, identity)) = nearest else {
                return Err(notify::Error::path_not_found());
            };
            // A new watcher, since the old one may keep a watch of the same name on what is gone.
            let ear = self.ear.clone();
            let hear = move |event: notify::Result<Event>| ear.hear(event);
            let mut watcher = RecommendedWatcher::new(hear, Config::default())?;
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => continue,
                other => other?,
            }
            self.watcher = Some(watcher);
            self.watched = Some((folder, identity));
        }
        self.ear.bell.notify_one();
        Ok(())
    }
}

/// The folder of the file or the nearest one above, with what tells it from another of the same name.
fn nearest_folder(file: &Path) -> Option<(PathBuf, (u64, u64))> {
    file.ancestors().skip(1).find_map(|folder| {
        let metadata = std::fs::metadata(folder).ok().filter(std::fs::Metadata::is_dir)?;
        Some((folder.to_owned(), FileIdentity::of(&metadata).file))
    })
}

impl Ear {
    fn hear(&self, event: notify::Result<Event>) {
        let rings = match event {
            Ok(event) => event.need_rescan() || (can_change(&event.kind) && self.concerns(&event)),
            Err(error) => {
                tracing::debug!(%error, "the file watcher failed");
                true
            }
        };
        if rings {
            self.bell.notify_one();
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        let linked = self.linked.load(Ordering::Relaxed);
        event
            .paths
            .iter()
            .any(|path| linked || self.file.starts_with(path))
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
    use futures_util::FutureExt;
    use notify::event::{CreateKind, Flag};

    fn rings(linked: bool, event: Event) -> bool {
        let bell = Arc::new(Notify::new());
        let ear = Ear {
            file: "/d/a.json".into(),
            linked: Arc::new(AtomicBool::new(linked)),
            bell: bell.clone(),
        };
        ear.hear(Ok(event));
        bell.notified().now_or_never().is_some()
    }

    fn created(path: &str) -> Event {
        Event::new(EventKind::Create(CreateKind::Any)).add_path(path.into())
    }

    #[test]
    fn hears_of_the_file_and_of_what_holds_it() {
        assert!(rings(false, created("/d/a.json")));
        assert!(rings(false, created("/d")));
        assert!(!rings(false, created("/d/a.json.tmp")));
        assert!(
            rings(true, created("/d/..data")),
            "it may be where the link leads"
        );
        assert!(rings(false, Event::new(EventKind::Other).set_flag(Flag::Rescan)));
        let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
        assert!(
            !rings(false, Event::new(opened).add_path("/d/a.json".into())),
            "that is our own reading"
        );
    }

    #[test]
    fn the_nearest_folder_is_the_one_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let nearest = |path: &str| nearest_folder(&dir.path().join(path)).unwrap().0;
        assert_eq!(nearest("a.json"), dir.path());
        assert_eq!(nearest("x/y/a.json"), dir.path());
        std::fs::create_dir(dir.path().join("x")).unwrap();
        assert_eq!(nearest("x/y/a.json"), dir.path().join("x"));
    }
}
