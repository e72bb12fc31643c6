//! The source on a real folder with a real watcher. What should happen is waited for; what should not is
//! shown by something written afterwards that did.

mod prompts;
mod registering;
mod tools;

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};
use tidings_actors::{Body, Etag, Resource};

const DEADLINE: Duration = Duration::from_secs(15);

struct Fixture {
    dir: tempfile::TempDir,
    bus: Bus,
    config: WorkspaceConfig,
    tools: ToolsConfig,
    register: RegisterConfig,
    source: Option<Workspace>,
}

impl Fixture {
    /// A folder with `resources` in it, not yet served.
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("resources")).unwrap();
        let config = WorkspaceConfig {
            dir: Some(dir.path().to_owned()),
            debounce: Duration::from_millis(30),
            debounce_max: Duration::from_millis(300),
            // Only the tests that ask for one see a rescan.
            rescan: Duration::from_secs(3600),
            ..WorkspaceConfig::default()
        };
        Fixture {
            dir,
            bus: Bus::builder().start().unwrap(),
            config,
            tools: ToolsConfig::default(),
            register: RegisterConfig::default(),
            source: None,
        }
    }

    async fn started() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.start().await;
        fixture
    }

    /// One that waits so long after an event that what is done at once is looked at as one, on a busy machine
    /// too.
    async fn patient() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.config.debounce = Duration::from_millis(250);
        fixture.config.debounce_max = Duration::from_secs(2);
        fixture.start().await;
        fixture
    }

    async fn start(&mut self) {
        self.source = Some(self.launch(true).await);
    }

    async fn start_blind(&mut self) {
        self.source = Some(self.launch(false).await);
    }

    async fn launch(&self, watch: bool) -> Workspace {
        Workspace::start_with(self.bus.clone(), &self.config, &self.tools, &self.register, watch)
            .await
            .unwrap()
    }

    fn source(&self) -> &Workspace {
        self.source.as_ref().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("resources").join(name)
    }

    /// Puts a file there whole, as careful writers do.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let beside = self.dir.path().join("beside");
        fs::write(&beside, content).unwrap();
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
    }

    /// Writes a file where it is, so that it is empty for a moment.
    fn write_in_place(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    async fn etag(&self, name: &str) -> Etag {
        self.bus.etag(uri(name)).await.unwrap()
    }

    async fn text(&self, name: &str) -> Option<String> {
        let read = self.bus.read(uri(name)).await.ok()?;
        Some(read.body.as_text().unwrap().to_owned())
    }

    async fn wait_text(&self, name: &str, text: &str) {
        self.wait(name, async || self.text(name).await.as_deref() == Some(text))
            .await;
    }

    async fn wait_gone(&self, name: &str) {
        self.wait(name, async || self.etag_known(name).await.is_none())
            .await;
    }

    async fn wait_skipped(&self, expected: &[(SkipReason, usize)]) {
        let expected = expected.iter().copied().collect();
        self.wait_stats("the skipped files", |stats| stats.skipped == expected)
            .await;
    }

    /// Statistics follow the bus, so they are waited for too.
    async fn wait_stats(&self, what: &str, holds: impl Fn(&WorkspaceStats) -> bool) {
        self.wait(what, async || holds(&self.source().stats())).await;
    }

    /// The etag of a resource that exists.
    async fn etag_known(&self, name: &str) -> Option<Etag> {
        self.bus.read(uri(name)).await.ok().map(|read| read.etag)
    }

    /// Everything that happened before has been looked at when this returns.
    async fn pass(&self, sentinel: &str) {
        self.write(sentinel, "sentinel");
        self.wait_text(sentinel, "sentinel").await;
    }

    /// Puts a file whole beside the resources.
    fn put(&self, path: &str, content: &str) {
        self.put_as(path, content, 0o644);
    }

    /// Puts an executable there that `sh` runs.
    fn put_script(&self, path: &str, script: &str) {
        self.put_as(path, &format!("#!/bin/sh\n{script}\n"), 0o755);
    }

    fn put_as(&self, path: &str, content: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        let (beside, path) = (self.dir.path().join("beside"), self.dir.path().join(path));
        fs::write(&beside, content).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(mode)).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::rename(beside, path).unwrap();
    }

    async fn tools(&self) -> Vec<String> {
        let page = self.bus.tools(None, 1_000).await.unwrap();
        page.items.iter().map(|tool| tool.name().to_owned()).collect()
    }

    async fn prompts(&self) -> Vec<String> {
        let page = self.bus.prompts(None, 1_000).await.unwrap();
        page.items.iter().map(|prompt| prompt.name().to_owned()).collect()
    }

    async fn wait_tools(&self, names: &[&str]) {
        self.wait("the tools", async || self.tools().await == names).await;
    }

    async fn wait_prompts(&self, names: &[&str]) {
        self.wait("the prompts", async || self.prompts().await == names)
            .await;
    }

    async fn list_changes(&self) -> u64 {
        self.bus.stats().await.unwrap().list_changes
    }

    /// So many changes of lists were told, and another look tells no more.
    async fn wait_list_changes(&self, count: u64) {
        // What exists is seen before the change of the list is counted.
        self.wait("a change of a list", async || self.list_changes().await >= count)
            .await;
        self.source().rescan().await;
        assert_eq!(self.list_changes().await, count);
    }

    /// What is wrong with `subject`, when the source has found it.
    async fn wait_problem(&self, subject: &str) -> String {
        self.wait_stats(subject, |stats| stats.problems.contains_key(subject))
            .await;
        self.source().stats().problems[subject].clone()
    }

    async fn wait(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds().await {
            let stats = (self.bus.stats().await, self.source.as_ref().map(Workspace::stats));
            assert!(Instant::now() < deadline, "waited in vain for {what}: {stats:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn uri(name: &str) -> String {
    format!("workspace:///{name}")
}

#[tokio::test]
async fn what_is_there_is_served_before_start_returns() {
    let mut fixture = Fixture::new();
    fixture.write("a.md", "hello");
    fixture.write("deep/er/b c.json", "{}");
    fixture.write("pic.png", [0x89, b'P', 0, 0xff]);
    fixture.start().await;
    let read = fixture.bus.read(uri("a.md")).await.unwrap();
    assert_eq!((read.etag.version, read.body), (1, Body::text("hello")));
    assert_eq!(read.descriptor.media_type.as_deref(), Some("text/markdown"));
    assert!(read.descriptor.subscribable);
    let read = fixture.bus.read(uri("deep/er/b%20c.json")).await.unwrap();
    assert_eq!(read.descriptor.name, "b c.json");
    let read = fixture.bus.read(uri("pic.png")).await.unwrap();
    assert_eq!(read.body, Body::blob(vec![0x89, b'P', 0, 0xff]));
    assert_eq!(fixture.source().stats().files, 3);
    let named = fixture.source().path_of(&uri("deep/er/b%20c.json"));
    assert_eq!(named, Some(fixture.path("deep/er/b c.json")));
}

#[tokio::test]
async fn creating_editing_and_deleting_a_file_is_told() {
    let fixture = Fixture::started().await;
    fixture.write("a.md", "1");
    fixture.wait_text("a.md", "1").await;
    fixture.write("a.md", "2");
    fixture.wait_text("a.md", "2").await;
    assert_eq!(fixture.etag("a.md").await.version, 2);
    fixture.wait_stats("two looks", |stats| stats.looks == 3).await;
    fs::remove_file(fixture.path("a.md")).unwrap();
    fixture.wait_gone("a.md").await;
    fixture.wait_stats("a look more", |stats| stats.looks > 3).await;
    assert_eq!(
        fixture.source().stats().looks,
        4,
        "after a quiet time one look is enough"
    );
}

#[tokio::test]
async fn writing_the_same_bytes_or_touching_changes_nothing() {
    let fixture = Fixture::started().await;
    fixture.write("a.md", "same");
    fixture.wait_text("a.md", "same").await;
    let etag = fixture.etag("a.md").await;
    fixture.write("a.md", "same");
    fixture.pass("s1").await;
    assert_eq!(fixture.etag("a.md").await, etag);
    let file = fs::File::options()
        .write(true)
        .open(fixture.path("a.md"))
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000))
        .unwrap();
    fixture.pass("s2").await;
    assert_eq!(fixture.etag("a.md").await, etag);
    let stats = fixture.bus.stats().await.unwrap();
    assert_eq!(stats.changes, 3, "a.md and two sentinels");
    assert!(stats.unchanged >= 2, "it was looked at: {stats:?}");
}

