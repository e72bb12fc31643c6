//! Saved contexts: the server and the credentials of commands that name neither.

use std::os::unix::fs::PermissionsExt;

use super::User;
use crate::client::guarded::Guarded;

const SECRET: &str = "s3cr3t-of-a-context";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_brings_address_and_token() {
    let server = Guarded::start(&[&format!("Bearer {SECRET}")]).await;
    let other = Guarded::start(&[]).await;
    let user = User::new();
    let url = server.url("/mcp");
    let save = [
        "context",
        "save",
        "prod",
        &url,
        "--token-stdin",
        "--use",
        "-H",
        "X-Key: k3y",
    ];
    let saved = user.run_with(&save, &format!("{SECRET}\n")).await.good();
    assert_eq!(saved, "");
    let file = user.home.path().join("tidings/contexts.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    user.run_with(&["put", "demo://a"], "one").await.good();
    let check = ["check", "--quiet-time", "0.1", "--timeout", "20s"];
    let checked = user.run(&check).await;
    assert!(checked.out.contains("speaks"), "{checked:?}");
    for request in server.gate.seen() {
        assert_eq!(
            request.headers["authorization"],
            format!("Bearer {SECRET}"),
            "{}",
            request.line
        );
        assert_eq!(request.headers["x-key"], "k3y");
    }

    // An address that is named gets nothing of the context.
    let address = other.url("");
    let denied = user.run_with(&["put", "demo://a", "--url", &address], "x").await;
    denied.failed(77);
    let seen = other.gate.seen();
    assert!(
        !seen.is_empty()
            && seen
                .iter()
                .all(|request| !request.headers.contains_key("authorization"))
    );

    let listed = user.run(&["context", "ls"]).await.good();
    let shown = user.run(&["context", "show"]).await.good();
    let lines = user.run(&["context", "ls", "--json"]).await.good();
    assert!(
        listed.contains("*") && listed.contains("token: saved"),
        "{listed}"
    );
    assert!(shown.contains("header: X-Key: ***"), "{shown}");
    for text in [&listed, &shown, &lines] {
        assert!(!text.contains(SECRET) && !text.contains("k3y"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_are_chosen_by_option_variable_and_use() {
    let server = Guarded::start(&[&format!("Bearer {SECRET}")]).await;
    let user = User::new();
    let url = server.url("");
    let header = format!("Authorization: Bearer {SECRET}");
    user.run(&["context", "save", "good", &url, "-H", &header])
        .await
        .good();
    user.run(&["context", "save", "bad", "127.0.0.1:1"]).await.good();
    user.run_with(&["put", "demo://a", "--context", "good"], "x")
        .await
        .good();
    user.run(&["context", "use", "bad"]).await.good();
    user.run_with(&["put", "demo://a"], "x").await.failed(69);
    let put = |variable: (&str, &str)| {
        let mut command = user.command(&["put", "demo://a"]);
        command.env(variable.0, variable.1);
        async move { command.output().await.unwrap().status.code() }
    };
    assert_eq!(put(("TIDINGS_CONTEXT", "good")).await, Some(0));
    // A variable with an address has no credentials of a context.
    assert_eq!(put(("TIDINGS_URL", &url)).await, Some(77));
    let error = user.run(&["ls", "--context", "gone"]).await.failed(78);
    assert!(
        error.contains("there is no saved context \"gone\": saved are bad, good"),
        "{error}"
    );
    user.run(&["context", "rm", "bad"]).await.good();
    let error = user.run(&["context", "show"]).await.failed(2);
    assert!(error.contains("no context is in use"), "{error}");
    user.run(&["context", "save", "x", "http://a:b@h"])
        .await
        .failed(2);
    user.run(&["context", "save", "x", "9000", "--token-file", "/nowhere"])
        .await
        .good();
}
