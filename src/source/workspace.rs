//! The folder source: every file below `DIR/resources` is a resource, `DIR/prompts` and `DIR/tools` hold
//! prompts and tools, and the executable `DIR/register` prints further ones.
//!
//! A change goes from the watcher to the task, is found by the scanner, read, and published. A slow rescan
//! finds the changes that the watcher misses. Tools are called by the bus: runner, then process.

mod task;
mod scanner;
mod folder;
mod file_index;
mod read;
mod definitions;
mod register;
mod register_document;
mod registrations;
mod runner;
mod process;
mod launcher;
// The forms in which definitions are written.
mod tools;
mod prompts;
mod template;
mod fields;
// Shared values and rules.
mod executable;
mod problems;
mod skip;
mod file_path;
mod file_uri;
mod media_type;
#[cfg(test)]
#[cfg(unix)]
mod tests;

pub use launcher::enable_launcher;
pub use skip::SkipReason;

use super::SourceTurn;
use super::watch::{DirtySet, PendingChanges};
use crate::config::{RegisterConfig, ToolsConfig, WorkspaceConfig};
use folder::Folder;
use launcher::ProcessLimits;
use register::Register;
use registrations::Registrations;
use runner::Runner;
use scanner::Scanner;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use task::{TaskInbox, WorkspaceTask};
use tidings_actors::{Bus, Owner};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch as latest};
use tokio::task::{JoinHandle, JoinSet};

/// Parses a text as each kind of definition, for the fuzz targets.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn parse_definitions(text: &str) {
    let dir = Path::new("/");
    let prompt = prompts::parse("p", text).is_ok();
    let sidecar = tools::Sidecar::parse(text).is_ok();
    let document = match serde_json::from_str(text) {
        Ok(value) => register_document::RegisterDocument::read(&value, dir).is_ok(),
        Err(_invalid) => false,
    };
    tracing::trace!(prompt, sidecar, document, "parsed");
}

/// The reason that the folder source did not start. It may have registered items by then, which stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The configuration names no folder.
    #[error("no folder to serve; set workspace.dir")]
    NotConfigured,
    /// The folder does not exist.
    #[error("folder {} does not exist; create it or set workspace.dir to another", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The path exists, but is not a folder.
    #[error("{} is not a folder; set workspace.dir to the folder that holds `resources`", dir.display())]
    NotAFolder {
        /// The path as configured.
        dir: PathBuf,
    },
    /// The service may not look at the folder.
    #[error("cannot look at folder {}; check its permissions", dir.display())]
    Unreadable {
        /// The folder.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The bus stopped while the folder was read for the first time.
    #[error(transparent)]
    Closed(#[from] tidings_actors::Closed),
}

/// A folder that is served and watched. Dropping it ends the watch; its registrations stay on the bus.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    scheme: String,
    rescans: mpsc::Sender<oneshot::Sender<()>>,
    stats: latest::Receiver<WorkspaceStats>,
    cancelled: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

/// Counts of the folder source since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspaceStats {
    /// Files served now.
    pub files: usize,
    /// Files not served now, by reason; hidden ones are not counted.
    pub skipped: BTreeMap<SkipReason, usize>,
    /// Files not served now because they are beyond `workspace.files_max`.
    pub over_limit: usize,
    /// Scans of the folder or parts of it, for any reason.
    pub scans: u64,
    /// Scans because the interval `workspace.rescan` was over.
    pub rescans: u64,
    /// Files read, including attempts.
    pub reads: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Times that events were lost or the watcher failed; a full scan followed each one.
    pub events_lost: u64,
    /// Tools registered now.
    pub tools: usize,
    /// Prompts registered now.
    pub prompts: usize,
    /// Resources printed by `register` and registered now.
    pub registered: usize,
    /// Runs of `register`, including those that found it missing.
    pub registers: u64,
    /// Problems with prompts, tools and `register` now, by subject, such as `tools/count.json` or `register`.
    pub problems: BTreeMap<String, String>,
    /// Problems that were logged; each one is logged once when it begins.
    pub problems_reported: u64,
}

/// The sections of the configuration that describe a folder.
struct WorkspaceParts<'c> {
    config: &'c WorkspaceConfig,
    tools: &'c ToolsConfig,
    register: &'c RegisterConfig,
}

impl Workspace {
    /// Registers the files below `DIR/resources`, the prompts, the tools, and the items that `register`
    /// prints, and then watches the folder. It returns when all of them are registered.
    ///
    /// None of these parts need exist yet. It must be called within a tokio runtime, which also runs the
    /// tools and `register`.
    ///
    /// Tools and prompts whose names are taken on the bus are left out and reported, even if an earlier
    /// source of the same folder registered them. A resource that others registered under the URI of a file
    /// is replaced, and removed with the file. The resource of a file that others replace is restored by
    /// the tenth rescan at the latest.
    ///
    /// # Errors
    /// [`WorkspaceError`] if the folder does not exist, or the bus stopped.
    pub async fn start(
        bus: Bus,
        config: &WorkspaceConfig,
        tools: &ToolsConfig,
        register: &RegisterConfig,
    ) -> Result<Workspace, WorkspaceError> {
        let parts = WorkspaceParts {
            config,
            tools,
            register,
        };
        Workspace::start_with(bus, parts, SourceTurn::default(), true).await
    }

