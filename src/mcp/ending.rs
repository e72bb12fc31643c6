//! Why a session ended, in words for its client.
//!
//! Owns: the texts, which name the configuration key that decided. Never: decides. Read by the answers to requests of
//! ended sessions and by streams that end.

use std::time::Duration;

use super::options::McpOptions;
use crate::EndReason;

/// What happened to a session that ended for `reason`, as the end of a sentence about it.
pub(crate) fn words(reason: EndReason, options: &McpOptions) -> String {
    let time = |time: Duration| format!("{time:?}");
    match reason {
        EndReason::Closed => "its client ended it".to_owned(),
        EndReason::Idle => format!(
            "it had neither a stream nor a request for {} (session.idle_timeout)",
            time(options.idle_timeout)
        ),
        EndReason::Stalled => format!(
            "it took nothing for {} (session.stall_timeout)",
            time(options.stall_timeout.unwrap_or_default())
        ),
        EndReason::WriteTimeout => {
            "its connection took nothing of what was written to it (http.write_timeout)".to_owned()
        }
        EndReason::Expired => format!(
            "it reached the greatest age, {} (session.age_max)",
            time(options.age_max.unwrap_or_default())
        ),
        EndReason::Evicted => "an operator ended it".to_owned(),
        EndReason::Shutdown => "the server is stopping".to_owned(),
        _ => "it failed inside the server".to_owned(),
    }
}

/// The comment that a stream ends with when its session was ended though it was still there.
pub(crate) fn comment(reason: EndReason, options: &McpOptions) -> Option<String> {
    reason
        .is_eviction()
        .then(|| format!(": evicted: {}\n\n", words(reason, options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_words_of_its_own_on_one_line() {
        let options = McpOptions {
            stall_timeout: Some(Duration::from_secs(60)),
            ..McpOptions::default()
        };
        let texts: std::collections::BTreeSet<_> =
            EndReason::ALL.map(|reason| words(reason, &options)).into();
        assert_eq!(texts.len(), EndReason::ALL.len());
        assert!(texts.iter().all(|text| !text.contains('\n')));
        let comment = comment(EndReason::Stalled, &options);
        let expected = ": evicted: it took nothing for 60s (session.stall_timeout)\n\n";
        assert_eq!(comment.as_deref(), Some(expected));
        assert_eq!(super::comment(EndReason::Shutdown, &options), None);
    }
}
