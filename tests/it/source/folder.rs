//! A served folder in a temporary directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use tidings::config::{RegisterConfig, ToolsConfig, WorkspaceConfig};
use tidings::source::workspace::{SkipReason, Workspace, WorkspaceStats};
use tidings::{Bus, CallContext, Etag, ToolOutput};

use crate::support::until;

/// The folder, its configuration, and the source that serves it.
pub(super) struct ServedFolder {
    dir: tempfile::TempDir,
    pub(super) bus: Bus,
    pub(super) config: WorkspaceConfig,
    pub(super) tools_config: ToolsConfig,
    pub(super) register_config: RegisterConfig,
    pub(super) source: Option<Workspace>,
}

impl ServedFolder {
    /// Creates a folder with an empty `resources` in it, which is not served yet.
    pub(super) fn new() -> ServedFolder {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("resources")).unwrap();
        let config = WorkspaceConfig {
            dir: Some(dir.path().to_owned()),
            debounce: Duration::from_millis(30),
            debounce_max: Duration::from_millis(300),
            // Every change must be found by its event.
            rescan: Duration::from_secs(3600),
            ..WorkspaceConfig::default()
        };
        ServedFolder {
            dir,
            bus: Bus::builder().start().unwrap(),
            config,
            tools_config: ToolsConfig::default(),
            register_config: RegisterConfig::default(),
            source: None,
        }
    }

    /// Creates a folder and serves it.
    pub(super) async fn started() -> ServedFolder {
        let mut folder = ServedFolder::new();
        folder.start().await;
        folder
    }

    /// Serves a folder with a debounce so long that changes made at once are found by one scan, even on a
    /// busy machine.
    pub(super) async fn started_slow() -> ServedFolder {
        let mut folder = ServedFolder::new();
        folder.config.debounce = Duration::from_millis(250);
        folder.config.debounce_max = Duration::from_secs(2);
        folder.start().await;
        folder
    }

    pub(super) async fn start(&mut self) {
        let bus = self.bus.clone();
        let source = Workspace::start(bus, &self.config, &self.tools_config, &self.register_config).await;
        self.source = Some(source.unwrap());
    }

    pub(super) async fn stop(&mut self) {
        self.source.take().unwrap().stop().await;
    }

    pub(super) fn source(&self) -> &Workspace {
        self.source.as_ref().unwrap()
    }

    pub(super) fn stats(&self) -> WorkspaceStats {
        self.source().stats()
    }

    /// Returns the path of a file in the folder.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Returns the path of a file in `resources`.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.at("resources").join(name)
    }

    /// Writes a resource as careful writers do: to a new file that is renamed over the old one.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let new = self.at("new");
        fs::write(&new, content).unwrap();
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Writes a resource in place, so that it is empty for a moment.
    pub(super) fn write_in_place(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    /// Writes a file of the folder, by way of a new file.
    pub(super) fn put(&self, path: &str, content: &str) {
        self.put_as(path, content, 0o644);
    }

    /// Writes an executable that `sh` runs.
    pub(super) fn put_script(&self, path: &str, script: &str) {
        self.put_as(path, &format!("#!/bin/sh\n{script}\n"), 0o755);
    }

    pub(super) fn put_as(&self, path: &str, content: &str, mode: u32) {
        let new = self.at("new");
        let path = self.at(path);
        fs::write(&new, content).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Sets the time of the last write to long ago.
    pub(super) fn age(&self, path: &str) {
        let file = fs::File::options().append(true).open(self.at(path)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000))
            .unwrap();
    }

    pub(super) async fn etag(&self, name: &str) -> Etag {
        self.bus.etag(uri(name)).await.unwrap()
    }

    /// Returns the text of a resource, or `None` if it does not exist.
    pub(super) async fn text(&self, name: &str) -> Option<String> {
        let read = self.bus.read(uri(name)).await.ok()?;
        Some(read.body.as_text().unwrap().to_owned())
    }

    pub(super) async fn wait_text(&self, name: &str, text: &str) {
        until(name, async || self.text(name).await.as_deref() == Some(text)).await;
    }

    pub(super) async fn wait_gone(&self, name: &str) {
        until(name, async || self.bus.read(uri(name)).await.is_err()).await;
    }

    pub(super) async fn wait_skipped(&self, expected: &[(SkipReason, usize)]) {
        let expected = expected.iter().copied().collect();
        self.wait_stats("the skipped files", |stats| stats.skipped == expected)
            .await;
    }

    /// Waits for the counts, which follow the bus.
    pub(super) async fn wait_stats(&self, expected: &str, holds: impl Fn(&WorkspaceStats) -> bool) {
        until(expected, async || holds(&self.stats())).await;
    }

    /// Waits until all earlier changes were found, by way of a new file.
    pub(super) async fn wait_scan(&self, name: &str) {
        self.write(name, "sentinel");
        self.wait_text(name, "sentinel").await;
    }

    /// Returns the names of the tools on the bus.
    pub(super) async fn tools(&self) -> Vec<String> {
        let page = self.bus.tools(None, 1_000).await.unwrap();
        page.items.iter().map(|tool| tool.name().to_owned()).collect()
    }

    /// Returns the names of the prompts on the bus.
    pub(super) async fn prompts(&self) -> Vec<String> {
        let page = self.bus.prompts(None, 1_000).await.unwrap();
        page.items.iter().map(|prompt| prompt.name().to_owned()).collect()
    }

    pub(super) async fn wait_tools(&self, names: &[&str]) {
        until("the tools", async || self.tools().await == names).await;
    }

    pub(super) async fn wait_prompts(&self, names: &[&str]) {
        until("the prompts", async || self.prompts().await == names).await;
    }

    /// Calls a tool.
    pub(super) async fn call(&self, name: &str, arguments: Value) -> Result<ToolOutput, String> {
        call(&self.bus, name, arguments).await
    }

    /// Returns the number of changes of lists that were notified.
    pub(super) async fn list_changes(&self) -> u64 {
        self.bus.stats().await.unwrap().list_changes
    }

    /// Waits for the number of list changes, and checks that another scan adds none.
    pub(super) async fn wait_list_changes(&self, count: u64) {
        // An item is visible a moment before the change of its list is counted.
        until("a change of a list", async || self.list_changes().await >= count).await;
        self.source().rescan().await;
        assert_eq!(self.list_changes().await, count);
    }

    /// Waits for the problem with `subject`, and returns it.
    pub(super) async fn wait_problem(&self, subject: &str) -> String {
        self.wait_stats(subject, |stats| stats.problems.contains_key(subject))
            .await;
        self.stats().problems[subject].clone()
    }
}

/// Returns the URI of a file in `resources`.
pub(super) fn uri(name: &str) -> String {
    format!("workspace:///{name}")
}

/// Calls a tool on the bus.
pub(super) async fn call(bus: &Bus, name: &str, arguments: Value) -> Result<ToolOutput, String> {
    let tool = bus.tool(name).await.unwrap().unwrap();
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    match tool.call(arguments, CallContext::default()).await {
        Ok(output) => Ok(output),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns true if a process runs. One that has ended but was not waited for does not.
pub(super) fn is_running(pid: &str) -> bool {
    let listed = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", pid])
        .output();
    let state = String::from_utf8(listed.unwrap().stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}
