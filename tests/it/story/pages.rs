//! The pages, one test each; `workspace.md` is tested a little beyond its own commands.

use std::fs;

use super::{DEADLINE, Story};

#[tokio::test]
async fn embedding_page_works_as_printed() {
    Story::new(include_str!("../../../docs/embed.md")).follow().await;
}

#[tokio::test]
async fn watching_page_works_as_printed() {
    Story::new(include_str!("../../../docs/watch.md")).follow().await;
}

#[tokio::test]
async fn events_page_works_as_printed() {
    Story::new(include_str!("../../../docs/events.md")).follow().await;
}

#[tokio::test]
async fn wrapping_page_works_as_printed() {
    Story::new(include_str!("../../../docs/wrap.md")).follow().await;
}

#[tokio::test]
async fn http_api_page_explains_missing_update() {
    let page = include_str!("../../../docs/http-api.md");
    let (_, rest) = page.split_once("## Slow subscribers").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    Story::new(section).follow().await;
}

#[tokio::test]
async fn folders_page_works_as_printed() {
    let mut story = Story::new(include_str!("../../../docs/workspace.md"));
    for _ in 0..2 {
        assert!(story.step().await);
    }
    let mut calls = String::new();
    if let Some(super::Block::Shell(script)) = story.blocks.next() {
        calls = story.run(script).await;
    }
    assert!(
        calls.contains(r#""structuredContent":{"file":"hello.md","words":1}"#),
        "{calls}"
    );
    let filled = r#"Explain the word \"etag\" in three sentences.\nWrite for this reader: a child"#;
    assert!(calls.contains(filled), "{calls}");

    // Tools and prompts that the page adds while the service runs.
    assert!(story.step().await);
    until(&mut story, "mcp tools/call weekday '{}'", "day").await;
    assert!(story.step().await);
    until(&mut story, "mcp tools/call disk_free '{}'", "Filesystem").await;
    let summary = story.run("mcp prompts/get summary '{}'").await;
    assert!(summary.contains("Summarise host://load."), "{summary}");
    assert!(!story.step().await, "the page has further blocks");

    // Beyond the page: arguments against the schema, and a file that was added.
    let refused = story
        .run(r#"mcp tools/call count_words '{"file":"../secret"}'"#)
        .await;
    assert!(
        refused.contains(r#""isError":true"#) && refused.contains("/file: "),
        "{refused}"
    );
    fs::write(story.dir.path().join("notes/resources/two.md"), "two words").unwrap();
    let counted = story
        .run(r#"mcp tools/call count_words '{"file":"two.md"}'"#)
        .await;
    assert!(counted.contains(r#""words":2"#), "{counted}");
}

/// Waits until `command` prints `expected`.
async fn until(story: &mut Story, command: &str, expected: &str) {
    let printed = tokio::time::timeout(DEADLINE, async {
        while !story.run(command).await.contains(expected) {}
    });
    assert!(printed.await.is_ok(), "{command} never printed {expected}");
}
