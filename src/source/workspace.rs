//! The folder source: every file below `DIR/resources` is a resource, `DIR/prompts` and `DIR/tools` hold prompts and
//! tools, and what the executable `DIR/register` prints is registered besides.
//!
//! Owns: what it registered, and nothing else on the bus. Content decides: whatever made the source look, a
//! file is read and handed over, and the bus compares digests. Events of the file watcher say only where to look; a
//! slow rescan finds what they miss. Never writes to the folder, never leaves it, and never waits on an async thread.
//!
//! An event walks one way: watch → task (debounce) → scanner (folder, file_index, reading; definitions) → task (registrations) → bus.
//! A call of a tool comes from the bus: runner → process.

mod task;
mod dirty_paths;
mod watch;
mod scanner;
mod folder;
mod file_index;
mod read;
mod definitions;
mod register;
mod registrations;
mod runner;
mod process;
// What they speak of.
mod tools;
mod prompts;
mod template;
mod schema;
mod program;
mod fields;
mod problems;
mod path;
mod uri;
mod media_type;
mod skip;
mod error;
#[cfg(test)]
#[cfg(unix)]
mod tests;

pub use error::WorkspaceError;
pub use skip::SkipReason;

use crate::config::{RegisterConfig, ToolsConfig, WorkspaceConfig};
use definitions::DefinitionFolders;
use file_index::{FileIndex, Scope};
use folder::Folder;
use register::Register;
use registrations::Registrations;
use runner::Runner;
use scanner::Scanner;
use skip::Reports;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use task::{Inbox, Task};
use tidings_actors::Bus;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch as latest};
use tokio::task::{JoinHandle, JoinSet};
use watch::{FolderWatch, Marks};

/// Events on their way to the task. More than fit become one look at everything.
const EVENTS_MAX: usize = 1_024;

/// A folder that is served and watched. Dropping it ends the watch; what it registered stays on the bus.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    scheme: String,
    asks: mpsc::Sender<oneshot::Sender<()>>,
    stats: latest::Receiver<WorkspaceStats>,
    cancelled: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

/// What the source has and did since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspaceStats {
    /// Files served now.
    pub files: usize,
    /// Files not served now, by reason; hidden ones are not counted.
    pub skipped: BTreeMap<SkipReason, usize>,
    /// Files not served now because `workspace.files_max` are.
    pub beyond: usize,
    /// Looks at the folder or parts of it, for whatever reason.
    pub looks: u64,
    /// Looks because `workspace.rescan` was over.
    pub rescans: u64,
    /// Files read, or tried to.
    pub reads: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Times that events were lost or the watcher failed; each made for a look at everything.
    pub events_lost: u64,
    /// Tools registered now.
    pub tools: usize,
    /// Prompts registered now.
    pub prompts: usize,
    /// Resources that `register` printed, registered now.
    pub registered: usize,
    /// Runs of `register`, and times that it was found missing.
    pub registers: u64,
    /// What is wrong with prompts, tools and `register` now, by what it is about: `tools/count.json`, `register`.
    pub problems: BTreeMap<String, String>,
    /// How many problems were reported in the log; each once, when it begins.
    pub problems_reported: u64,
}

impl Workspace {
    /// Registers every file below `DIR/resources`, the prompts and tools, and what `register` prints, and watches the
    /// folder from then on. Returns when all of that is registered. None of it need exist yet. Call it inside a tokio
    /// runtime; tools and `register` run on that one.
    ///
    /// Tools and prompts whose names others have on the bus are left out and reported, those of a source that was
    /// stopped included.
    ///
    /// A URI that somebody else put on the bus and a file claims is taken over, and removed with the file. What
    /// others put over a file's URI is set right again by the tenth rescan at the latest.
    ///
    /// # Errors
    /// [`WorkspaceError`] when there is no such folder, or the bus stopped.
    pub async fn start(
        bus: Bus,
        config: &WorkspaceConfig,
        tools: &ToolsConfig,
        register: &RegisterConfig,
    ) -> Result<Workspace, WorkspaceError> {
        Workspace::start_with(bus, config, (tools, register), true).await
    }

