//! The faults of a storm, chosen by a seed: one at a time, each of which ends before the next begins.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::brokers::Party;
use super::rig::{COUNT, Rig};
use crate::stress::Random;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FaultKind {
    /// Killed, and started again at the end.
    Killed,
    /// Stopped by SIGSTOP, and continued at the end.
    Stopped,
    /// Without any link.
    CutOff,
}

/// A fault of a server or a node.
#[derive(Debug, Clone, Copy)]
struct Fault {
    kind: FaultKind,
    party: Party,
}

/// The disturber of a storm.
pub(super) struct Disturbance {
    random: Random,
    /// The time from the begin of a fault to that of the next.
    every: Duration,
    /// The faults so far, for the report.
    pub(super) done: Vec<String>,
}

impl Disturbance {
    pub(super) fn new(seed: u64, every: Duration) -> Disturbance {
        Disturbance {
            random: Random::new(seed),
            every,
            done: Vec::new(),
        }
    }

    /// Begins a fault, lets it last, and ends it.
    pub(super) async fn disturb(&mut self, rig: &mut Rig) {
        let fault = self.choose();
        // Between a fifth and four fifths of the interval, at most the 15 s of a long one.
        let part = 20 + self.random.below(60) as u32;
        let lasts = (self.every * part / 100).min(Duration::from_secs(15));
        self.done.push(format!(
            "{:?} {:?} for {} ms",
            fault.party,
            fault.kind,
            lasts.as_millis()
        ));
        begin(rig, fault);
        sleep(lasts).await;
        end(rig, fault);
        sleep(self.every.saturating_sub(lasts)).await;
    }

    fn choose(&mut self) -> Fault {
        let kind = match self.random.below(3) {
            0 => FaultKind::Killed,
            1 => FaultKind::Stopped,
            _ => FaultKind::CutOff,
        };
        let number = self.random.below(COUNT);
        let party = match self.random.below(2) {
            0 => Party::Broker(number),
            _ => Party::Node(number),
        };
        Fault { kind, party }
    }
}

fn begin(rig: &mut Rig, fault: Fault) {
    match (fault.kind, fault.party) {
        (FaultKind::Killed, Party::Broker(number)) => rig.brokers.kill(number),
        (FaultKind::Killed, Party::Node(number)) => rig.nodes[number].kill(),
        (FaultKind::Stopped, Party::Broker(number)) => rig.brokers.signal(number, Signal::SIGSTOP),
        (FaultKind::Stopped, Party::Node(number)) => rig.nodes[number].signal(Signal::SIGSTOP),
        (FaultKind::CutOff, party) => rig.brokers.cut(party),
    }
}

fn end(rig: &mut Rig, fault: Fault) {
    match (fault.kind, fault.party) {
        (FaultKind::Killed, Party::Broker(number)) => rig.brokers.up(number),
        (FaultKind::Killed, Party::Node(number)) => rig.nodes[number].run(),
        (FaultKind::Stopped, Party::Broker(number)) => rig.brokers.signal(number, Signal::SIGCONT),
        (FaultKind::Stopped, Party::Node(number)) => rig.nodes[number].signal(Signal::SIGCONT),
        (FaultKind::CutOff, party) => rig.brokers.mend(party),
    }
}
