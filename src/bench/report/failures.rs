//! Which findings make a run a failure, in words.
//!
//! Owns that judgement alone: a subscription without the newest state, a version that went backward, a stream that was
//! lost, an update that was refused. How slow is too slow is for whoever reads the report. It counts nothing.

use crate::bench::engine::Engine;
use crate::bench::load::stats::{Kind, Stats};

/// What makes the run a failure.
pub(crate) fn problems(engine: &Engine<'_>, stats: &Stats) -> Vec<String> {
    let mut problems = Vec::new();
    for kind in Kind::ALL {
        let (name, group) = (kind.name(), stats.group(kind));
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
    let because = |reason: &Option<String>| reason.as_deref().unwrap_or("no reason given").to_owned();
    if stats.lost > 0 {
        let reason = because(&stats.lost_reason);
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
            let reason = because(&log.reason);
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
                "somebody else changed the resources of this test: {} answers name versions that are not its own",
                log.foreign
            ));
        }
        if log.sent == 0 {
            problems.push("no update was due in the time of the run: raise --rate or --duration".to_owned());
        }
    }
    problems
}