#[tokio::test]
async fn writing_beside_and_renaming_over_is_one_change() {
    let fixture = Fixture::patient().await;
    fixture.write("a.md", "1");
    fixture.wait_text("a.md", "1").await;
    let before = fixture.bus.stats().await.unwrap();
    fixture.write("a.md.tmp", "2");
    fs::rename(fixture.path("a.md.tmp"), fixture.path("a.md")).unwrap();
    fixture.wait_text("a.md", "2").await;
    let after = fixture.bus.stats().await.unwrap();
    assert_eq!(fixture.etag("a.md").await.version, 2);
    assert_eq!(after.changes, before.changes + 1);
    assert_eq!(after.list_changes, before.list_changes, "the list did not flap");
    assert_eq!(fixture.etag("a.md.tmp").await, Etag::UNKNOWN);
}

#[tokio::test]
async fn deleting_and_creating_again_at_once_is_one_change() {
    let fixture = Fixture::patient().await;
    fixture.write("a.md", "1");
    fixture.wait_text("a.md", "1").await;
    let before = fixture.bus.stats().await.unwrap();
    fs::remove_file(fixture.path("a.md")).unwrap();
    fixture.write("a.md", "2");
    fixture.wait_text("a.md", "2").await;
    assert_eq!(fixture.etag("a.md").await.version, 2);
    assert_eq!(
        fixture.bus.stats().await.unwrap().list_changes,
        before.list_changes
    );
}

