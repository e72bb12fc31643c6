//! The place of the cluster in a build without an engine: there is never a value of [`NodeCluster`].

use std::sync::Arc;

use crate::Bus;
use crate::auth::ConfiguredBorder;
use crate::config::Config;
use crate::http::SharedLimits;
use crate::http::api::ClusterView;
use crate::mcp::SessionRecords;
use crate::sink::MakeTurn;
use crate::source::SourceTurn;
use tidings_actors::shared_log::{AskNewest, Heard, Proposal, SharedLog};
use tokio::sync::mpsc;

/// The cluster of this node, of which this build has none.
pub(super) enum NodeCluster {}

impl NodeCluster {
    /// Returns none: the configuration refuses an engine that the build has not.
    #[allow(clippy::unnecessary_wraps, reason = "the same form as with an engine")]
    pub(super) fn prepare(_config: &Config) -> anyhow::Result<Option<NodeCluster>> {
        Ok(None)
    }

    /// Returns none: a node of this build is alone.
    pub(super) fn name_of(_config: &Config) -> Option<String> {
        None
    }

    /// Never called, as there is no value.
    pub(super) fn log(&self) -> anyhow::Result<AbsentLog> {
        match *self {}
    }

    /// Never called, as there is no value.
    pub(super) fn newest(&self) -> AskNewest {
        match *self {}
    }

    /// Never called, as there is no value.
    pub(super) fn join(&mut self, _bus: &Bus, _limits: &SharedLimits) {
        match *self {}
    }

    /// Never called, as there is no value.
    pub(super) fn listens(&self, _address: String) {
        match *self {}
    }

    /// Never called, as there is no value.
    pub(super) fn view(&self, _bus: &Bus) -> ClusterView {
        match *self {}
    }

    /// Never called, as there is no value.
    #[allow(clippy::unused_async, reason = "the same form as with an engine")]
    pub(super) async fn caught_up(&self, _bus: &Bus) {
        match *self {}
    }

    /// Never called, as there is no value.
    pub(super) fn session_records(&self) -> Option<Arc<dyn SessionRecords>> {
        match *self {}
    }

    /// Never called, as there is no value.
    #[allow(clippy::unused_async, reason = "the same form as with an engine")]
    pub(super) async fn share_event_ids(&self, _border: &ConfiguredBorder) -> anyhow::Result<()> {
        match *self {}
    }

    /// Never called, as there is no value.
    pub(super) fn source_turn(&self, _name: &str) -> SourceTurn {
        match *self {}
    }

    /// Never called, as there is no value.
    pub(super) fn sink_turns(&self) -> MakeTurn {
        match *self {}
    }

    /// Never called, as there is no value.
    #[allow(clippy::unused_async, reason = "the same form as with an engine")]
    pub(super) async fn stop_sources(&self) {
        match *self {}
    }

    /// Never called, as there is no value.
    #[allow(clippy::unused_async, reason = "the same form as with an engine")]
    pub(super) async fn leave(self) {
        match self {}
    }
}

/// The log of a cluster: there is none.
pub(super) enum AbsentLog {}

impl SharedLog for AbsentLog {
    fn position_epoch(&self) -> u64 {
        match *self {}
    }

    fn run(self: Box<Self>, _: mpsc::Receiver<Proposal>, _: mpsc::Sender<Heard>) {
        match *self {}
    }
}
