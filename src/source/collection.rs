//! The source of collections: a JSON file that another process writes becomes resources and tools.
//!
//! Owns: the views it registered, a template per group, and the tools `list_NAME` and `get_ITEM`. Content decides: a
//! document is built into all its views, and the bus compares digests, so only views that changed are told of. A file
//! that cannot be taken changes nothing. Never writes the file, and never waits on an async thread.
//!
//! An event walks one way: watch → task (debounce) → reading → document → settle → publisher → bus.

mod task;
mod watch;
mod reading;
mod document;
mod settle;
mod publish;
mod tools;
// What they speak of.
mod path;
mod filter;
mod name;
mod fault;
mod error;
#[cfg(test)]
mod tests;

pub use error::CollectionError;

use crate::config::{CollectionConfig, WorkspaceConfig};
use document::{Kind, Spec};
use publish::{Index, ViewPublisher};
use std::path::PathBuf;
use std::sync::Arc;
use task::{FileScanner, Task};
use tidings_actors::{Body, Bus, ResourceTemplate, ResourceUri, Variables};
use tokio::sync::{Notify, oneshot, watch as latest};
use tokio::task::JoinHandle;
use tools::Tools;
use watch::FileWatch;

/// A JSON file that is served and watched. Dropping it ends the watch; what it registered stays on the bus.
#[derive(Debug)]
pub struct Collection {
    stats: latest::Receiver<CollectionStats>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

/// What the source has and did since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionStats {
    /// Items served now.
    pub items: usize,
    /// Views on the bus now.
    pub views: usize,
    /// Whether the file cannot be taken now.
    pub failing: bool,
    /// Looks at the file, for whatever reason.
    pub looks: u64,
    /// Looks because `workspace.rescan` was over.
    pub rescans: u64,
    /// Documents taken.
    pub documents: u64,
    /// Views that became new, another or gone.
    pub changes: u64,
    /// Times that the file could not be taken any more.
    pub faults: u64,
}

impl Collection {
    /// Registers the views of the file, the templates of its groups and its tools, and watches the file from then on.
    /// The file need not exist yet; one that cannot be taken is reported and shown as an empty list until it can.
    /// `workspace` says where a relative path starts, how long to wait after events, and the limits. Call it inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`CollectionError`] when a tool's name is taken, the bus refuses a tool or template, or it stopped.
    pub async fn start(
        bus: Bus,
        config: &CollectionConfig,
        workspace: &WorkspaceConfig,
    ) -> Result<Collection, CollectionError> {
        Collection::start_with(bus, config, workspace, true).await
    }

    /// Starts with or without the file watcher.
    async fn start_with(
        bus: Bus,
        config: &CollectionConfig,
        workspace: &WorkspaceConfig,
        watch: bool,
    ) -> Result<Collection, CollectionError> {
        let path = path(config, workspace)?;
        let items_max = workspace.collection_items_max;
        let spec = Arc::new(Spec::new(config, items_max, bus.limits().body_bytes_max));
        let index = Index::default();
        let tools = Tools {
            bus: bus.downgrade(),
            spec: spec.clone(),
            index: index.clone(),
        };
        check_tools(&bus, &tools).await?;
        let bell = Arc::new(Notify::new());
        let scanner = FileScanner {
            path: path.clone(),
            bytes_max: workspace.collection_bytes_max,
            spec: spec.clone(),
            watch: FileWatch::new(path.clone(), bell.clone(), watch),
        };
        let (send_stats, stats) = latest::channel(CollectionStats::default());
        let publisher = ViewPublisher::new(bus.clone(), spec.clone(), index);
        let mut task = Task::new(scanner, publisher, workspace, send_stats);
        let empty = spec.build(b"").expect("an empty file is an empty list");
        task.begin(empty).await?;
        // After the values that are there, which so have their first version.
        add_templates(&bus, &spec).await?;
        bus.add_tool(tools.list()).await?;
        bus.add_tool(tools.get()).await?;
        let items = stats.borrow().items;
        tracing::info!(collection = spec.name, file = %path.display(), items, "serving the items of a file");
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                _ = stopped => {}
                () = task.run(bell) => {}
            }
        });
        Ok(Collection {
            stats,
            stop: Some(stop),
            task: Some(task),
        })
    }

    /// What the source has and did.
    pub fn stats(&self) -> CollectionStats {
        self.stats.borrow().clone()
    }

    /// Ends the watch and its task. What was registered stays on the bus.
    pub async fn stop(mut self) {
        self.stop = None;
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the source of a collection ended badly");
        }
    }
}

/// Where the file is.
fn path(config: &CollectionConfig, workspace: &WorkspaceConfig) -> Result<PathBuf, CollectionError> {
    let base = workspace.dir.clone().unwrap_or_default();
    std::path::absolute(base.join(&config.file)).map_err(|source| CollectionError::Place {
        file: config.file.clone(),
        source,
    })
}

async fn check_tools(bus: &Bus, tools: &Tools) -> Result<(), CollectionError> {
    for tool in [tools.list_name(), tools.get_name()] {
        if bus.tool(&tool).await?.is_some() {
            return Err(CollectionError::ToolTaken { tool });
        }
    }
    Ok(())
}

/// A template per group: what has no item is an empty list that can be read and subscribed to.
async fn add_templates(bus: &Bus, spec: &Arc<Spec>) -> Result<(), CollectionError> {
    for view in &spec.views {
        let Kind::Group(field) = &view.kind else {
            continue;
        };
        let (collection, group) = (spec.name.clone(), view.name.clone());
        let reader = move |uri: ResourceUri, variables: Variables| {
            let value = variables.get("value").unwrap_or_default();
            // Registered values are resources of their own. Another spelling of a value names nothing.
            let own = name::value_uri(&collection, &group, value).is_ok_and(|own| own == uri);
            async move { Ok(own.then(|| Body::text("[]"))) }
        };
        let label = name::within(&spec.title);
        let template = ResourceTemplate::new(&format!("{}://{}/{{value}}", spec.name, view.name), reader)
            .expect("names of collections and views are identifiers: the configuration was checked")
            .name(format!("{}_{}", spec.name, view.name))
            .title(format!(
                "{} by {}",
                spec.title,
                name::within(&name::sentence(&view.name))
            ))
            .description(format!("The {label} whose {} is the value", field.words()))
            .media_type("application/json");
        bus.add_template(template).await?;
    }
    Ok(())
}