#[tokio::test]
async fn folders_come_and_move_and_go_with_their_files() {
    let fixture = Fixture::started().await;
    fixture.write("one/two/three/a.md", "a");
    fixture.write("one/b.md", "b");
    fixture.wait_text("one/two/three/a.md", "a").await;
    fixture.wait_text("one/b.md", "b").await;
    fs::rename(fixture.path("one"), fixture.path("uno")).unwrap();
    fixture.wait_text("uno/two/three/a.md", "a").await;
    fixture.wait_text("uno/b.md", "b").await;
    fixture.wait_gone("one/two/three/a.md").await;
    fixture.wait_gone("one/b.md").await;
    // Watched below its new name as well.
    fixture.write("uno/two/three/a.md", "edited");
    fixture.wait_text("uno/two/three/a.md", "edited").await;
    fs::remove_dir_all(fixture.path("uno")).unwrap();
    fixture.wait_gone("uno/two/three/a.md").await;
    fixture.wait_gone("uno/b.md").await;
}

#[tokio::test]
async fn the_folder_itself_may_come_later_and_go_and_come_again() {
    let mut fixture = Fixture::new();
    fs::remove_dir(fixture.path("")).unwrap();
    fixture.start().await;
    for round in ["1", "2"] {
        fixture.write("sub/a.md", round);
        fixture.wait_text("sub/a.md", round).await;
        fixture.write("sub/a.md", format!("{round} edited"));
        fixture.wait_text("sub/a.md", &format!("{round} edited")).await;
        fs::remove_dir_all(fixture.path("")).unwrap();
        fixture.wait_gone("sub/a.md").await;
    }
}

#[tokio::test]
async fn a_burst_is_few_changes_and_the_last_content_wins() {
    let fixture = Fixture::started().await;
    let before = fixture.bus.stats().await.unwrap();
    for n in 0..200 {
        fixture.write_in_place("a.md", format!("content {n}"));
    }
    fixture.wait_text("a.md", "content 199").await;
    let changes = fixture.bus.stats().await.unwrap().changes - before.changes;
    assert!((1..=20).contains(&changes), "{changes} changes");
}

#[tokio::test]
async fn a_link_that_leaves_the_folder_is_refused() {
    let mut fixture = Fixture::new();
    fs::write(fixture.dir.path().join("secret.md"), "secret").unwrap();
    fs::create_dir(fixture.dir.path().join("outside")).unwrap();
    fs::write(fixture.dir.path().join("outside/secret.md"), "secret").unwrap();
    symlink("../secret.md", fixture.path("first.md")).unwrap();
    fixture.start().await;
    symlink(fixture.dir.path().join("secret.md"), fixture.path("second.md")).unwrap();
    symlink(fixture.dir.path().join("outside"), fixture.path("dir")).unwrap();
    fixture.pass("s1").await;
    fixture.wait_skipped(&[(SkipReason::LeavesFolder, 3)]).await;
    // A file that is exchanged for such a link is served no longer.
    fixture.write("a.md", "a");
    fixture.wait_text("a.md", "a").await;
    fs::remove_file(fixture.path("a.md")).unwrap();
    symlink("../secret.md", fixture.path("a.md")).unwrap();
    fixture.wait_gone("a.md").await;
    for name in ["first.md", "second.md", "a.md", "dir/secret.md"] {
        assert_eq!(fixture.text(name).await, None, "{name}");
    }
}

