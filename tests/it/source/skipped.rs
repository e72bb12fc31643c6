//! Files that are not served: links, pipes, and files beyond a limit.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use tidings::source::workspace::SkipReason;
use tidings::{Bus, Etag, Limits};

use super::folder::ServedFolder;

#[tokio::test]
async fn link_out_of_the_folder_is_not_served() {
    let mut folder = ServedFolder::new();
    fs::write(folder.at("secret.md"), "secret").unwrap();
    fs::create_dir(folder.at("outside")).unwrap();
    fs::write(folder.at("outside/secret.md"), "secret").unwrap();
    symlink("../secret.md", folder.path("first.md")).unwrap();
    folder.start().await;
    symlink(folder.at("secret.md"), folder.path("second.md")).unwrap();
    symlink(folder.at("outside"), folder.path("dir")).unwrap();
    folder.wait_scan("s1").await;
    folder.wait_skipped(&[(SkipReason::LeavesFolder, 3)]).await;
    // A file that is replaced by such a link is removed.
    folder.write("a.md", "a");
    folder.wait_text("a.md", "a").await;
    fs::remove_file(folder.path("a.md")).unwrap();
    symlink("../secret.md", folder.path("a.md")).unwrap();
    folder.wait_gone("a.md").await;
    for name in ["first.md", "second.md", "a.md", "dir/secret.md"] {
        assert_eq!(folder.text(name).await, None, "{name}");
    }
}

#[tokio::test]
async fn resources_linked_elsewhere_are_not_served() {
    let mut folder = ServedFolder::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.md"), "secret").unwrap();
    fs::remove_dir(folder.path("")).unwrap();
    symlink(outside.path(), folder.at("resources")).unwrap();
    folder.start().await;
    assert_eq!(folder.stats().skipped[&SkipReason::LeavesFolder], 1);
    assert_eq!(folder.stats().files, 0);
}

#[tokio::test]
async fn resources_linked_within_the_folder_are_served() {
    let mut folder = ServedFolder::new();
    fs::rename(folder.path(""), folder.at("data")).unwrap();
    symlink("data", folder.at("resources")).unwrap();
    folder.write("sub/a.md", "1");
    folder.start().await;
    assert_eq!(folder.text("sub/a.md").await.as_deref(), Some("1"));
    folder.write("sub/a.md", "2");
    folder.wait_text("sub/a.md", "2").await;
    folder.write("b.md", "b");
    folder.wait_text("b.md", "b").await;
}

#[tokio::test]
async fn link_to_a_file_inside_is_followed() {
    let folder = ServedFolder::started().await;
    symlink("real/a.md", folder.path("link.md")).unwrap();
    symlink(".", folder.path("loop")).unwrap();
    folder
        .wait_skipped(&[(SkipReason::DanglingLink, 1), (SkipReason::FolderLink, 1)])
        .await;
    folder.write("real/a.md", "1");
    folder.wait_text("link.md", "1").await;
    folder.write("real/a.md", "2");
    folder.wait_text("link.md", "2").await;
    folder.wait_skipped(&[(SkipReason::FolderLink, 1)]).await;
    fs::remove_file(folder.path("real/a.md")).unwrap();
    folder.wait_gone("link.md").await;
}

#[tokio::test]
async fn pipe_is_never_opened() {
    let folder = ServedFolder::started().await;
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path("pipe.md"))
        .status();
    assert!(made.unwrap().success());
    folder.wait_scan("s1").await;
    folder.wait_skipped(&[(SkipReason::NotAFile, 1)]).await;
    assert_eq!(folder.etag("pipe.md").await, Etag::UNKNOWN);
}

#[tokio::test]
async fn file_too_large_is_skipped_until_it_shrinks() {
    let mut folder = ServedFolder::new();
    folder.config.file_bytes_max = 1024;
    folder.start().await;
    folder.write("a.md", "x".repeat(1025));
    folder.wait_skipped(&[(SkipReason::TooLarge, 1)]).await;
    assert_eq!(folder.etag("a.md").await, Etag::UNKNOWN);
    let fits = "x".repeat(1024);
    folder.write("a.md", &fits);
    folder.wait_text("a.md", &fits).await;
    folder.wait_skipped(&[]).await;
    folder.write("a.md", "x".repeat(2000));
    folder.wait_gone("a.md").await;
}

#[tokio::test]
async fn files_beyond_the_limit_wait_for_room() {
    let mut folder = ServedFolder::new();
    folder.config.files_max = 2;
    for name in ["a", "b", "c", "d"] {
        folder.write(name, name);
    }
    folder.start().await;
    assert_eq!((folder.stats().files, folder.stats().over_limit), (2, 2));
    assert_eq!(folder.etag("c").await, Etag::UNKNOWN);
    fs::remove_file(folder.path("a")).unwrap();
    folder.wait_text("c", "c").await;
    fs::remove_file(folder.path("d")).unwrap();
    fs::remove_file(folder.path("b")).unwrap();
    folder.wait_stats("room", |stats| stats.over_limit == 0).await;
}

#[tokio::test]
async fn file_refused_by_the_bus_is_reported() {
    let mut folder = ServedFolder::new();
    let mut limits = Limits::default();
    limits.body_bytes_max = 10;
    folder.bus = Bus::builder().limits(limits).start().unwrap();
    folder.write("a.md", "short");
    folder.start().await;
    folder.write("a.md", "longer than ten bytes");
    folder.wait_gone("a.md").await;
    folder.wait_skipped(&[(SkipReason::Refused, 1)]).await;
    folder.write("a.md", "short 2");
    folder.wait_text("a.md", "short 2").await;
    folder.wait_skipped(&[]).await;
}

#[tokio::test]
async fn file_name_not_in_utf8_is_skipped() {
    let folder = ServedFolder::started().await;
    let odd = OsStr::from_bytes(b"caf\xe9.md");
    fs::write(folder.path("").join(odd), "x").unwrap();
    folder.wait_skipped(&[(SkipReason::NotUtf8, 1)]).await;
    fs::rename(folder.path("").join(odd), folder.path("café.md")).unwrap();
    folder.wait_text("caf%C3%A9.md", "x").await;
    folder.wait_skipped(&[]).await;
}
