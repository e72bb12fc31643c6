//! The shell command that changes a resource.
//!
//! Owns running it and the time it may take. What it prints goes nowhere, except the end of its errors, which is told
//! when it fails.

use std::process::Stdio;

use tokio::process::Command;
use tokio::time::{Duration, timeout};

use super::peer::Stop;

/// How long it may take.
const TOUCHED_WITHIN: Duration = Duration::from_secs(10);

const WORDS_CHARS_MAX: usize = 200;

pub(super) async fn touch(command: &str) -> Result<(), Stop> {
    let stop = |what: String| Stop(format!("the --touch command {what}"));
    let run = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let ended = timeout(TOUCHED_WITHIN, run)
        .await
        .map_err(|_| stop(format!("did not end within {TOUCHED_WITHIN:?}")))?
        .map_err(|error| stop(format!("cannot be run by sh: {error}")))?;
    if ended.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&ended.stderr);
    let words: String = words.trim().chars().take(WORDS_CHARS_MAX).collect();
    Err(stop(format!("failed with {}: {words}", ended.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_is_told_with_its_words() {
        assert_eq!(touch("true").await, Ok(()));
        let Err(Stop(reason)) = touch("echo broken >&2; exit 3").await else {
            panic!("it failed");
        };
        assert!(reason.ends_with("failed with exit status: 3: broken"), "{reason}");
    }
}
