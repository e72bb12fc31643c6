//! Files of `resources` as resources on the bus.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use proptest::prelude::*;
use tidings::config::WorkspaceConfig;
use tidings::source::workspace::Workspace;
use tidings::{Body, Etag, Resource};

use super::folder::{ServedFolder, uri};
use crate::support::until;

#[tokio::test]
async fn files_are_served_when_start_returns() {
    let mut folder = ServedFolder::new();
    folder.write("a.md", "hello");
    folder.write("deep/er/b c.json", "{}");
    folder.write("pic.png", [0x89, b'P', 0, 0xff]);
    folder.start().await;
    let read = folder.bus.read(uri("a.md")).await.unwrap();
    assert_eq!((read.etag.version, read.body), (1, Body::text("hello")));
    assert_eq!(read.descriptor.media_type.as_deref(), Some("text/markdown"));
    assert!(read.descriptor.subscribable);
    let read = folder.bus.read(uri("deep/er/b%20c.json")).await.unwrap();
    assert_eq!(read.descriptor.name, "b c.json");
    let read = folder.bus.read(uri("pic.png")).await.unwrap();
    assert_eq!(read.body, Body::blob(vec![0x89, b'P', 0, 0xff]));
    assert_eq!(folder.stats().files, 3);
    let named = folder.source().path_of(&uri("deep/er/b%20c.json"));
    assert_eq!(named, Some(folder.path("deep/er/b c.json")));
}

#[tokio::test]
async fn file_is_followed_until_it_is_removed() {
    let folder = ServedFolder::started().await;
    folder.write("a.md", "1");
    folder.wait_text("a.md", "1").await;
    folder.write("a.md", "2");
    folder.wait_text("a.md", "2").await;
    assert_eq!(folder.etag("a.md").await.version, 2);
    folder.wait_stats("two looks", |stats| stats.scans == 3).await;
    fs::remove_file(folder.path("a.md")).unwrap();
    folder.wait_gone("a.md").await;
    folder.wait_stats("a look more", |stats| stats.scans > 3).await;
    assert_eq!(folder.stats().scans, 4, "after a quiet time one look is enough");
}

#[tokio::test]
async fn same_bytes_written_again_are_no_change() {
    let folder = ServedFolder::started().await;
    folder.write("a.md", "same");
    folder.wait_text("a.md", "same").await;
    let etag = folder.etag("a.md").await;
    folder.write("a.md", "same");
    folder.wait_scan("s1").await;
    assert_eq!(folder.etag("a.md").await, etag);
    folder.age("resources/a.md");
    folder.wait_scan("s2").await;
    assert_eq!(folder.etag("a.md").await, etag);
    let stats = folder.bus.stats().await.unwrap();
    assert_eq!(stats.changes, 3, "a.md and two sentinels");
    assert!(stats.unchanged >= 2, "it was looked at: {stats:?}");
}

#[tokio::test]
async fn rename_over_a_file_is_one_change() {
    let folder = ServedFolder::started_slow().await;
    folder.write("a.md", "1");
    folder.wait_text("a.md", "1").await;
    // The content is visible a moment before the list is counted.
    until("the list change of a.md", async || {
        folder.bus.stats().await.unwrap().list_changes == 1
    })
    .await;
    let before = folder.bus.stats().await.unwrap();
    folder.write("a.md.tmp", "2");
    fs::rename(folder.path("a.md.tmp"), folder.path("a.md")).unwrap();
    folder.wait_text("a.md", "2").await;
    let after = folder.bus.stats().await.unwrap();
    assert_eq!(folder.etag("a.md").await.version, 2);
    assert_eq!(after.changes, before.changes + 1);
    assert_eq!(
        after.list_changes, before.list_changes,
        "no list change for the new file"
    );
    assert_eq!(folder.etag("a.md.tmp").await, Etag::UNKNOWN);
}

#[tokio::test]
async fn removal_and_creation_at_once_is_one_change() {
    let folder = ServedFolder::started_slow().await;
    folder.write("a.md", "1");
    folder.wait_text("a.md", "1").await;
    // A file can be read before the scan that found it ends, and the list changes at the end of the scan.
    until("the change of the list", async || {
        folder.bus.stats().await.unwrap().list_changes > 0
    })
    .await;
    let before = folder.bus.stats().await.unwrap();
    fs::remove_file(folder.path("a.md")).unwrap();
    folder.write("a.md", "2");
    folder.wait_text("a.md", "2").await;
    assert_eq!(folder.etag("a.md").await.version, 2);
    assert_eq!(
        folder.bus.stats().await.unwrap().list_changes,
        before.list_changes
    );
}

