//! The change of the resource under test: the shell command of `--touch` and the calls of `--touch-tool`.

use std::process::Stdio;
use std::time::SystemTime;

use tokio::process::Command;
use tokio::time::{Duration, timeout};

use super::answer::Answer;
use super::connection::{Aborted, Connection};
use super::options::Options;
use super::tool_call::ToolCall;

/// The limit on the run time of the command.
const RUN_MAX: Duration = Duration::from_secs(30);
/// The part of an error of the command or the tool that is quoted.
const QUOTE_CHARS_MAX: usize = 200;

/// Changes the resource under test in every way that the options name.
pub(super) async fn touch(connection: &Connection, options: &Options) -> Result<(), Aborted> {
    if let Some(command) = &options.touch {
        run_command(command).await?;
    }
    // The time differs between all changes of all runs, also where a server keeps what it was told.
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let number = time.unwrap_or_default().as_millis();
    for call in &options.touch_tools {
        let answer = connection.call("tools/call", call.params(number)).await?;
        judge(call, &answer)?;
    }
    Ok(())
}

/// Refuses the answer to a call that failed.
fn judge(call: &ToolCall, answer: &Answer) -> Result<(), Aborted> {
    let problem = match answer.result() {
        None => format!("was answered with {answer}"),
        Some(result) if result["isError"] == true => {
            let text = result["content"][0]["text"].as_str().unwrap_or("no text");
            let quote: String = text.chars().take(QUOTE_CHARS_MAX).collect();
            format!("failed: {quote}")
        }
        Some(result) if result["resultType"] == "input_required" => "asks for input".to_owned(),
        Some(_) => return Ok(()),
    };
    Err(Aborted(format!(
        "the tool {} of --touch-tool {problem}",
        call.name()
    )))
}

/// Runs the command and waits for its end. Its standard output is discarded.
async fn run_command(command: &str) -> Result<(), Aborted> {
    let run = Command::new("sh")
        .args(["-c", command])
        // A command that reads its input would wait for the terminal.
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let output = match timeout(RUN_MAX, run).await {
        Err(_) => return Err(aborted(&format!("did not end within {RUN_MAX:?}"))),
        Ok(Err(error)) => return Err(aborted(&format!("cannot be run by sh: {error}"))),
        Ok(Ok(output)) => output,
    };
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let quote: String = text.trim().chars().take(QUOTE_CHARS_MAX).collect();
    Err(aborted(&format!("failed with {}: {quote}", output.status)))
}

fn aborted(problem: &str) -> Aborted {
    Aborted(format!("the --touch command {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn failed_call_is_told() {
        let call = ToolCall::parse("edit").unwrap();
        for (message, expected) in [
            (json!({"result": {"content": []}}), None),
            (
                json!({"error": {"code": -32602, "message": "no such tool"}}),
                Some("no such tool"),
            ),
            (
                json!({"result": {"isError": true, "content": [{"type": "text", "text": "read only"}]}}),
                Some("failed: read only"),
            ),
            (
                json!({"result": {"resultType": "input_required"}}),
                Some("asks for input"),
            ),
        ] {
            let judged = judge(
                &call,
                &Answer {
                    status: None,
                    message,
                },
            );
            match expected {
                None => assert_eq!(judged, Ok(())),
                Some(text) => assert!(judged.unwrap_err().0.contains(text), "{text}"),
            }
        }
    }

    #[tokio::test]
    async fn failure_quotes_the_error_output() {
        assert_eq!(run_command("true").await, Ok(()));
        let failed = run_command("echo broken >&2; exit 3").await;
        let Aborted(reason) = failed.expect_err("the command exits with 3");
        assert!(reason.ends_with("failed with exit status: 3: broken"), "{reason}");
    }
}