    /// [`start`](Workspace::start) of a folder that other nodes serve too: the resources are published while
    /// it is this node's turn, and all of them when a turn begins. Tools and prompts are those of each node.
    ///
    /// # Errors
    /// As of [`start`](Workspace::start).
    pub async fn start_in_turn(
        bus: Bus,
        config: &WorkspaceConfig,
        tools: &ToolsConfig,
        register: &RegisterConfig,
        turn: SourceTurn,
    ) -> Result<Workspace, WorkspaceError> {
        let parts = WorkspaceParts {
            config,
            tools,
            register,
        };
        Workspace::start_with(bus, parts, turn, true).await
    }

    /// Starts with the file watcher, or with rescans alone.
    async fn start_with(
        bus: Bus,
        parts: WorkspaceParts<'_>,
        turn: SourceTurn,
        watch: bool,
    ) -> Result<Workspace, WorkspaceError> {
        let WorkspaceParts {
            config,
            tools,
            register,
        } = parts;
        let base = served_folder(config).await?;
        let folder = resources(config, &base);
        let root = folder.root.clone();
        let cancelled = folder.cancelled.clone();
        let dirty = DirtySet::new();
        let register_changed = Arc::new(Notify::new());
        let (send_stats, stats) = latest::channel(WorkspaceStats::default());
        let runner = Runner::new(base.clone(), tools, Handle::current());
        let mut task = WorkspaceTask {
            bus: bus.owned_by(Owner::Workspace),
            scheme: config.scheme.clone(),
            scanner: Arc::new(Mutex::new(Scanner::new(folder, dirty.clone(), watch))),
            registrations: Registrations::new(bus.owned_by(Owner::Register), runner, turn.clone()),
            turn,
            register_changed: register_changed.clone(),
            stats: send_stats,
            changes: PendingChanges::new(dirty, config.debounce, config.debounce_max),
            thorough: false,
            rescan: config.rescan,
            scanned_all: false,
            told_all: false,
        };
        let mut register = Register::new(base.clone(), register, ProcessLimits::of(tools));
        task.scan_all(false).await?;
        task.apply_register(register.run().await).await?;
        log_start(&base, &stats.borrow());
        let (request_rescan, rescans) = mpsc::channel(1);
        let (send_outcome, outcomes) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Dropped with this task, which ends a run of `register` and its processes.
            let mut registering = JoinSet::new();
            registering.spawn(register.repeat(register_changed, send_outcome));
            tokio::select! {
                _ = stopped => {}
                () = task.run(TaskInbox { rescans, outcomes }) => {}
            }
        });
        Ok(Workspace {
            root,
            scheme: config.scheme.clone(),
            rescans: request_rescan,
            stats,
            cancelled,
            stop: Some(stop),
            task: Some(task),
        })
    }

    /// Scans the whole folder now, and returns when new and changed files are published.
    ///
    /// A missing file is removed when it is still missing after `workspace.debounce`. Has no effect if the
    /// source has stopped.
    pub async fn rescan(&self) {
        let (done, wait) = oneshot::channel();
        if self.rescans.send(done).await.is_ok()
            && let Err(error) = wait.await
        {
            tracing::debug!(%error, "the folder source stopped during a rescan");
        }
    }

    /// Returns the counts.
    pub fn stats(&self) -> WorkspaceStats {
        self.stats.borrow().clone()
    }

    /// Returns the file that a URI names, which need not exist; or `None` if it is not the URI of a file.
    pub fn path_of(&self, uri: &str) -> Option<PathBuf> {
        let path = file_uri::path_of(&self.scheme, uri)?;
        Some(path.at(&self.root))
    }

    /// Ends the watch and waits for its task. The registrations stay on the bus.
    pub async fn stop(mut self) {
        self.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the task of the folder source panicked");
        }
    }

    fn cancel(&mut self) {
        // A scan in progress runs on a blocking thread, which the end of the task does not stop.
        self.cancelled.store(true, Ordering::Relaxed);
        self.stop = None;
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Returns the folder `resources` of `base`.
fn resources(config: &WorkspaceConfig, base: &Path) -> Folder {
    Folder {
        base: base.to_owned(),
        root: base.join("resources"),
        hidden: config.hidden,
        flat: false,
        file_bytes_max: config.file_bytes_max,
        files_max: config.files_max,
        cancelled: Arc::default(),
    }
}

fn log_start(base: &Path, stats: &WorkspaceStats) {
    tracing::info!(
        folder = %base.display(),
        files = stats.files,
        tools = stats.tools,
        prompts = stats.prompts,
        registered = stats.registered,
        "serving a folder"
    );
}

/// Returns the absolute path of the configured folder, which must exist.
async fn served_folder(config: &WorkspaceConfig) -> Result<PathBuf, WorkspaceError> {
    let dir = config.dir.clone().ok_or(WorkspaceError::NotConfigured)?;
    let base = match std::path::absolute(&dir) {
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
