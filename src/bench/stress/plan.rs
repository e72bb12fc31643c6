//! What a storm does, step by step: made from a seed, so that the same seed makes the same storm.
//!
//! Owns the steps and the chance. It keeps account of who is connected and what exists while it makes them, so that
//! every step makes sense; when each happens beside the others is the machine's own affair.

use std::collections::BTreeSet;

/// How large a storm is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Clients that may be connected at once.
    pub(super) clients: usize,
    /// Resources that are written over HTTP.
    pub(super) resources: usize,
    /// Files of the watched folder.
    pub(super) files: usize,
    /// Steps.
    pub(super) steps: usize,
}

impl Size {
    /// Everything that can be subscribed to.
    pub(super) fn targets(&self) -> usize {
        self.resources + self.files
    }
}

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// A session with a GET stream.
    Session,
    /// A listen stream.
    Listen,
}

/// One step. Clients and targets are numbered; targets beyond the resources are files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Connect {
        client: usize,
        speech: Speech,
        targets: Vec<usize>,
    },
    /// Ends the session, or closes the stream, as one should.
    Leave(usize),
    /// Resets the connection of the stream; a session is resumed with the last event's id, a listen stream is gone.
    Kill(usize),
    /// Reads nothing from now on.
    Stall(usize),
    /// Reads again.
    Resume(usize),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    /// Gives a target other content, whether it exists or not.
    Update(usize),
    /// Writes the content a target has already.
    Same(usize),
    Remove(usize),
    /// Has the slow receiver stand still, or work again.
    Sink {
        stands_still: bool,
    },
    /// Lets milliseconds pass.
    Pause(u64),
}

/// Chance that can be repeated: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len())])
    }
}

#[derive(Debug)]
struct Connected {
    speech: Speech,
    targets: BTreeSet<usize>,
    stalled: bool,
}

/// Makes the steps.
struct Maker {
    chance: Chance,
    size: Size,
    clients: Vec<Option<Connected>>,
}

/// The steps of the storm that `seed` makes.
pub(super) fn steps(seed: u64, size: Size) -> Vec<Step> {
    let mut maker = Maker {
        chance: Chance::new(seed),
        size,
        clients: (0..size.clients).map(|_| None).collect(),
    };
    (0..size.steps).map(|_| maker.step()).collect()
}

impl Maker {
    fn step(&mut self) -> Step {
        // Updates are half of it; a storm of connections alone would test little else.
        match self.chance.below(40) {
            0..6 => self.connect(),
            6..8 => self.of_client(
                |_| true,
                |maker, client| {
                    maker.clients[client] = None;
                    Step::Leave(client)
                },
            ),
            8..10 => self.of_client(|_| true, Maker::kill),
            10..12 => self.of_client(
                |one| !one.stalled,
                |maker, client| {
                    maker.set_stalled(client, true);
                    Step::Stall(client)
                },
            ),
            12..14 => self.of_client(
                |one| one.stalled,
                |maker, client| {
                    maker.set_stalled(client, false);
                    Step::Resume(client)
                },
            ),
            14..16 => self.of_client(
                |one| one.speech == Speech::Session,
                |maker, client| {
                    let target = maker.target();
                    if let Some(one) = &mut maker.clients[client] {
                        one.targets.insert(target);
                    }
                    Step::Subscribe(client, target)
                },
            ),
            16 => self.of_client(
                |one| one.speech == Speech::Session && one.targets.len() > 1,
                Maker::unsubscribe,
            ),
            17..20 => Step::Same(self.target()),
            20..22 => Step::Remove(self.target()),
            22 => Step::Sink {
                stands_still: self.chance.below(2) == 0,
            },
            23 => Step::Pause(self.chance.below(20) as u64),
            _ => Step::Update(self.target()),
        }
    }

    fn target(&mut self) -> usize {
        self.chance.below(self.size.targets())
    }

    /// A step of some client that `fits`; an update where there is none.
    fn of_client(
        &mut self,
        fits: impl Fn(&Connected) -> bool,
        step: impl FnOnce(&mut Maker, usize) -> Step,
    ) -> Step {
        let fitting: Vec<usize> = (0..self.clients.len())
            .filter(|client| self.clients[*client].as_ref().is_some_and(&fits))
            .collect();
        match self.chance.of(&fitting) {
            Some(client) => step(self, client),
            None => Step::Update(self.target()),
        }
    }

    fn connect(&mut self) -> Step {
        let free: Vec<usize> = (0..self.clients.len())
            .filter(|client| self.clients[*client].is_none())
            .collect();
        let Some(client) = self.chance.of(&free) else {
            return Step::Update(self.target());
        };
        let speech = match self.chance.below(2) {
            0 => Speech::Session,
            _ => Speech::Listen,
        };
        let count = 1 + self.chance.below(4);
        let targets: BTreeSet<usize> = (0..count).map(|_| self.target()).collect();
        self.clients[client] = Some(Connected {
            speech,
            targets: targets.clone(),
            stalled: false,
        });
        Step::Connect {
            client,
            speech,
            targets: targets.into_iter().collect(),
        }
    }

    fn kill(&mut self, client: usize) -> Step {
        match &mut self.clients[client] {
            // It reads again when it resumes.
            Some(one) if one.speech == Speech::Session => one.stalled = false,
            gone => *gone = None,
        }
        Step::Kill(client)
    }

    fn set_stalled(&mut self, client: usize, stalled: bool) {
        if let Some(one) = &mut self.clients[client] {
            one.stalled = stalled;
        }
    }

    fn unsubscribe(&mut self, client: usize) -> Step {
        let targets: Vec<usize> = self.clients[client]
            .iter()
            .flat_map(|one| one.targets.iter().copied())
            .collect();
        let Some(target) = self.chance.of(&targets) else {
            return Step::Update(self.target());
        };
        if let Some(one) = &mut self.clients[client] {
            one.targets.remove(&target);
        }
        Step::Unsubscribe(client, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Size = Size {
        clients: 8,
        resources: 6,
        files: 2,
        steps: 500,
    };

    #[test]
    fn a_seed_makes_the_same_storm_and_another_one_another() {
        assert_eq!(steps(7, SIZE), steps(7, SIZE));
        assert_ne!(steps(7, SIZE), steps(8, SIZE));
    }

    proptest! {
        #[test]
        fn every_step_makes_sense(seed: u64) {
            let mut connected = [None; 8];
            for step in steps(seed, SIZE) {
                match step {
                    Step::Connect { client, speech, targets } => {
                        prop_assert!(connected[client].is_none());
                        prop_assert!(!targets.is_empty() && targets.iter().all(|target| *target < SIZE.targets()));
                        connected[client] = Some(speech);
                    }
                    Step::Leave(client) => prop_assert!(connected[client].take().is_some()),
                    Step::Kill(client) => {
                        prop_assert!(connected[client].is_some());
                        connected[client] = connected[client].filter(|speech| *speech == Speech::Session);
                    }
                    Step::Stall(client) | Step::Resume(client) => prop_assert!(connected[client].is_some()),
                    Step::Subscribe(client, target) | Step::Unsubscribe(client, target) => {
                        prop_assert_eq!(connected[client], Some(Speech::Session));
                        prop_assert!(target < SIZE.targets());
                    }
                    Step::Update(target) | Step::Same(target) | Step::Remove(target) => {
                        prop_assert!(target < SIZE.targets());
                    }
                    Step::Sink { .. } | Step::Pause(_) => {}
                }
            }
        }
    }
}