#[tokio::test]
async fn a_resources_folder_that_is_a_link_to_elsewhere_is_refused() {
    let mut fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.md"), "secret").unwrap();
    fs::remove_dir(fixture.path("")).unwrap();
    symlink(outside.path(), fixture.dir.path().join("resources")).unwrap();
    fixture.start().await;
    assert_eq!(fixture.source().stats().skipped[&SkipReason::LeavesFolder], 1);
    assert_eq!(fixture.source().stats().files, 0);
}

#[tokio::test]
async fn a_resources_folder_that_is_a_link_within_the_folder_is_served_and_watched() {
    let mut fixture = Fixture::new();
    fs::rename(fixture.path(""), fixture.dir.path().join("data")).unwrap();
    symlink("data", fixture.dir.path().join("resources")).unwrap();
    fixture.write("sub/a.md", "1");
    fixture.start().await;
    assert_eq!(fixture.text("sub/a.md").await.as_deref(), Some("1"));
    fixture.write("sub/a.md", "2");
    fixture.wait_text("sub/a.md", "2").await;
    fixture.write("b.md", "b");
    fixture.wait_text("b.md", "b").await;
}

#[tokio::test]
async fn a_link_inside_is_followed_and_a_link_to_a_folder_is_not() {
    let fixture = Fixture::started().await;
    symlink("real/a.md", fixture.path("link.md")).unwrap();
    symlink(".", fixture.path("loop")).unwrap();
    fixture
        .wait_skipped(&[(SkipReason::DanglingLink, 1), (SkipReason::FolderLink, 1)])
        .await;
    fixture.write("real/a.md", "1");
    fixture.wait_text("link.md", "1").await;
    fixture.write("real/a.md", "2");
    fixture.wait_text("link.md", "2").await;
    fixture.wait_skipped(&[(SkipReason::FolderLink, 1)]).await;
    fs::remove_file(fixture.path("real/a.md")).unwrap();
    fixture.wait_gone("link.md").await;
}

#[tokio::test]
async fn a_pipe_is_never_opened() {
    let fixture = Fixture::started().await;
    let made = std::process::Command::new("mkfifo")
        .arg(fixture.path("pipe.md"))
        .status();
    assert!(made.unwrap().success());
    fixture.pass("s1").await;
    fixture.wait_skipped(&[(SkipReason::NotAFile, 1)]).await;
    assert_eq!(fixture.etag("pipe.md").await, Etag::UNKNOWN);
}

#[tokio::test]
async fn a_file_too_large_is_skipped_until_it_shrinks() {
    let mut fixture = Fixture::new();
    fixture.config.file_bytes_max = 1024;
    fixture.start().await;
    fixture.write("a.md", "x".repeat(1025));
    fixture.wait_skipped(&[(SkipReason::TooLarge, 1)]).await;
    assert_eq!(fixture.etag("a.md").await, Etag::UNKNOWN);
    let fits = "x".repeat(1024);
    fixture.write("a.md", &fits);
    fixture.wait_text("a.md", &fits).await;
    fixture.wait_skipped(&[]).await;
    fixture.write("a.md", "x".repeat(2000));
    fixture.wait_gone("a.md").await;
}

#[tokio::test]
async fn files_beyond_the_limit_wait_for_room() {
    let mut fixture = Fixture::new();
    fixture.config.files_max = 2;
    for name in ["a", "b", "c", "d"] {
        fixture.write(name, name);
    }
    fixture.start().await;
    assert_eq!(
        (fixture.source().stats().files, fixture.source().stats().beyond),
        (2, 2)
    );
    assert_eq!(fixture.etag("c").await, Etag::UNKNOWN);
    fs::remove_file(fixture.path("a")).unwrap();
    fixture.wait_text("c", "c").await;
    fs::remove_file(fixture.path("d")).unwrap();
    fs::remove_file(fixture.path("b")).unwrap();
    fixture.wait_stats("room", |stats| stats.beyond == 0).await;
}

#[tokio::test]
async fn what_the_bus_refuses_is_reported_and_not_kept() {
    let mut fixture = Fixture::new();
    let mut limits = tidings_actors::Limits::default();
    limits.body_bytes_max = 10;
    fixture.bus = Bus::builder().limits(limits).start().unwrap();
    fixture.write("a.md", "short");
    fixture.start().await;
    fixture.write("a.md", "longer than ten bytes");
    fixture.wait_gone("a.md").await;
    fixture.wait_skipped(&[(SkipReason::Refused, 1)]).await;
    fixture.write("a.md", "short 2");
    fixture.wait_text("a.md", "short 2").await;
    fixture.wait_skipped(&[]).await;
}

