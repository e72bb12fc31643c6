//! Rescans without the file watcher, and the end of the task. `tests/it/source` has the tests with the
//! watcher.

use super::*;
use std::fs;
use std::time::{Duration, Instant};
use tidings_actors::Resource;

const DEADLINE: Duration = Duration::from_secs(15);

/// A folder that is served without the watcher.
struct UnwatchedFolder {
    dir: tempfile::TempDir,
    bus: Bus,
    source: Workspace,
}

impl UnwatchedFolder {
    /// Serves a folder with these files, whose content is `1`.
    async fn start(names: &[&str], rescan: Duration) -> UnwatchedFolder {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("resources")).unwrap();
        for name in names {
            fs::write(dir.path().join("resources").join(name), "1").unwrap();
        }
        let bus = Bus::builder().start().unwrap();
        let source = serve(&bus, dir.path(), rescan, SourceTurn::default()).await;
        UnwatchedFolder { dir, bus, source }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("resources").join(name)
    }

    async fn text(&self, name: &str) -> Option<String> {
        let read = self.bus.read(format!("workspace:///{name}")).await.ok()?;
        Some(read.body.as_text().unwrap().to_owned())
    }

    async fn wait_text(&self, name: &str, text: Option<&str>) {
        self.wait(name, async || self.text(name).await.as_deref() == text)
            .await;
    }

    async fn wait(&self, expected: &str, holds: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds().await {
            let stats = self.source.stats();
            assert!(
                Instant::now() < deadline,
                "waited in vain for {expected}: {stats:?}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Serves the folder `dir`.
async fn serve(bus: &Bus, dir: &Path, rescan: Duration, turn: SourceTurn) -> Workspace {
    let config = WorkspaceConfig {
        dir: Some(dir.to_owned()),
        debounce: Duration::from_millis(30),
        rescan,
        ..WorkspaceConfig::default()
    };
    let parts = WorkspaceParts {
        config: &config,
        tools: &ToolsConfig::default(),
        register: &RegisterConfig::default(),
    };
    Workspace::start_with(bus.clone(), parts, turn, false)
        .await
        .unwrap()
}

#[tokio::test]
async fn rescan_on_request_finds_every_change() {
    let folder = UnwatchedFolder::start(&["edited.md", "gone.md"], Duration::from_secs(3600)).await;
    fs::write(folder.path("edited.md"), "2").unwrap();
    fs::write(folder.path("new.md"), "1").unwrap();
    fs::remove_file(folder.path("gone.md")).unwrap();
    folder.source.rescan().await;
    assert_eq!(folder.text("edited.md").await.as_deref(), Some("2"));
    assert_eq!(folder.text("new.md").await.as_deref(), Some("1"));
    // A missing file is removed after the quiet time only.
    folder.wait_text("gone.md", None).await;
    let before = folder.bus.stats().await.unwrap();
    folder.source.rescan().await;
    folder.source.rescan().await;
    let after = folder.bus.stats().await.unwrap();
    assert_eq!(after.changes, before.changes);
    assert_eq!(after.list_changes, before.list_changes);
}

#[tokio::test]
async fn rescan_by_interval_finds_every_change() {
    let folder = UnwatchedFolder::start(&[], Duration::from_millis(20)).await;
    fs::write(folder.path("a.md"), "1").unwrap();
    folder.wait_text("a.md", Some("1")).await;
    fs::remove_file(folder.path("a.md")).unwrap();
    folder.wait_text("a.md", None).await;
    assert!(folder.source.stats().rescans >= 2);
}

#[tokio::test]
async fn thorough_rescan_reads_settled_files() {
    let folder = UnwatchedFolder::start(&["a.md"], Duration::from_millis(20)).await;
    // The file settles two seconds after it was written.
    folder
        .wait("a rescan that reads nothing", async || {
            let before = folder.source.stats().reads;
            folder.source.rescan().await;
            folder.source.stats().reads == before
        })
        .await;
    let other = Resource::text("workspace:///a.md", "by others").unwrap();
    let owned = folder.bus.owned_by(Owner::Workspace);
    owned.update(other).await.unwrap();
    folder.wait_text("a.md", Some("1")).await;
}

#[tokio::test]
async fn edit_in_one_clock_tick_of_equal_size_is_found() {
    let folder = UnwatchedFolder::start(&["a.md"], Duration::from_secs(3600)).await;
    let path = folder.path("a.md");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "2").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    folder.source.rescan().await;
    assert_eq!(folder.text("a.md").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn stopped_bus_ends_the_task() {
    let folder = UnwatchedFolder::start(&["a.md"], Duration::from_millis(20)).await;
    folder.bus.shutdown(Duration::from_secs(1)).await;
    fs::write(folder.path("a.md"), "2").unwrap();
    folder
        .wait("the end of the task", async || {
            folder.source.task.as_ref().unwrap().is_finished()
        })
        .await;
    folder.source.rescan().await;
    folder.source.stop().await;
}

#[tokio::test]
async fn one_of_two_nodes_publishes_the_folder() {
    let never = Duration::from_secs(3600);
    let far_off = std::time::Instant::now() + never;
    let (told, turns) = latest::channel(None);
    let mut folder = UnwatchedFolder::start(&[], never).await;
    fs::write(folder.path("a.md"), "1").unwrap();
    fs::write(folder.path("b.md"), "1").unwrap();
    let (told_other, other_turns) = latest::channel(Some(far_off));
    folder.source = serve(&folder.bus, folder.dir.path(), never, SourceTurn::until(turns)).await;
    assert_eq!(folder.text("a.md").await, None, "it is the turn of the other");
    let other = serve(
        &folder.bus,
        folder.dir.path(),
        never,
        SourceTurn::until(other_turns),
    )
    .await;
    folder.wait_text("a.md", Some("1")).await;
    // Both see the change, and one makes it.
    fs::write(folder.path("a.md"), "2").unwrap();
    folder.source.rescan().await;
    assert_eq!(folder.text("a.md").await.as_deref(), Some("1"));
    other.rescan().await;
    assert_eq!(folder.bus.etag("workspace:///a.md").await.unwrap().version, 2);
    // The other ends before it has published two changes.
    told_other.send_replace(None);
    fs::write(folder.path("a.md"), "3").unwrap();
    fs::remove_file(folder.path("b.md")).unwrap();
    folder.source.rescan().await;
    other.rescan().await;
    assert_eq!(folder.text("a.md").await.as_deref(), Some("2"));
    told.send_replace(Some(far_off));
    folder.wait_text("a.md", Some("3")).await;
    folder.wait_text("b.md", None).await;
    assert_eq!(folder.bus.etag("workspace:///a.md").await.unwrap().version, 3);
}
