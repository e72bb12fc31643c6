//! Outages of servers, and how long changes wait beyond the election that an outage causes.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::brokers::Party;
use super::gaps;
use super::rig::Rig;
use crate::support::number;

/// The time for which changes may wait beyond the election.
const BEYOND_MAX: Duration = Duration::from_secs(1);

/// The same in the short forms, which run beside other tests on machines that are busy.
const BEYOND_MAX_BUSY: Duration = Duration::from_secs(3);

/// The time beyond the election within which a node leaves a server that is cut off from the others.
const MOVE_MAX: Duration = Duration::from_secs(5);

/// The time for which an outage lasts: longer than an election, which takes 4 to 9 seconds.
const OUTAGE: Duration = Duration::from_secs(14);

/// An outage of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    Killed,
    Stopped,
    /// Cut off from everything.
    CutOff,
    /// Cut off from the other servers, and not from its clients.
    Minority,
}

/// The waits of an outage.
#[derive(Debug)]
struct Waits {
    /// The time for which the log itself took nothing.
    log: Duration,
    /// The time for which there was no leader of all streams, which makes consumers.
    streams: Duration,
    /// The time for which each node took nothing, and whether it was connected to the server.
    nodes: Vec<(Duration, bool)>,
}

/// Measures an outage of the server that leads the log.
async fn measure(rig: &mut Rig, namespace: &str, outage: Outage) -> Waits {
    // One node at least is on the server of the outage, and must move.
    let leader = rig.brokers.number_of(&rig.nodes[0].server_name());
    rig.lead(leader).await;
    let attached: Vec<bool> = rig
        .nodes
        .iter()
        .map(|node| rig.brokers.number_of(&node.server_name()) == leader)
        .collect();
    let other = (leader + 1) % rig.brokers.count();
    let log = gaps::ask_log(rig.brokers.url(other), namespace).await;
    let streams = gaps::ask_streams(rig.brokers.url(other)).await;
    let mut puts = Vec::new();
    for (number, target) in rig.targets().into_iter().enumerate() {
        puts.push(gaps::put(target, format!("gap://{number}")));
    }
    sleep(Duration::from_millis(1_500)).await;
    let begin = Instant::now();
    match outage {
        Outage::Killed => rig.brokers.kill(leader),
        Outage::Stopped => rig.brokers.signal(leader, Signal::SIGSTOP),
        Outage::CutOff => rig.brokers.cut(Party::Broker(leader)),
        Outage::Minority => rig.brokers.cut_routes(leader),
    }
    sleep(OUTAGE).await;
    // Before the end of the outage, by which everything would work again.
    let log = log.stop().await.longest_gap(begin);
    let streams = streams.stop().await.longest_gap(begin);
    let mut nodes = Vec::new();
    for (put, attached) in puts.into_iter().zip(attached) {
        nodes.push((put.stop().await.longest_gap(begin), attached));
    }
    match outage {
        Outage::Killed => rig.brokers.up(leader),
        Outage::Stopped => rig.brokers.signal(leader, Signal::SIGCONT),
        Outage::CutOff | Outage::Minority => rig.brokers.mend(Party::Broker(leader)),
    }
    rig.until_ready().await;
    Waits { log, streams, nodes }
}

impl Waits {
    /// Names the nodes that waited for longer than `beyond` after the election.
    fn too_long(&self, outage: Outage, beyond: Duration) -> Vec<String> {
        eprintln!("{outage:?}: {self:?}");
        let election = self.log.max(self.streams);
        // The leader was away, so another server had to become it.
        assert!(election > Duration::from_secs(1), "{outage:?}: {self:?}");
        let mut found = Vec::new();
        for (number, (gap, is_attached)) in self.nodes.iter().enumerate() {
            // A server of the minority goes on to answer for a while, so a node leaves it later.
            let is_minority = *is_attached && matches!(outage, Outage::CutOff | Outage::Minority);
            let beyond = if is_minority { MOVE_MAX } else { beyond };
            if *gap >= election + beyond {
                found.push(format!(
                    "{outage:?}: node {number} took no change for {gap:?}, the log for {election:?}"
                ));
            }
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn death_of_the_leader_delays_changes_by_the_election() {
    let Some(mut rig) = Rig::start("leader").await else {
        return;
    };
    let waits = measure(&mut rig, "leader", Outage::Killed).await;
    rig.assert_none(&waits.too_long(Outage::Killed, BEYOND_MAX_BUSY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_on_the_minority_side_moves_to_the_majority() {
    let Some(mut rig) = Rig::start("minority").await else {
        return;
    };
    let waits = measure(&mut rig, "minority", Outage::Minority).await;
    rig.assert_none(&waits.too_long(Outage::Minority, BEYOND_MAX_BUSY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute for each of CLUSTER_ROUNDS"]
async fn long_outages() {
    let Some(mut rig) = Rig::start("outages").await else {
        return;
    };
    let mut found = Vec::new();
    for _ in 0..number("CLUSTER_ROUNDS", 3) {
        for outage in [Outage::Killed, Outage::Stopped, Outage::CutOff, Outage::Minority] {
            let waits = measure(&mut rig, "outages", outage).await;
            found.extend(waits.too_long(outage, BEYOND_MAX));
        }
    }
    rig.assert_none(&found);
}
