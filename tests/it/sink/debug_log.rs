//! The debug log: the story of one session, as the bus saw it, which is the one that the page tells.

use nix::sys::signal::Signal;

use super::service::Place;
use crate::mcp::client::Client;

const CONFIG: &str = "[bus]\nshards = 1\n\
    [[debug_log]]\nname = 'a'\nuris = ['demo://a']\nlists = false\nfile = 'trace'\n\
    [[debug_log]]\nname = 'json'\nuris = ['demo://a']\nlists = false\nfile = 'trace.jsonl'\nformat = 'json'\n";

/// A line without what differs from run to run: times and positions.
fn steady(line: &str) -> String {
    let (_, line) = line.split_once(' ').expect("a time");
    let word = |word: &str| match word.split_once('-') {
        Some((version, time)) if version.starts_with('v') => {
            let colon = if time.ends_with(':') { ":" } else { "" };
            format!("{version}-…{colon}")
        }
        Some((epoch, _)) if u64::from_str_radix(epoch, 16).is_ok() && word.ends_with(':') => "…:".to_owned(),
        _ => word.to_owned(),
    };
    let line = line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    match line.split_once(" after ") {
        Some((line, _)) => format!("{line} after … ms"),
        None => line,
    }
}

/// The steps in the order of the page, where threads may have changed it: a stream that has not moved to the
/// thread of its shard yet is handed a notice while the shard still counts whom it told.
fn in_order(mut lines: Vec<String>) -> Vec<String> {
    for later in 1..lines.len() {
        if lines[later].contains("fanned out") && lines[later - 1].contains("handed out") {
            lines.swap(later - 1, later);
        }
    }
    lines
}

/// The lines on the page.
fn story() -> Vec<String> {
    let page = include_str!("../../../docs/sinks.md");
    let (_, story) = page.split_once("```text\n…Z ").expect("the page has the story");
    let story = story.split("```").next().expect("it ends");
    format!("…Z {story}").lines().map(steady).collect()
}

#[tokio::test]
async fn the_story_of_a_session_is_told_step_by_step() {
    let place = Place::new(CONFIG);
    let service = place.start().await;
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
    let lines: Vec<_> = place.text("trace").lines().map(steady).collect();
    assert_eq!(in_order(lines.clone()), story());
    let steps = place.lines("trace.jsonl");
    assert_eq!(steps.len(), lines.len());
    // The two logs hear of a step by themselves, so as often, but not always in the same order.
    for step in steps.iter().map(|step| step["step"].as_str().unwrap()) {
        let told = steps.iter().filter(|other| other["step"] == step).count();
        let shown = format!(": {}", step.replace('_', " "));
        let lines = lines.iter().filter(|line| line.contains(&shown)).count();
        assert_eq!(lines, told, "{step}");
    }
}