#[tokio::test]
async fn folder_moves_and_goes_with_its_files() {
    let folder = ServedFolder::started().await;
    folder.write("one/two/three/a.md", "a");
    folder.write("one/b.md", "b");
    folder.wait_text("one/two/three/a.md", "a").await;
    folder.wait_text("one/b.md", "b").await;
    fs::rename(folder.path("one"), folder.path("uno")).unwrap();
    folder.wait_text("uno/two/three/a.md", "a").await;
    folder.wait_text("uno/b.md", "b").await;
    folder.wait_gone("one/two/three/a.md").await;
    folder.wait_gone("one/b.md").await;
    // Watched below its new name as well.
    folder.write("uno/two/three/a.md", "edited");
    folder.wait_text("uno/two/three/a.md", "edited").await;
    fs::remove_dir_all(folder.path("uno")).unwrap();
    folder.wait_gone("uno/two/three/a.md").await;
    folder.wait_gone("uno/b.md").await;
}

#[tokio::test]
async fn resources_folder_may_come_and_go() {
    let mut folder = ServedFolder::new();
    fs::remove_dir(folder.path("")).unwrap();
    folder.start().await;
    for round in ["1", "2"] {
        folder.write("sub/a.md", round);
        folder.wait_text("sub/a.md", round).await;
        folder.write("sub/a.md", format!("{round} edited"));
        folder.wait_text("sub/a.md", &format!("{round} edited")).await;
        fs::remove_dir_all(folder.path("")).unwrap();
        folder.wait_gone("sub/a.md").await;
    }
}

#[tokio::test]
async fn burst_of_writes_ends_with_the_last_content() {
    let folder = ServedFolder::started().await;
    let before = folder.bus.stats().await.unwrap();
    for n in 0..200 {
        folder.write_in_place("a.md", format!("content {n}"));
    }
    folder.wait_text("a.md", "content 199").await;
    let changes = folder.bus.stats().await.unwrap().changes - before.changes;
    assert!((1..=20).contains(&changes), "{changes} changes");
}

#[tokio::test]
async fn hidden_files_are_served_if_configured() {
    let names = [".env", ".git/config", "a.md~", "x.swp"];
    let mut folder = ServedFolder::started().await;
    for name in names {
        folder.write(name, name);
    }
    folder.wait_scan("s1").await;
    folder
        .wait_stats("the sentinel alone", |stats| stats.files == 1)
        .await;
    folder.stop().await;
    folder.config.hidden = true;
    folder.start().await;
    for name in names {
        assert_eq!(folder.text(name).await.as_deref(), Some(name));
    }
    folder.write(".env", "edited");
    folder.wait_text(".env", "edited").await;
}

#[tokio::test]
async fn resource_of_others_is_not_removed() {
    let folder = ServedFolder::started().await;
    let put = Resource::text(uri("put.md"), "by somebody else").unwrap();
    folder.bus.register(put).await.unwrap();
    folder.write("a.md", "1");
    folder.wait_text("a.md", "1").await;
    folder.source().rescan().await;
    fs::remove_dir_all(folder.path("")).unwrap();
    folder.wait_gone("a.md").await;
    assert_eq!(folder.text("put.md").await.as_deref(), Some("by somebody else"));
}

#[tokio::test]
async fn file_without_permission_is_not_served() {
    let folder = ServedFolder::started().await;
    folder.write("a.md", "1");
    folder.wait_text("a.md", "1").await;
    fs::set_permissions(folder.path("a.md"), fs::Permissions::from_mode(0o000)).unwrap();
    // A superuser may read the file all the same, and then it stays.
    if fs::read(folder.path("a.md")).is_err() {
        folder.wait_gone("a.md").await;
    }
    fs::set_permissions(folder.path("a.md"), fs::Permissions::from_mode(0o600)).unwrap();
    folder.wait_scan("s1").await;
    folder.wait_text("a.md", "1").await;
}

