//! Files of `prompts` as prompts on the bus.

use super::*;
use serde_json::{Value, json};
use tidings_actors::{Block, PromptMessage};

const HEAD: &str = "---\ndescription: Reviews a page\narguments:\n  - name: page\n    required: true\n---\n";

async fn render(fixture: &Fixture, name: &str, arguments: Value) -> Result<String, String> {
    let prompt = fixture.bus.prompt(name).await.unwrap().unwrap();
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
async fn files_become_prompts_and_follow_their_edits() {
    let mut fixture = Fixture::new();
    fixture.put("prompts/review.md", &format!("{HEAD}Review {{{{page}}}}."));
    fixture.put("prompts/notes.txt", "no prompt");
    fixture.put("prompts/drafts/later.md", "nobody's");
    fixture.start().await;
    assert_eq!(fixture.prompts().await, ["review"]);
    assert_eq!(
        render(&fixture, "review", json!({ "page": "/a" })).await.unwrap(),
        "Review /a."
    );
    let missing = render(&fixture, "review", json!({})).await.unwrap_err();
    assert_eq!(missing, "prompt review needs the argument page");
    let before = fixture.list_changes().await;
    // The body is no part of the list.
    fixture.put("prompts/review.md", &format!("{HEAD}Look at {{{{page}}}}."));
    let edited = async || render(&fixture, "review", json!({ "page": "/a" })).await.unwrap() == "Look at /a.";
    fixture.wait("the edit", edited).await;
    fixture.wait_list_changes(before).await;
    fixture.put("prompts/review.md", "No head.");
    fixture
        .wait("a change of the list", async || {
            fixture.list_changes().await == before + 1
        })
        .await;
    fs::remove_file(fixture.dir.path().join("prompts/review.md")).unwrap();
    fixture.wait_prompts(&[]).await;
    fixture.wait_list_changes(before + 2).await;
}

#[tokio::test]
async fn an_edit_is_one_list_change_however_many_prompts_it_changes() {
    let fixture = Fixture::patient().await;
    let before = fixture.list_changes().await;
    for name in ["a", "b", "c"] {
        fixture.put(&format!("prompts/{name}.md"), name);
    }
    fixture.wait_prompts(&["a", "b", "c"]).await;
    fixture.wait_list_changes(before + 1).await;
    fs::remove_dir_all(fixture.dir.path().join("prompts")).unwrap();
    fixture.wait_prompts(&[]).await;
    fixture.wait_list_changes(before + 2).await;
}

#[tokio::test]
async fn what_is_odd_is_served_and_reported_and_what_is_broken_stays_as_it_was() {
    let fixture = Fixture::started().await;
    fixture.put("prompts/odd.md", "Hello {{you}}.");
    fixture.put("prompts/a b.md", "bad name");
    fixture.wait_prompts(&["odd"]).await;
    assert_eq!(
        render(&fixture, "odd", json!({ "you": "x" })).await.unwrap(),
        "Hello {{you}}."
    );
    assert!(fixture.wait_problem("prompts/odd.md").await.contains("{{you}}"));
    assert!(
        fixture
            .wait_problem("prompts/a b.md")
            .await
            .contains("invalid name")
    );
    fixture.put("prompts/odd.md", "---\ntitle: half");
    let broken = |stats: &WorkspaceStats| stats.problems["prompts/odd.md"].contains("has no end");
    fixture.wait_stats("the broken one", broken).await;
    assert_eq!(
        render(&fixture, "odd", json!({})).await.unwrap(),
        "Hello {{you}}."
    );
    fixture.put("prompts/odd.md", "fine");
    fixture
        .wait_stats("the end of it", |stats| stats.problems.len() == 1)
        .await;
    assert_eq!(render(&fixture, "odd", json!({})).await.unwrap(), "fine");
}

#[tokio::test]
async fn a_prompt_of_somebody_else_is_neither_replaced_nor_removed() {
    let fixture = Fixture::started().await;
    let others = tidings_actors::Prompt::new("theirs", |_| async { Ok(vec![PromptMessage::user("theirs")]) });
    fixture.bus.add_prompt(others).await.unwrap();
    fixture.put("prompts/theirs.md", "ours");
    fixture.put("prompts/ours.md", "ours");
    fixture.wait_prompts(&["ours", "theirs"]).await;
    assert!(fixture.wait_problem("prompt theirs").await.contains("rename it"));
    fs::remove_dir_all(fixture.dir.path().join("prompts")).unwrap();
    fixture.wait_prompts(&["theirs"]).await;
    assert_eq!(render(&fixture, "theirs", json!({})).await.unwrap(), "theirs");
}
