//! The debug log: the trace of one session, compared with the one in the documentation.

use nix::sys::signal::Signal;

use super::service::ServiceFolder;
use crate::mcp::client::Client;

const CONFIG: &str = "[bus]\nshards = 1\n\
    [[debug_log]]\nname = 'a'\nuris = ['demo://a']\nlists = false\nfile = 'trace'\n\
    [[debug_log]]\nname = 'json'\nuris = ['demo://a']\nlists = false\nfile = 'trace.jsonl'\nformat = 'json'\n";

/// Returns a line without the parts that differ from run to run: times and positions.
fn steady(line: &str) -> String {
    let (_, line) = line.split_once(' ').expect("a time");
    let line = line.split(' ').map(steady_word).collect::<Vec<_>>().join(" ");
    match line.split_once(" after ") {
        Some((line, _)) => format!("{line} after … ms"),
        None => line,
    }
}

fn steady_word(word: &str) -> String {
    match word.split_once('-') {
        Some((version, time)) if version.starts_with('v') => {
            let colon = if time.ends_with(':') { ":" } else { "" };
            format!("{version}-…{colon}")
        }
        Some((epoch, _)) if u64::from_str_radix(epoch, 16).is_ok() && word.ends_with(':') => "…:".to_owned(),
        _ => word.to_owned(),
    }
}

/// Returns the steps in the order of the page. A stream that has not moved to the thread of its shard yet may
/// be handed a notice while the shard still counts the subscribers, so these two steps may be swapped.
fn in_order(mut lines: Vec<String>) -> Vec<String> {
    for later in 1..lines.len() {
        if lines[later].contains("fanned out") && lines[later - 1].contains("handed out") {
            lines.swap(later - 1, later);
        }
    }
    lines
}

/// Returns the lines in `docs/sinks.md`.
fn documented() -> Vec<String> {
    let page = include_str!("../../../docs/sinks.md");
    let (_, trace) = page.split_once("```log\n…Z ").expect("the page has the trace");
    let trace = trace.split("```").next().expect("it ends");
    format!("…Z {trace}").lines().map(steady).collect()
}

#[tokio::test]
async fn trace_of_a_session_is_as_documented() {
    let folder = ServiceFolder::new(CONFIG);
    let service = folder.start().await;
    service.put("demo://a", "1").await;
    let client = Client::open(service.address, "2025-11-25").await;
    client.subscribe("demo://a").await;
    let mut stream = client.stream().await;
    service.put("demo://a", "2").await;
    stream.message().await;
    service.put("demo://a", "2").await;
    service.put("demo://b", "1").await;
    service.delete("demo://a").await;
    stream.message().await;
    client.delete().await;
    service.end(Signal::SIGTERM).await;
    let lines: Vec<_> = folder.text("trace").lines().map(steady).collect();
    assert_eq!(in_order(lines.clone()), documented());
    let steps = folder.lines("trace.jsonl");
    assert_eq!(steps.len(), lines.len());
    // The two logs are attached separately: they have the same steps, but not always in the same order.
    for step in steps.iter().map(|step| step["step"].as_str().unwrap()) {
        let told = steps.iter().filter(|other| other["step"] == step).count();
        let shown = format!(": {}", step.replace('_', " "));
        let lines = lines.iter().filter(|line| line.contains(&shown)).count();
        assert_eq!(lines, told, "{step}");
    }
}