#[tokio::test]
async fn hidden_names_are_skipped_unless_wanted() {
    let names = [".env", ".git/config", "a.md~", "x.swp"];
    let mut fixture = Fixture::started().await;
    for name in names {
        fixture.write(name, name);
    }
    fixture.pass("s1").await;
    fixture
        .wait_stats("the sentinel alone", |stats| stats.files == 1)
        .await;
    fixture.source.take().unwrap().stop().await;
    fixture.config.hidden = true;
    fixture.start().await;
    for name in names {
        assert_eq!(fixture.text(name).await.as_deref(), Some(name));
    }
    fixture.write(".env", "edited");
    fixture.wait_text(".env", "edited").await;
}

#[tokio::test]
async fn a_name_that_is_not_utf8_is_skipped_and_reported() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = Fixture::started().await;
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9.md");
    fs::write(fixture.path("").join(odd), "x").unwrap();
    fixture.wait_skipped(&[(SkipReason::NotUtf8, 1)]).await;
    fs::rename(fixture.path("").join(odd), fixture.path("café.md")).unwrap();
    fixture.wait_text("caf%C3%A9.md", "x").await;
    fixture.wait_skipped(&[]).await;
}

#[tokio::test]
async fn a_rescan_finds_what_no_event_told() {
    let mut fixture = Fixture::new();
    fixture.write("edited.md", "1");
    fixture.write("gone.md", "1");
    fixture.start_blind().await;
    fixture.write("edited.md", "2");
    fixture.write("new.md", "1");
    fs::remove_file(fixture.path("gone.md")).unwrap();
    fixture.source().rescan().await;
    assert_eq!(fixture.text("edited.md").await.as_deref(), Some("2"));
    assert_eq!(fixture.text("new.md").await.as_deref(), Some("1"));
    fixture.wait_gone("gone.md").await;
    let before = fixture.bus.stats().await.unwrap();
    fixture.source().rescan().await;
    fixture.source().rescan().await;
    let after = fixture.bus.stats().await.unwrap();
    assert_eq!(
        (after.changes, after.list_changes),
        (before.changes, before.list_changes)
    );
}

#[tokio::test]
async fn a_rescan_happens_by_itself() {
    let mut fixture = Fixture::new();
    fixture.config.rescan = Duration::from_millis(20);
    fixture.start_blind().await;
    fixture.write("a.md", "1");
    fixture.wait_text("a.md", "1").await;
    fs::remove_file(fixture.path("a.md")).unwrap();
    fixture.wait_gone("a.md").await;
    assert!(fixture.source().stats().rescans >= 2);
}

#[tokio::test]
async fn settled_files_are_not_read_again_but_by_a_thorough_rescan() {
    let mut fixture = Fixture::new();
    fixture.config.rescan = Duration::from_millis(20);
    fixture.write("a.md", "of the file");
    fixture.start_blind().await;
    let reads_nothing = async || {
        let before = fixture.source().stats().reads;
        fixture.source().rescan().await;
        fixture.source().stats().reads == before
    };
    fixture.wait("a rescan that reads nothing", reads_nothing).await;
    let other = Resource::text(uri("a.md"), "by somebody else").unwrap();
    fixture.bus.update(other).await.unwrap();
    fixture.wait_text("a.md", "of the file").await;
}

