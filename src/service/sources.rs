//! The sources of the service: the folder and the collections that the configuration names.

use anyhow::Context as _;

use super::cluster::NodeCluster;
use crate::Bus;
use crate::config::Config;
use crate::source::SourceTurn;
use crate::source::collection::Collection;
use crate::source::workspace::Workspace;

/// The sources that run beside the bus.
#[derive(Default)]
pub(super) struct ServedSources {
    workspace: Option<Workspace>,
    collections: Vec<Collection>,
}

impl ServedSources {
    /// Starts all of them, and returns when what they have is published. In a cluster each publishes while it
    /// is this node's turn.
    pub(super) async fn start(
        config: &Config,
        bus: &Bus,
        cluster: Option<&NodeCluster>,
    ) -> anyhow::Result<ServedSources> {
        let mut sources = ServedSources::default();
        if config.workspace.dir.is_some() {
            let turn = turn_of(cluster, "workspace");
            let start = Workspace::start_in_turn(
                bus.clone(),
                &config.workspace,
                &config.tools,
                &config.register,
                turn,
            );
            sources.workspace = Some(start.await?);
        }
        // After the folder, whose files may be those of collections.
        for collection in &config.collection {
            let turn = turn_of(cluster, &format!("collection/{}", collection.name));
            let start = Collection::start_in_turn(bus.clone(), collection, &config.workspace, turn).await;
            let started =
                start.with_context(|| format!("the collection {} cannot be served", collection.name))?;
            sources.collections.push(started);
        }
        Ok(sources)
    }

    /// Stops all of them. What they registered stays on the bus.
    pub(super) async fn stop(self) {
        for collection in self.collections {
            collection.stop().await;
        }
        if let Some(workspace) = self.workspace {
            workspace.stop().await;
        }
    }
}

fn turn_of(cluster: Option<&NodeCluster>, name: &str) -> SourceTurn {
    match cluster {
        Some(cluster) => cluster.source_turn(name),
        None => SourceTurn::default(),
    }
}