    /// Starts with or without the file watcher.
    async fn start_with(
        bus: Bus,
        config: &WorkspaceConfig,
        (tools, register): (&ToolsConfig, &RegisterConfig),
        watch: bool,
    ) -> Result<Workspace, WorkspaceError> {
        let base = base(config).await?;
        let root = base.join("resources");
        let cancelled = Arc::new(AtomicBool::new(false));
        let (paths, marks) = mpsc::channel(EVENTS_MAX);
        let lost = Arc::new(Notify::new());
        let (asks, asked) = mpsc::channel(1);
        let (send_outcome, outcomes) = mpsc::channel(1);
        let inbox = Inbox {
            marks,
            lost: lost.clone(),
            asks: asked,
            outcomes,
        };
        let watch = FolderWatch::new(Marks { paths, lost }, watch);
        let scanner = scanner(&base, config, watch, cancelled.clone());
        let (send_stats, stats) = latest::channel(WorkspaceStats::default());
        let runner = Arc::new(Runner::new(base.clone(), tools, Handle::current()));
        let registrations = Registrations::new(bus.clone(), runner);
        let mut task = Task::new(bus, config, scanner, registrations, send_stats);
        task.look(Scope::All, false).await?;
        let mut register = Register::new(base, register);
        task.registered(register.run().await).await?;
        announce(root.parent().unwrap_or(&root), &stats.borrow());
        let bell = task.register_bell();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Ends, and ends what it runs, with this task.
            let mut registering = JoinSet::new();
            registering.spawn(register.repeat(bell, send_outcome));
            tokio::select! {
                _ = stopped => {}
                () = task.run(inbox) => {}
            }
        });
        Ok(Workspace {
            root,
            scheme: config.scheme.clone(),
            asks,
            stats,
            cancelled,
            stop: Some(stop),
            task: Some(task),
        })
    }

    /// Looks at the whole folder now, and returns when what is new or changed is published. What is missing is
    /// removed when it is still missing after `workspace.debounce`. Does nothing when the source has stopped.
    pub async fn rescan(&self) {
        let (done, wait) = oneshot::channel();
        if self.asks.send(done).await.is_ok() {
            // It fails when the source stops meanwhile.
            wait.await.unwrap_or_default();
        }
    }

    /// What the source has and did.
    pub fn stats(&self) -> WorkspaceStats {
        self.stats.borrow().clone()
    }

    /// The file that a URI names, whether or not it exists; none for a URI of another kind.
    pub fn path_of(&self, uri: &str) -> Option<PathBuf> {
        uri::path_of(&self.scheme, uri).map(|path| path.at(&self.root))
    }

    /// Ends the watch and its task. What was registered stays on the bus.
    pub async fn stop(mut self) {
        self.end();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the folder source ended badly");
        }
    }

    fn end(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.stop = None;
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.end();
    }
}

/// What looks at the folder `base`, with nothing known yet.
fn scanner(base: &Path, config: &WorkspaceConfig, watch: FolderWatch, cancelled: Arc<AtomicBool>) -> Scanner {
    let folder = Folder {
        base: base.to_owned(),
        root: base.join("resources"),
        hidden: config.hidden,
        flat: false,
        file_bytes_max: config.file_bytes_max,
        files_max: config.files_max,
        cancelled,
    };
    Scanner {
        definitions: DefinitionFolders::new(&folder),
        folder,
        file_index: FileIndex::default(),
        reports: Reports::default(),
        watch,
        beyond: 0,
    }
}

fn announce(root: &Path, stats: &WorkspaceStats) {
    let WorkspaceStats {
        files,
        tools,
        prompts,
        registered,
        ..
    } = stats;
    tracing::info!(folder = %root.display(), files, tools, prompts, registered, "serving a folder");
}

/// The configured folder, absolute and checked.
async fn base(config: &WorkspaceConfig) -> Result<PathBuf, WorkspaceError> {
    let dir = config.dir.clone().ok_or(WorkspaceError::NotConfigured)?;
    let absolute = |dir: &Path| std::path::absolute(dir);
    let base = match absolute(&dir) {
        Ok(base) => base,
        Err(source) => return Err(WorkspaceError::Unreadable { dir, source }),
    };
    match tokio::fs::metadata(&base).await {
        Ok(metadata) if metadata.is_dir() => Ok(base),
        Ok(_) => Err(WorkspaceError::NotAFolder { dir }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(WorkspaceError::Missing { dir }),
        Err(source) => Err(WorkspaceError::Unreadable { dir, source }),
    }
}
