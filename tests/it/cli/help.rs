//! The help, the completions and the man pages of the real binary.

use super::User;

/// The columns of a line of help at most.
const COLUMNS: usize = 100;

/// Returns the subcommands that the help lists.
async fn subcommands(user: &User) -> Vec<String> {
    let help = user.run(&["--help"]).await.good();
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let (list, _) = rest.split_once("\n\n").unwrap();
    let mut names = Vec::new();
    for line in list.lines() {
        // The lines that go on with a description are indented further.
        if let Some(line) = line.strip_prefix("  ")
            && !line.starts_with(' ')
        {
            names.push(line.split(' ').next().unwrap().to_owned());
        }
    }
    names
}

#[tokio::test]
async fn help_is_wrapped_and_has_examples() {
    let user = User::new();
    let names = subcommands(&user).await;
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        if name == "help" {
            continue;
        }
        for flag in ["-h", "--help"] {
            let help = user.run(&[&name, flag]).await.good();
            assert!(help.contains("Examples:\n"), "{name}: {help}");
            let (described, _) = help.split_once("Examples:").unwrap();
            for line in described.lines() {
                assert!(line.chars().count() <= COLUMNS, "{name}: {line}");
            }
            // Once, in the help of the program.
            assert!(!help.contains("69  the service"), "{name}");
        }
    }
}

#[tokio::test]
async fn help_shows_placeholders_defaults_and_variables() {
    let user = User::new();
    let bench = user.run(&["bench", "--help"]).await.good();
    assert!(bench.contains("Their URIs, {n} being a number"), "{bench}");
    assert!(bench.contains("{uri} and {n} are replaced"), "{bench}");
    assert!(!bench.contains('\u{1b}'));
    let serve = user.run(&["serve", "-h"]).await.good();
    assert!(
        serve.contains("[default: 127.0.0.1:8808]") && serve.contains("TIDINGS_LOG"),
        "{serve}"
    );
    let ls = user.run(&["ls", "-h"]).await.good();
    assert!(
        ls.contains("TIDINGS_URL") && ls.contains("TIDINGS_CONTEXT"),
        "{ls}"
    );
}

#[tokio::test]
async fn completions_and_pages_are_printed() {
    let user = User::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = user.run(&["completions", shell]).await.good();
        assert!(
            text.contains("sessions") && text.contains("subscribers"),
            "{shell}"
        );
    }
    let page = user.run(&["man"]).await.good();
    assert!(
        page.contains(".TH tidings 1") && page.contains("Exit codes"),
        "{page}"
    );
    let dir = user.home.path().join("man1");
    user.run(&["man", "--dir", dir.to_str().unwrap()]).await.good();
    for name in subcommands(&user).await {
        if name != "help" {
            assert!(dir.join(format!("tidings-{name}.1")).is_file(), "{name}");
        }
    }
}

#[tokio::test]
async fn demo_tells_the_contents() {
    let told = User::new().run(&["demo", "--fast"]).await.good();
    for line in ["writes v2 → 'second body'", "reads v3 → 'third body'", "POLL: "] {
        assert!(told.contains(line), "{told}");
    }
}
