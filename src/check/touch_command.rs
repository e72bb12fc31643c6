//! The shell command of `--touch`, which changes the resource under test.

use std::process::Stdio;

use tokio::process::Command;
use tokio::time::{Duration, timeout};

use super::connection::Aborted;

/// The limit on the run time of the command.
const RUN_MAX: Duration = Duration::from_secs(10);
/// The part of the command's error output that is quoted when it fails.
const QUOTE_CHARS_MAX: usize = 200;

/// Runs the command and waits for its end. Its standard output is discarded.
pub(super) async fn run_touch_command(command: &str) -> Result<(), Aborted> {
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

    #[tokio::test]
    async fn failure_quotes_the_error_output() {
        assert_eq!(run_touch_command("true").await, Ok(()));
        let failed = run_touch_command("echo broken >&2; exit 3").await;
        let Aborted(reason) = failed.expect_err("the command exits with 3");
        assert!(reason.ends_with("failed with exit status: 3: broken"), "{reason}");
    }
}
