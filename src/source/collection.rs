//! The source of collections: a JSON file that another process writes becomes resources and tools.
//!
//! A change goes from the watcher to the task, is read by the scanner, accepted by the settle rule, and
//! published. Each document is built into all its views; the bus compares digests, so only views with other
//! content are announced.

mod task;
mod scanner;
mod settle;
mod publish;
mod tools;
// The pure core.
mod document;
mod filter;
mod field_path;
mod naming;
#[cfg(test)]
mod tests;

use super::SourceTurn;
use super::watch::{DirtySet, PendingChanges};
use crate::config::{CollectionConfig, WorkspaceConfig};
use document::{CollectionSpec, ViewRule};
use publish::{ItemPositions, ViewPublisher};
use scanner::FileScanner;
use settle::SettleRule;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use task::CollectionTask;
use tidings_actors::{Body, Bus, Closed, Owner, PublishError, ResourceTemplate, ResourceUri, Variables};
use tokio::sync::{oneshot, watch as latest};
use tokio::task::JoinHandle;
use tools::Tools;

/// The reason that a collection did not start. It may have registered resources by then, which stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectionError {
    /// The absolute path of the file is unknown.
    #[error("cannot tell where {} is; give collection.file as an absolute path", file.display())]
    Place {
        /// The file as configured.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The bus has a tool of that name.
    #[error("there is a tool {tool} already; choose another collection.name or collection.item")]
    ToolTaken {
        /// The name of the tool.
        tool: String,
    },
    /// The bus refused a tool or a template, because of one of its limits.
    #[error(transparent)]
    Refused(#[from] PublishError),
    /// The bus stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// A JSON file that is served and watched. Dropping it ends the watch; its registrations stay on the bus.
#[derive(Debug)]
pub struct Collection {
    stats: latest::Receiver<CollectionStats>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

/// Counts of a collection since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionStats {
    /// Items served now.
    pub items: usize,
    /// Views on the bus now.
    pub views: usize,
    /// True while the file has no valid content.
    pub failing: bool,
    /// Scans of the file, for any reason.
    pub scans: u64,
    /// Scans because the interval `workspace.rescan` was over.
    pub rescans: u64,
    /// Documents that were published.
    pub documents: u64,
    /// Views that became new, changed or gone.
    pub changes: u64,
    /// Times that the file ceased to have valid content.
    pub faults: u64,
}

impl Collection {
    /// Registers the views of the file, the templates of its groups and its tools, and then watches the file.
    ///
    /// The file need not exist yet. While it has no valid content, that is reported and an empty list is
    /// served. `workspace` gives the folder of relative paths, the times of debouncing, and the limits. It
    /// must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`CollectionError`] if the name of a tool is taken, the bus refuses a tool or template, or it stopped.
    pub async fn start(
        bus: Bus,
        config: &CollectionConfig,
        workspace: &WorkspaceConfig,
    ) -> Result<Collection, CollectionError> {
        Collection::start_with(bus, config, workspace, SourceTurn::default(), true).await
    }

    /// [`start`](Collection::start) of a file that other nodes serve too: the views are published while it is
    /// this node's turn, and all of them when a turn begins. Tools and templates are those of each node.
    ///
    /// # Errors
    /// As of [`start`](Collection::start).
    pub async fn start_in_turn(
        bus: Bus,
        config: &CollectionConfig,
        workspace: &WorkspaceConfig,
        turn: SourceTurn,
    ) -> Result<Collection, CollectionError> {
        Collection::start_with(bus, config, workspace, turn, true).await
    }

    /// Starts with the file watcher, or with rescans alone.
    async fn start_with(
        bus: Bus,
        config: &CollectionConfig,
        workspace: &WorkspaceConfig,
        turn: SourceTurn,
        watch: bool,
    ) -> Result<Collection, CollectionError> {
        let bus = bus.owned_by(Owner::Collection(config.name.as_str().into()));
        let file = absolute_path(config, workspace)?;
        let limits = bus.limits();
        let spec = CollectionSpec::new(config, workspace.collection_items_max, limits.body_bytes_max);
        let spec = Arc::new(spec);
        let tools = Tools {
            bus: bus.downgrade(),
            spec: spec.clone(),
            positions: ItemPositions::default(),
        };
        // Before anything is registered, so that a start that fails leaves nothing behind.
        refuse_taken_names(&bus, &tools).await?;
        let dirty = DirtySet::new();
        let bytes_max = workspace.collection_bytes_max;
        let scanner = FileScanner::new(file.clone(), bytes_max, spec.clone(), dirty.clone(), watch);
        let (send_stats, stats) = latest::channel(CollectionStats::default());
        let mut task = CollectionTask {
            scanner: Arc::new(Mutex::new(scanner)),
            name: spec.name.clone(),
            file: file.clone(),
            publisher: ViewPublisher::new(bus.clone(), spec.clone(), tools.positions.clone(), turn.clone()),
            turn,
            settle: SettleRule::default(),
            known: None,
            stats: send_stats,
            changes: PendingChanges::new(dirty, workspace.debounce, workspace.debounce_max),
            rescan: workspace.rescan,
            told_all: false,
        };
        let empty = spec.build(b"").expect("an empty file is an empty list");
        task.begin(empty).await?;
        // After the values that are in the file, so that a reader of the template does not see them as empty.
        add_templates(&bus, &spec).await?;
        bus.add_tool(tools.list()).await?;
        bus.add_tool(tools.get()).await?;
        let items = stats.borrow().items;
        tracing::info!(collection = spec.name, file = %file.display(), items, "serving the items of a file");
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                _ = stopped => {}
                () = task.run() => {}
            }
        });
        Ok(Collection {
            stats,
            stop: Some(stop),
            task: Some(task),
        })
    }

    /// Returns the counts.
    pub fn stats(&self) -> CollectionStats {
        self.stats.borrow().clone()
    }

    /// Ends the watch and waits for its task. The registrations stay on the bus.
    pub async fn stop(mut self) {
        self.stop = None;
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the task of a collection panicked");
        }
    }
}

