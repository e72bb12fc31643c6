//! Several servers behind one gateway: their items under prefixes, and each one's failures its own.

use std::io::Write;
use std::time::{Duration, Instant};

use rmcp::ServiceError;
use rmcp::model::{PaginatedRequestParams, ProtocolVersion};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::client::Client;
use super::workshop::{NOTE, Workshop};
use super::{Gateway, REVISIONS, binary, within};

/// A gateway with this configuration.
pub(super) async fn gateway(config: &str) -> (Gateway, NamedTempFile) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(config.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (Gateway::start(&["--config", &path]).await, file)
}

/// The names of the tools that begin with a prefix.
async fn tools_of(client: &Client, prefix: &str) -> Vec<String> {
    let tools = client.running.list_all_tools().await.unwrap();
    let names = tools.into_iter().map(|tool| tool.name.into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

async fn uris(client: &Client) -> Vec<String> {
    let resources = client.running.list_all_resources().await.unwrap();
    resources.into_iter().map(|resource| resource.uri).collect()
}

/// The states that `/v1/upstreams` tells, by name.
async fn states(gateway: &Gateway) -> Vec<(String, String)> {
    let url = gateway.url.replace("/mcp", "/v1/upstreams");
    let answer: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    let items = answer["items"].as_array().unwrap();
    let text = |item: &Value, key: &str| item[key].as_str().unwrap().to_owned();
    items
        .iter()
        .map(|item| (text(item, "name"), text(item, "state")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_one_under_their_prefixes() {
    let old = Workshop::new(ProtocolVersion::V_2025_11_25);
    let new = Workshop::new(ProtocolVersion::V_2026_07_28);
    let (old_url, _old_serving) = old.serve().await;
    let (new_url, _new_serving) = new.serve().await;
    let (gateway, _config) = gateway(&format!(
        "[gateway.upstream.old]\nurl = '{old_url}'\n[gateway.upstream.new]\nurl = '{new_url}'\npoll = '1h'\n"
    ))
    .await;
    for revision in [&REVISIONS[3], &REVISIONS[4]] {
        let client = Client::connect(&gateway.url, "ann", revision).await;
        let instructions = client.running.peer_info().unwrap().instructions.clone().unwrap();
        assert_eq!(instructions, "# old\n\nwork\n\n# new\n\nwork");
        assert_eq!(
            uris(&client).await,
            [format!("old+{NOTE}"), format!("new+{NOTE}")]
        );
        assert_eq!(tools_of(&client, "old__").await.len(), 6);
        assert_eq!(tools_of(&client, "new__").await.len(), 6);
        for tool in ["old__sample", "new__elicit"] {
            let answer = client.call(tool).await.unwrap();
            assert!(answer.contains("I am ann"), "{tool}: {answer}");
        }
        for unknown in ["hello", "old__none", "gone__hello"] {
            let ServiceError::McpError(refusal) = client.call(unknown).await.unwrap_err() else {
                panic!("{unknown} has no answer");
            };
            assert_eq!(
                (refusal.code.0, &*refusal.message),
                (-32602, &*format!("Unknown tool: {unknown}"))
            );
        }
        let ServiceError::McpError(refusal) = client.read(NOTE).await.unwrap_err() else {
            panic!("no answer for {NOTE}");
        };
        assert!(refusal.message.contains("Resource not found"), "{refusal}");
        // No server has prompts, so the gateway alone answers.
        let page = PaginatedRequestParams::default().with_cursor(Some("made-up".to_owned()));
        let refusal = client
            .running
            .list_prompts(Some(page))
            .await
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("invalid cursor"), "{refusal}");
        client.watch_all(&uris(&client).await).await;
        let text = format!("for {revision}");
        new.change(&text, 1).await;
        let changed = format!("new+{NOTE}");
        client.until(|told| told.versions.contains_key(&changed)).await;
        assert_eq!(
            client.told().versions.len(),
            1,
            "the other server's note has not changed"
        );
        assert_eq!(client.read(&changed).await.unwrap(), text);
        assert_ne!(client.read(&format!("old+{NOTE}")).await.unwrap(), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_down_leaves_the_others_alone() {
    let here = Workshop::new(ProtocolVersion::V_2025_11_25);
    let (here_url, _serving) = here.serve().await;
    let (gateway, _config) = gateway(&format!(
        "[gateway.upstream.gone]\nurl = 'http://127.0.0.1:1/mcp'\n\
         [gateway.upstream.here]\nurl = '{here_url}'\n\
         [gateway.upstream.brief]\ncommand = ['{}', 'serve', '--stdio', '/dev/null/none']\n",
        binary()
    ))
    .await;
    let client = Client::connect(&gateway.url, "ann", &ProtocolVersion::V_2025_11_25).await;
    let began = Instant::now();
    assert_eq!(uris(&client).await, [format!("here+{NOTE}")]);
    assert_eq!(client.call("here__hello").await.unwrap(), "hello");
    let ServiceError::McpError(refusal) = client.call("gone__hello").await.unwrap_err() else {
        panic!("no answer");
    };
    assert!(
        refusal.message.starts_with("Unknown tool") || refusal.data.is_some(),
        "{refusal}"
    );
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let states = states(&gateway).await;
    let expected = [("gone", "down"), ("here", "up"), ("brief", "down")];
    assert_eq!(
        states,
        expected.map(|(name, state)| (name.to_owned(), state.to_owned()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_a_lost_server_are_kept_for_a_while() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("resources")).unwrap();
    std::fs::write(folder.path().join("resources/a.txt"), "one").unwrap();
    let here = Workshop::new(ProtocolVersion::V_2025_11_25);
    let (here_url, _serving) = here.serve().await;
    let marker = folder.path().join("may-start");
    std::fs::write(&marker, "").unwrap();
    // It starts as long as the file is there.
    let script = format!(
        "test -e {} && exec {} serve {} --stdio",
        marker.display(),
        binary(),
        folder.path().display()
    );
    let (gateway, _config) = gateway(&format!(
        "[gateway.upstream.here]\nurl = '{here_url}'\n\
         [gateway.upstream.lost]\ncommand = ['sh', '-c', '{script}']\nstale_lists = '2s'\n"
    ))
    .await;
    let client = Client::connect(&gateway.url, "ann", &ProtocolVersion::V_2025_11_25).await;
    let before = uris(&client).await;
    assert_eq!(before.len(), 2, "{before:?}");
    std::fs::remove_file(&marker).unwrap();
    super::kill(gateway.children()[0]);
    assert_eq!(uris(&client).await, before, "kept at first");
    within("the end of the items", async {
        while uris(&client).await.len() != 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    std::fs::write(&marker, "").unwrap();
    within("the return of the items", async {
        while uris(&client).await != before {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_names_of_two_servers_are_refused() {
    let workshop = Workshop::new(ProtocolVersion::V_2025_11_25);
    let (url, _serving) = workshop.serve().await;
    let mut file = NamedTempFile::new().unwrap();
    let config = format!(
        "[gateway.upstream.one]\nurl = '{url}'\nprefix = false\n\
         [gateway.upstream.two]\nurl = '{url}'\nprefix = false\n"
    );
    file.write_all(config.as_bytes()).unwrap();
    let refused = tokio::process::Command::new(binary())
        .args([
            "gateway",
            "--port",
            "0",
            "--config",
            file.path().to_str().unwrap(),
        ])
        .output();
    let refused = within("the refusal", refused).await.unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(78), "{text}");
    assert!(
        text.contains("gateway.upstream.one and gateway.upstream.two"),
        "{text}"
    );
}
