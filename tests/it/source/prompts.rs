//! Files of `prompts` as prompts on the bus.

use std::fs;

use serde_json::{Value, json};
use tidings::{Block, Prompt, PromptMessage};

use super::folder::ServedFolder;
use crate::support::until;

const HEAD: &str = "---\ndescription: Reviews a page\narguments:\n  - name: page\n    required: true\n---\n";

async fn render(folder: &ServedFolder, name: &str, arguments: Value) -> Result<String, String> {
    let prompt = folder.bus.prompt(name).await.unwrap().unwrap();
    let rendered = prompt.render(arguments.as_object().unwrap().clone()).await;
    let messages = rendered.map_err(|error| error.to_string())?;
    let [
        PromptMessage {
            block: Block::Text(text),
            ..
        },
    ] = messages.as_slice()
    else {
        panic!("{messages:?}")
    };
    Ok(text.clone())
}

#[tokio::test]
async fn prompts_follow_their_files() {
    let mut folder = ServedFolder::new();
    folder.put("prompts/review.md", &format!("{HEAD}Review {{{{page}}}}."));
    folder.put("prompts/notes.txt", "no prompt");
    folder.put("prompts/drafts/later.md", "in a folder of its own");
    folder.start().await;
    assert_eq!(folder.prompts().await, ["review"]);
    assert_eq!(
        render(&folder, "review", json!({ "page": "/a" })).await.unwrap(),
        "Review /a."
    );
    let missing = render(&folder, "review", json!({})).await.unwrap_err();
    assert_eq!(missing, "prompt review needs the argument page");
    let before = folder.list_changes().await;
    // The body is not part of the list.
    folder.put("prompts/review.md", &format!("{HEAD}Look at {{{{page}}}}."));
    until("the edit", async || {
        render(&folder, "review", json!({ "page": "/a" })).await.unwrap() == "Look at /a."
    })
    .await;
    folder.wait_list_changes(before).await;
    folder.put("prompts/review.md", "No head.");
    until("a change of the list", async || {
        folder.list_changes().await == before + 1
    })
    .await;
    fs::remove_file(folder.at("prompts/review.md")).unwrap();
    folder.wait_prompts(&[]).await;
    folder.wait_list_changes(before + 2).await;
}

#[tokio::test]
async fn several_prompts_at_once_are_one_list_change() {
    let folder = ServedFolder::started_slow().await;
    let before = folder.list_changes().await;
    for name in ["a", "b", "c"] {
        folder.put(&format!("prompts/{name}.md"), name);
    }
    folder.wait_prompts(&["a", "b", "c"]).await;
    folder.wait_list_changes(before + 1).await;
    fs::remove_dir_all(folder.at("prompts")).unwrap();
    folder.wait_prompts(&[]).await;
    folder.wait_list_changes(before + 2).await;
}

#[tokio::test]
async fn broken_prompt_keeps_its_last_version() {
    let folder = ServedFolder::started().await;
    folder.put("prompts/odd.md", "Hello {{you}}.");
    folder.put("prompts/a b.md", "bad name");
    folder.wait_prompts(&["odd"]).await;
    assert_eq!(
        render(&folder, "odd", json!({ "you": "x" })).await.unwrap(),
        "Hello {{you}}."
    );
    assert!(folder.wait_problem("prompts/odd.md").await.contains("{{you}}"));
    assert!(
        folder
            .wait_problem("prompts/a b.md")
            .await
            .contains("invalid name")
    );
    folder.put("prompts/odd.md", "---\ntitle: half");
    folder
        .wait_stats("the broken file", |stats| {
            stats.problems["prompts/odd.md"].contains("has no end")
        })
        .await;
    assert_eq!(render(&folder, "odd", json!({})).await.unwrap(), "Hello {{you}}.");
    folder.put("prompts/odd.md", "fine");
    folder
        .wait_stats("the end of it", |stats| stats.problems.len() == 1)
        .await;
    assert_eq!(render(&folder, "odd", json!({})).await.unwrap(), "fine");
}

#[tokio::test]
async fn prompt_of_others_is_not_replaced() {
    let folder = ServedFolder::started().await;
    let others = Prompt::new("theirs", |_| async { Ok(vec![PromptMessage::user("theirs")]) });
    folder.bus.add_prompt(others).await.unwrap();
    folder.put("prompts/theirs.md", "ours");
    folder.put("prompts/ours.md", "ours");
    folder.wait_prompts(&["ours", "theirs"]).await;
    assert!(folder.wait_problem("prompt theirs").await.contains("rename it"));
    fs::remove_dir_all(folder.at("prompts")).unwrap();
    folder.wait_prompts(&["theirs"]).await;
    assert_eq!(render(&folder, "theirs", json!({})).await.unwrap(), "theirs");
}