/// Returns the absolute path of the file.
fn absolute_path(config: &CollectionConfig, workspace: &WorkspaceConfig) -> Result<PathBuf, CollectionError> {
    let base = workspace.dir.clone().unwrap_or_default();
    match std::path::absolute(base.join(&config.file)) {
        Ok(path) => Ok(path),
        Err(source) => Err(CollectionError::Place {
            file: config.file.clone(),
            source,
        }),
    }
}

async fn refuse_taken_names(bus: &Bus, tools: &Tools) -> Result<(), CollectionError> {
    for tool in [tools.list_name(), tools.get_name()] {
        if bus.tool(&tool).await?.is_some() {
            return Err(CollectionError::ToolTaken { tool });
        }
    }
    Ok(())
}

/// Adds a template per group, so that a value without items can be read and subscribed to as an empty list.
async fn add_templates(bus: &Bus, spec: &Arc<CollectionSpec>) -> Result<(), CollectionError> {
    for view in &spec.views {
        let ViewRule::Group(field) = &view.rule else {
            continue;
        };
        let collection = spec.name.clone();
        let group = view.name.clone();
        let by = naming::within_sentence(&naming::title_from_name(&view.name));
        let uri_template = format!("{}://{}/{{value}}", spec.name, view.name);
        let template = ResourceTemplate::new(&uri_template, move |uri: ResourceUri, variables: Variables| {
            let value = variables.get("value").unwrap_or_default();
            // Values with items are resources of their own and not read here. Another spelling names nothing,
            // so that each value has exactly one URI.
            let is_canonical = naming::value_uri(&collection, &group, value) == Ok(uri);
            async move { Ok(is_canonical.then(|| Body::text("[]"))) }
        });
        let template = template
            .expect("names of collections and views are identifiers: the configuration was checked")
            .name(format!("{}_{}", spec.name, view.name))
            .title(format!("{} by {by}", spec.title))
            .description(format!("The {} whose {field} is the value", spec.label()))
            .media_type("application/json");
        bus.add_template(template).await?;
    }
    Ok(())
}
