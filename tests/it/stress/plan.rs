//! The steps of a storm, made from a seed: the same seed makes the same steps.

use std::collections::BTreeSet;

use proptest::prelude::*;

/// The size of a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Clients that may be connected at once.
    pub(super) clients: usize,
    /// Resources that are written over HTTP.
    pub(super) resources: usize,
    /// Files of the watched folder.
    pub(super) files: usize,
    pub(super) steps: usize,
}

impl Size {
    /// The number of resources and files: the targets of writes and subscriptions.
    pub(super) fn targets(&self) -> usize {
        self.resources + self.files
    }
}

/// The kind of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A session of 2025-11-25 with a GET stream.
    Session,
    /// A listen stream of 2026-07-28.
    Listen,
}

/// One step. Clients and targets are numbered; targets beyond the resources are files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Connect {
        client: usize,
        kind: Kind,
        targets: Vec<usize>,
    },
    /// Ends the session, or closes the stream, in order.
    Leave(usize),
    /// Resets the connection of the stream; a session is resumed from its last event, a listen stream is
    /// gone.
    Kill(usize),
    /// Stops reading.
    Stall(usize),
    /// Reads again.
    Resume(usize),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    /// Gives a target new content, whether it exists or not.
    Update(usize),
    /// Writes the same content each time.
    Repeat(usize),
    Remove(usize),
    /// Makes the slow receiver hang, or answer again.
    HangReceiver(bool),
    /// Waits for this many milliseconds.
    Pause(u64),
}

/// Random numbers that a seed repeats: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn choose(&mut self, all: &[usize]) -> Option<usize> {
        match all.len() {
            0 => None,
            count => Some(all[self.below(count)]),
        }
    }
}

/// A client as the plan knows it.
#[derive(Debug)]
struct Planned {
    kind: Kind,
    targets: BTreeSet<usize>,
    is_stalled: bool,
}

/// Keeps track of the clients, so that every step is possible when its turn comes.
struct Planner {
    random: Random,
    size: Size,
    clients: Vec<Option<Planned>>,
}

/// Returns the steps of the storm with this seed.
pub(super) fn steps(seed: u64, size: Size) -> Vec<Step> {
    let mut planner = Planner {
        random: Random::new(seed),
        size,
        clients: (0..size.clients).map(|_| None).collect(),
    };
    (0..size.steps).map(|_| planner.step()).collect()
}

impl Planner {
    fn step(&mut self) -> Step {
        let step = match self.random.below(40) {
            0..6 => self.connect(),
            6..8 => self.leave(),
            8..10 => self.kill(),
            10..12 => self.stall(),
            12..14 => self.resume(),
            14..16 => self.subscribe(),
            16 => self.unsubscribe(),
            17..20 => Some(Step::Repeat(self.target())),
            20..22 => Some(Step::Remove(self.target())),
            22 => Some(Step::HangReceiver(self.random.below(2) == 0)),
            23 => Some(Step::Pause(self.random.below(20) as u64)),
            // Nearly half are updates: connections alone would test little of the delivery.
            _ => None,
        };
        step.unwrap_or_else(|| Step::Update(self.target()))
    }

    fn target(&mut self) -> usize {
        self.random.below(self.size.targets())
    }

    /// Chooses a client that fits.
    fn client(&mut self, fits: impl Fn(&Planned) -> bool) -> Option<usize> {
        let mut fitting = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            if let Some(client) = client
                && fits(client)
            {
                fitting.push(number);
            }
        }
        self.random.choose(&fitting)
    }

    fn connect(&mut self) -> Option<Step> {
        let free: Vec<usize> = (0..self.clients.len())
            .filter(|number| self.clients[*number].is_none())
            .collect();
        let client = self.random.choose(&free)?;
        let kind = match self.random.below(2) {
            0 => Kind::Session,
            _ => Kind::Listen,
        };
        let count = 1 + self.random.below(4);
        let targets: BTreeSet<usize> = (0..count).map(|_| self.target()).collect();
        self.clients[client] = Some(Planned {
            kind,
            targets: targets.clone(),
            is_stalled: false,
        });
        let targets = targets.into_iter().collect();
        Some(Step::Connect {
            client,
            kind,
            targets,
        })
    }

    fn leave(&mut self) -> Option<Step> {
        let client = self.client(|_| true)?;
        self.clients[client] = None;
        Some(Step::Leave(client))
    }

    fn kill(&mut self) -> Option<Step> {
        let client = self.client(|_| true)?;
        match &mut self.clients[client] {
            // A session reads again when it resumes.
            Some(planned) if planned.kind == Kind::Session => planned.is_stalled = false,
            gone => *gone = None,
        }
        Some(Step::Kill(client))
    }

    fn stall(&mut self) -> Option<Step> {
        let client = self.client(|planned| !planned.is_stalled)?;
        self.clients[client].as_mut()?.is_stalled = true;
        Some(Step::Stall(client))
    }

    fn resume(&mut self) -> Option<Step> {
        let client = self.client(|planned| planned.is_stalled)?;
        self.clients[client].as_mut()?.is_stalled = false;
        Some(Step::Resume(client))
    }

    fn subscribe(&mut self) -> Option<Step> {
        let client = self.client(|planned| planned.kind == Kind::Session)?;
        let target = self.target();
        self.clients[client].as_mut()?.targets.insert(target);
        Some(Step::Subscribe(client, target))
    }

    fn unsubscribe(&mut self) -> Option<Step> {
        let client = self.client(|planned| planned.kind == Kind::Session && planned.targets.len() > 1)?;
        let targets: Vec<usize> = self.clients[client].as_ref()?.targets.iter().copied().collect();
        let target = self.random.choose(&targets)?;
        self.clients[client].as_mut()?.targets.remove(&target);
        Some(Step::Unsubscribe(client, target))
    }
}

const SMALL: Size = Size {
    clients: 8,
    resources: 6,
    files: 2,
    steps: 500,
};

#[test]
fn seed_decides_the_steps() {
    assert_eq!(steps(7, SMALL), steps(7, SMALL));
    assert_ne!(steps(7, SMALL), steps(8, SMALL));
}

proptest! {
    #[test]
    fn every_step_is_possible(seed: u64) {
        let mut connected = [None; 8];
        for step in steps(seed, SMALL) {
            match step {
                Step::Connect { client, kind, targets } => {
                    prop_assert!(connected[client].is_none());
                    prop_assert!(!targets.is_empty() && targets.iter().all(|target| *target < SMALL.targets()));
                    connected[client] = Some(kind);
                }
                Step::Leave(client) => prop_assert!(connected[client].take().is_some()),
                Step::Kill(client) => {
                    prop_assert!(connected[client].is_some());
                    connected[client] = connected[client].filter(|kind| *kind == Kind::Session);
                }
                Step::Stall(client) | Step::Resume(client) => prop_assert!(connected[client].is_some()),
                Step::Subscribe(client, target) | Step::Unsubscribe(client, target) => {
                    prop_assert_eq!(connected[client], Some(Kind::Session));
                    prop_assert!(target < SMALL.targets());
                }
                Step::Update(target) | Step::Repeat(target) | Step::Remove(target) => {
                    prop_assert!(target < SMALL.targets());
                }
                Step::HangReceiver(_) | Step::Pause(_) => {}
            }
        }
    }
}