#[tokio::test]
async fn thousand_files_are_read_once() {
    let mut folder = ServedFolder::new();
    for n in 0..1_000 {
        folder.write(&format!("{}/{n}.md", n % 10), format!("file {n}"));
    }
    let begun = Instant::now();
    folder.start().await;
    println!("first look at 1,000 files: {:?}", begun.elapsed());
    let stats = folder.stats();
    assert_eq!((stats.files, stats.reads), (1_000, 1_000));
    assert_eq!(folder.bus.stats().await.unwrap().resources, 1_000);
    let begun = Instant::now();
    folder.source().rescan().await;
    println!("second look, all of them fresh: {:?}", begun.elapsed());
    assert_eq!(folder.bus.stats().await.unwrap().changes, 1_000);
}

#[tokio::test]
async fn stopped_source_publishes_nothing() {
    let mut folder = ServedFolder::started().await;
    folder.write("a.md", "1");
    folder.wait_text("a.md", "1").await;
    folder.stop().await;
    folder.write("a.md", "2");
    // Another source that finds a change shows that enough time has passed.
    let other = ServedFolder::started().await;
    other.wait_scan("s1").await;
    assert_eq!(folder.text("a.md").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn start_without_a_folder_names_the_remedy() {
    let folder = ServedFolder::new();
    let started = async |dir: Option<PathBuf>| {
        let config = WorkspaceConfig {
            dir,
            ..folder.config.clone()
        };
        let bus = folder.bus.clone();
        Workspace::start(bus, &config, &folder.tools_config, &folder.register_config)
            .await
            .unwrap_err()
            .to_string()
    };
    let absent = folder.at("absent");
    let text = started(Some(absent.clone())).await;
    assert_eq!(
        text,
        format!(
            "folder {} does not exist; create it or set workspace.dir to another",
            absent.display()
        )
    );
    let file = folder.at("file");
    fs::write(&file, "").unwrap();
    assert!(started(Some(file)).await.contains("is not a folder"));
    assert!(started(None).await.contains("set workspace.dir"));
}

/// An operation of a writer.
#[derive(Debug, Clone)]
enum Step {
    Write(usize, u8),
    Remove(usize),
    Rename(usize, usize),
    Rescan,
}

const NAMES: [&str; 5] = ["a", "d/a", "d/b", "d/e/a", "f/a"];

fn any_step() -> impl Strategy<Value = Step> {
    let names = 0..NAMES.len();
    prop_oneof![
        (names.clone(), any::<u8>()).prop_map(|(name, content)| Step::Write(name, content % 4)),
        names.clone().prop_map(Step::Remove),
        (names.clone(), names).prop_map(|(from, to)| Step::Rename(from, to)),
        Just(Step::Rescan),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bus_ends_with_the_content_of_the_folder(steps in proptest::collection::vec(any_step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = ServedFolder::started().await;
            for step in steps {
                match step {
                    Step::Write(name, content) => folder.write_in_place(NAMES[name], content.to_string()),
                    // The file need not be there.
                    Step::Remove(name) => {
                        fs::remove_file(folder.path(NAMES[name])).ok();
                    }
                    Step::Rename(from, to) => {
                        fs::rename(folder.path(NAMES[from]), folder.path(NAMES[to])).ok();
                    }
                    Step::Rescan => folder.source().rescan().await,
                }
            }
            for name in NAMES {
                let expected = fs::read_to_string(folder.path(name)).ok();
                until(name, async || folder.text(name).await == expected).await;
            }
        });
    }
}

#[tokio::test]
async fn burst_of_files_changes_the_list_once() {
    let folder = ServedFolder::started_slow().await;
    let before = folder.list_changes().await;
    // More files than one batch or one read takes, there at one instant.
    fs::create_dir(folder.at("new")).unwrap();
    for n in 0..2_000 {
        fs::write(folder.at(&format!("new/{n}.md")), n.to_string()).unwrap();
    }
    fs::rename(folder.at("new"), folder.path("many")).unwrap();
    folder.wait_stats("all files", |stats| stats.files == 2_000).await;
    folder.wait_list_changes(before + 1).await;
    fs::rename(folder.path("many"), folder.at("gone")).unwrap();
    folder.wait_stats("no files", |stats| stats.files == 0).await;
    folder.wait_list_changes(before + 2).await;
}
