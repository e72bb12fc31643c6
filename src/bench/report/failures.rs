//! The findings that make a run a failure: a subscription without the newest state, a version that went
//! backward, a lost stream, a refused update. A latency is none: the reader of the report decides how slow is
//! too slow.

use crate::bench::engine::Engine;
use crate::bench::load::stats::{Kind, Stats};

const NO_REASON: &str = "no reason given";

/// Returns the problems of a run, in words.
pub(crate) fn problems(engine: &Engine<'_>, stats: &Stats) -> Vec<String> {
    let mut problems = Vec::new();
    for kind in Kind::ALL {
        let name = kind.name();
        let group = stats.group(kind);
        if group.missing > 0 {
            let missing = group.missing;
            problems.push(format!(
                "{missing} subscriptions of {name} clients never got the newest state"
            ));
        }
        if group.backward > 0 {
            let backward = group.backward;
            problems.push(format!(
                "{name} clients were told of an older version after a newer one {backward} times"
            ));
        }
    }
    if stats.lost > 0 {
        let reason = stats.lost_reason.as_deref().unwrap_or(NO_REASON);
        problems.push(format!("{} streams were lost: {reason}", stats.lost));
    }
    if let Some((failed, reason)) = engine.late_failures() {
        problems.push(format!(
            "{failed} sessions of the churn could not be opened: {reason}"
        ));
    }
    if let Some(publisher) = &engine.publisher {
        let log = &publisher.log;
        if log.refused > 0 {
            let reason = log.reason.as_deref().unwrap_or(NO_REASON);
            problems.push(format!(
                "{} of {} updates were refused: {reason}",
                log.refused, log.sent
            ));
        }
        if publisher.waiting() > 0 {
            problems.push(format!("{} updates were never answered", publisher.waiting()));
        }
        if log.foreign > 0 {
            problems.push(format!(
                "another publisher changed the resources of this test: {} answers name versions that are not its own",
                log.foreign
            ));
        }
        if log.sent == 0 {
            problems.push("no update was due in the time of the run: raise --rate or --duration".to_owned());
        }
    }
    problems
}
