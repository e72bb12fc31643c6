//! Mistakes that people make: each message names the input and the remedy.

use std::process::Stdio;

use super::User;
use crate::mcp::http::within;
use crate::mcp::server::{Server, service_folder};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::test]
async fn forgotten_path_of_mcp_is_found() {
    let server = Server::start().await;
    server.put("demo://a", "one").await;
    let user = User::new();
    for address in [
        format!("http://{}", server.address),
        server.address.port().to_string(),
    ] {
        let mut child = user.command(&["watch", &address, "demo://a"]).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within("the current version", out.next_line())
            .await
            .unwrap()
            .unwrap();
        assert!(line.ends_with("current"), "{address}: {line}");
        child.kill().await.unwrap();
    }
    let address = format!("http://{}/foo", server.address);
    let error = user.run(&["watch", &address, "demo://a"]).await.failed(1);
    let hint = format!("did you mean \"http://{}/mcp\"?", server.address);
    assert!(
        error.contains("nothing speaks MCP at") && error.contains(&hint),
        "{error}"
    );
}

#[tokio::test]
async fn bench_asks_once_before_it_loads() {
    let server = Server::start().await;
    let url = format!("http://{}/", server.address);
    let error = User::new().run(&["bench", &url]).await.failed(1);
    let expected = format!("did you mean \"{url}mcp\"?");
    assert!(
        error.contains("nothing speaks MCP at") && error.contains(&expected),
        "{error}"
    );
}

#[tokio::test]
async fn wrong_service_is_named_with_the_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
    let error = User::new()
        .run(&["put", "demo://a", "--url", &url])
        .await
        .failed(1);
    assert!(
        error.contains(&format!(
            "{url}/v1/resources/demo%3A%2F%2Fa answered 404 Not Found; is that"
        )),
        "{error}"
    );
}

#[tokio::test]
async fn addresses_that_cannot_be_used_name_the_remedy() {
    let user = User::new();
    for (arguments, expected) in [
        (
            &["watch", "http://a b", "demo://a"][..],
            "expected an address such as",
        ),
        (&["ls", "--url", "ftp://h"], "starts with http://"),
        (&["check", "ftp://h"], "starts with http://"),
        (
            &["serve", "--listen", "nowhere"],
            "write an address and a port, such as 127.0.0.1:8808",
        ),
        (&["serve", "Cargo.toml"], "did you mean --config Cargo.toml?"),
    ] {
        let error = user.run(arguments).await.failed(2);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn taken_port_names_the_remedy() {
    let server = Server::start().await;
    let listen = server.address.to_string();
    let error = User::new().run(&["serve", "--listen", &listen]).await.failed(1);
    assert!(
        error.contains(&format!("cannot listen on {listen}: Address already in use"))
            && error.contains("choose another port, or 0 for any free one"),
        "{error}"
    );
}

#[tokio::test]
async fn check_without_path_names_the_endpoint() {
    let server = Server::start().await;
    let address = format!("http://{}", server.address);
    let error = User::new().run(&["check", &address]).await.failed(1);
    assert!(
        error.contains(&format!("did you mean \"{address}/mcp\"?")),
        "{error}"
    );
}

#[tokio::test]
async fn configuration_is_checked_with_all_its_files() {
    let folder = service_folder(
        "[workspace]\ndir = 'gone'\n[[webhook]]\nname = 'a'\nurl = 'http://127.0.0.1:1/'\n\
         allow_private = true\nsecret_file = '/nowhere/secret'\n",
    );
    let file = folder.path().join("tidings.toml");
    let file = file.to_str().unwrap();
    let user = User::new();
    let error = user
        .run(&["serve", "--config", file, "--check-config"])
        .await
        .failed(78);
    assert!(
        error.contains("webhook/a cannot be used") && error.contains("there is no folder"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 2, "{error}");
    let error = user.run(&["serve", "--config", file, "-p", "0"]).await.failed(78);
    assert!(error.contains("/nowhere/secret"), "{error}");
    let good = user.run(&["serve", "--check-config"]).await.good();
    assert_eq!(good, "the configuration is good\n");
    std::fs::write(file, "[htpp]\nlisten = 1\n[session]\nmax = 0\n").unwrap();
    let error = user
        .run(&["serve", "--config", file, "--check-config"])
        .await
        .failed(78);
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[tokio::test]
async fn check_of_a_configuration_names_every_mistake() {
    let folder = service_folder("");
    let file = folder.path().join("tidings.toml");
    let named = file.to_str().unwrap();
    let user = User::new();
    let check = ["serve", "--config", named, "--check-config"];
    let issuer = "auth.resource = 'https://tidings.example/mcp'\n\
                  [[auth.issuer]]\nurl = 'https://issuer.example'\n";
    std::fs::write(&file, issuer).unwrap();
    assert_eq!(user.run(&check).await.good(), "the configuration is good\n");
    let mistakes = "[log]\nlevel = 'tidings=loud'\n[audit]\nfile = '/nonexistent/audit'\n\
                    [store]\ndir = '/dev/null/store'\n\
                    [tls]\ncertificate = '/nonexistent/a'\nkey = '/nonexistent/b'\n\
                    [[auth.token]]\nname = 'a'\nfile = '/nonexistent/c'\n\
                    [[auth.token]]\nname = 'b'\nfile = '/nonexistent/d'\n\
                    [[auth.rule]]\nmay = ['read']\n[[auth.rule]]\nmay = ['list']\n\
                    [[journal]]\nname = 'j'\nfile = '/nonexistent/e/j'\n";
    std::fs::write(&file, mistakes).unwrap();
    let error = user.run(&check).await.failed(78);
    assert_eq!(error.lines().count(), 10, "{error}");
    let disagreements = "auth.resource = 'https://tidings.example/mcp'\n\
                         [[auth.certificate]]\nname = 'a'\n\
                         [[auth.issuer]]\nurl = 'http://issuer.example'\n\
                         [[auth.issuer]]\nurl = 'https://a.example'\njwks = 'http://a.example/keys'\n\
                         [[auth.issuer]]\nurl = 'https://a.example'\n";
    std::fs::write(&file, disagreements).unwrap();
    let error = user.run(&check).await.failed(78);
    assert_eq!(error.lines().count(), 4, "{error}");
}

#[tokio::test]
async fn cause_of_a_failed_start_is_told_once() {
    let error = User::new()
        .run(&["serve", "--data", "/proc/x", "-p", "0"])
        .await
        .failed(1);
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
}

#[tokio::test]
async fn program_that_ends_at_once_is_said_to_have_ended() {
    let error = User::new()
        .run(&["watch", "demo://a", "--", "true"])
        .await
        .failed(1);
    assert!(
        error.contains("cannot speak with true: it ended before it answered"),
        "{error}"
    );
}

#[tokio::test]
async fn silent_server_is_waited_for_aloud() {
    let user = User::new();
    let mut command = user.command(&["watch", "demo://a", "--era", "legacy", "--", "cat"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = within("a line about the wait", err.next_line())
        .await
        .unwrap()
        .unwrap();
    assert!(
        line.contains("cat has not answered for 2 s; waiting for it"),
        "{line}"
    );
    child.kill().await.unwrap();
}