#[tokio::test]
async fn an_edit_in_the_same_tick_with_the_same_size_is_found() {
    let mut fixture = Fixture::new();
    fixture.write("a.md", "1");
    fixture.start_blind().await;
    let modified = fs::metadata(fixture.path("a.md")).unwrap().modified().unwrap();
    fixture.write_in_place("a.md", "2");
    let file = fs::File::options()
        .write(true)
        .open(fixture.path("a.md"))
        .unwrap();
    file.set_modified(modified).unwrap();
    fixture.source().rescan().await;
    assert_eq!(fixture.text("a.md").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn only_what_the_source_registered_is_removed() {
    let fixture = Fixture::started().await;
    let put = Resource::text(uri("put.md"), "by somebody else").unwrap();
    fixture.bus.register(put).await.unwrap();
    fixture.write("a.md", "1");
    fixture.wait_text("a.md", "1").await;
    fixture.source().rescan().await;
    fs::remove_dir_all(fixture.path("")).unwrap();
    fixture.wait_gone("a.md").await;
    assert_eq!(fixture.text("put.md").await.as_deref(), Some("by somebody else"));
}

#[tokio::test]
async fn a_file_that_may_not_be_read_any_more_is_not_served() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::started().await;
    fixture.write("a.md", "1");
    fixture.wait_text("a.md", "1").await;
    let allow = |mode| fs::set_permissions(fixture.path("a.md"), fs::Permissions::from_mode(mode)).unwrap();
    allow(0o000);
    if fs::read(fixture.path("a.md")).is_ok() {
        // Whoever may read everything cannot be refused; the next lines hold all the same.
        allow(0o600);
        fixture.pass("s1").await;
    } else {
        fixture.wait_gone("a.md").await;
        allow(0o600);
    }
    fixture.wait_text("a.md", "1").await;
}

#[tokio::test]
async fn a_thousand_files_are_served_and_read_once() {
    let mut fixture = Fixture::new();
    for n in 0..1_000 {
        fixture.write(&format!("{}/{n}.md", n % 10), format!("file {n}"));
    }
    let begun = Instant::now();
    fixture.start().await;
    println!("first look at 1,000 files: {:?}", begun.elapsed());
    let stats = fixture.source().stats();
    assert_eq!((stats.files, stats.reads), (1_000, 1_000));
    assert_eq!(fixture.bus.stats().await.unwrap().resources, 1_000);
    let begun = Instant::now();
    fixture.source().rescan().await;
    println!("second look, all of them fresh: {:?}", begun.elapsed());
    assert_eq!(fixture.bus.stats().await.unwrap().changes, 1_000);
}

#[tokio::test]
async fn after_stop_nothing_is_told() {
    let mut fixture = Fixture::started().await;
    fixture.write("a.md", "1");
    fixture.wait_text("a.md", "1").await;
    fixture.source.take().unwrap().stop().await;
    fixture.write("a.md", "2");
    // A second source on the same folder is what shows that time has passed.
    let other = Fixture::started().await;
    other.pass("s1").await;
    assert_eq!(fixture.text("a.md").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_bus_that_stops_ends_the_source() {
    let mut fixture = Fixture::started().await;
    fixture.bus.shutdown(Duration::from_secs(1)).await;
    fixture.write("a.md", "1");
    let source = fixture.source.take().unwrap();
    fixture
        .wait("the end of the task", async || {
            source.task.as_ref().unwrap().is_finished()
        })
        .await;
    source.rescan().await;
    source.stop().await;
}

#[tokio::test]
async fn what_is_no_folder_is_named_with_a_remedy() {
    let fixture = Fixture::new();
    let started = async |dir: Option<PathBuf>| {
        let config = WorkspaceConfig {
            dir,
            ..fixture.config.clone()
        };
        Workspace::start(fixture.bus.clone(), &config, &fixture.tools, &fixture.register)
            .await
            .unwrap_err()
            .to_string()
    };
    let absent = fixture.dir.path().join("absent");
    let text = started(Some(absent.clone())).await;
    assert_eq!(
        text,
        format!(
            "folder {} does not exist; create it or set workspace.dir to another",
            absent.display()
        )
    );
    let file = fixture.dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(started(Some(file)).await.contains("is not a folder"));
    assert!(started(None).await.contains("set workspace.dir"));
}

/// What a writer does to a folder.
#[derive(Debug, Clone)]
enum Step {
    Write(usize, u8),
    Remove(usize),
    Rename(usize, usize),
    Rescan,
}

const NAMES: [&str; 5] = ["a", "d/a", "d/b", "d/e/a", "f/a"];

fn any_step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    prop_oneof![
        (name(), any::<u8>()).prop_map(|(name, content)| Step::Write(name, content % 4)),
        name().prop_map(Step::Remove),
        (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        Just(Step::Rescan),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever was done to the folder, in the end the bus has what the folder has.
    #[test]
    fn the_bus_ends_with_what_the_folder_has(steps in proptest::collection::vec(any_step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = Fixture::started().await;
            for step in steps {
                match step {
                    Step::Write(name, content) => fixture.write_in_place(NAMES[name], content.to_string()),
                    Step::Remove(name) => drop(fs::remove_file(fixture.path(NAMES[name]))),
                    Step::Rename(from, to) => drop(fs::rename(fixture.path(NAMES[from]), fixture.path(NAMES[to]))),
                    Step::Rescan => fixture.source().rescan().await,
                }
            }
            for name in NAMES {
                let expected = fs::read_to_string(fixture.path(name)).ok();
                fixture.wait(name, async || fixture.text(name).await == expected).await;
            }
        });
    }
}
