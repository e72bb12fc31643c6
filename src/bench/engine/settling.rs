//! The last phase: what is still on its way arrives, those who stalled read, and what has not come is missing.
//!
//! By version, everybody waits until the newest version has come. By order a notice does not say what it announces, so
//! first everything falls silent, and then each resource is changed once more: what comes now is the word of that.

use std::time::Duration;

use super::Engine;
use crate::bench::BenchError;
use crate::bench::load::schedule::{Due, nanos};
use crate::bench::load::stats::Kind;

/// How long nothing comes before it counts as silence.
const SILENCE: Duration = Duration::from_millis(700);

/// However much keeps coming, settling takes no longer than this many times the silence that ends it.
const PATIENCE: u32 = 20;

/// Everything is looked through this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Engine<'_> {
    /// Waits until everybody has the newest state, or nothing comes any more.
    pub(crate) fn settle(&mut self, by_version: bool) -> Result<(), BenchError> {
        while let Some((_, index)) = self.churners.pop_front() {
            self.retire(index)?;
        }
        self.wake_readers();
        let published = self.publisher.is_some();
        if published {
            self.until_answered()?;
        }
        if published && !by_version {
            let silence = SILENCE.min(self.settings.settle);
            self.until(silence, |_| false)?;
            self.publish_fences()?;
            self.until_answered()?;
        }
        if published {
            self.ask_once_more();
            self.until(self.settings.settle, |engine| engine.is_current())?;
        } else {
            self.until(SILENCE, |_| false)?;
        }
        self.readings.after_kib = self.server.as_ref().and_then(|server| server.resident_kib());
        self.count();
        Ok(())
    }

    /// Those who were slow or stalled read like the others from now on.
    fn wake_readers(&mut self) {
        let slow = |kind| matches!(kind, Kind::Slow | Kind::Stalled);
        for index in 0..self.sessions.len() {
            let Some(session) = self.sessions[index].as_mut().filter(|session| slow(session.kind)) else {
                continue;
            };
            if let Err(error) = session.come_back(&self.registry) {
                self.lose(index, true, error.to_string());
            }
        }
    }

    fn until_answered(&mut self) -> Result<(), BenchError> {
        let waiting = |engine: &Engine<'_>| engine.publisher.as_ref().is_some_and(|one| one.waiting() > 0);
        let until = self.now() + nanos(self.settings.settle * PATIENCE);
        while waiting(self) && self.now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    fn publish_fences(&mut self) -> Result<(), BenchError> {
        let made = self.schedule.as_ref().map_or(0, |schedule| schedule.made());
        for resource in 0..self.book.uris.len() {
            while self.publisher.as_ref().is_some_and(|one| !one.has_room(resource)) {
                self.turn(self.now() + nanos(LOOK_EVERY))?;
            }
            let now = self.now();
            let due = Due {
                number: made + resource as u64,
                resource,
                at: now,
            };
            if let Some(publisher) = &mut self.publisher {
                publisher
                    .publish(&mut self.book, &self.registry, due, now)
                    .map_err(|error| super::broken(&error))?;
            }
        }
        Ok(())
    }

    fn ask_once_more(&mut self) {
        let now = self.now();
        for poller in &mut self.pollers {
            // A poller that cannot ask does not have the newest state, which is counted.
            drop(poller.ask(&self.book, &self.registry, now));
        }
    }

    /// Goes on until `done`, or until nothing has come for `silence`.
    fn until(&mut self, silence: Duration, done: impl Fn(&Self) -> bool) -> Result<(), BenchError> {
        let begin = self.now();
        let patience = begin + nanos(silence * PATIENCE);
        let mut asked = begin;
        loop {
            if done(self) {
                return Ok(());
            }
            let now = self.now();
            let quiet_since = self.book.stats.last_at.max(begin);
            if now > patience || now.saturating_sub(quiet_since) > nanos(silence) {
                return Ok(());
            }
            let until = now + nanos(LOOK_EVERY);
            while self.now() < until {
                self.turn(until)?;
            }
            if self.now() - asked > nanos(self.settings.poll_interval) {
                asked = self.now();
                self.ask_once_more();
            }
            self.tell("settling", 0, 0);
        }
    }

    fn is_current(&self) -> bool {
        let book = &self.book;
        let current = |(resource, watch): (usize, &crate::bench::load::updates::Watch)| {
            watch.is_current(resource, &book.updates)
        };
        let mut sessions = self.sessions.iter().flatten();
        sessions.all(|session| session.watches(book).all(current))
            && self
                .pollers
                .iter()
                .all(|poller| current((poller.resource(), &poller.watch)))
    }

    /// Counts what everybody was owed and what they did not get. A session whose stream was lost got nothing more.
    fn count(&mut self) {
        let book = &self.book;
        let mut counted = Vec::new();
        let watches = self.sessions.iter().flatten().filter(|session| session.is_live());
        for session in watches {
            counted.extend(
                session
                    .watches(book)
                    .map(|(resource, watch)| (session.kind, resource, *watch)),
            );
        }
        let polled = self.pollers.iter();
        counted.extend(polled.map(|poller| (Kind::Polling, poller.resource(), poller.watch)));
        let tallied: Vec<(Kind, u64, u64, u64)> = counted
            .into_iter()
            .map(|(kind, resource, watch)| {
                let updates = &book.updates;
                let missing = u64::from(!watch.is_current(resource, updates));
                (
                    kind,
                    watch.owed(resource, updates),
                    watch.untold(resource, updates),
                    missing,
                )
            })
            .collect();
        for (kind, owed, untold, missing) in tallied {
            let group = self.book.stats.group_mut(kind);
            group.owed += owed;
            group.untold += untold;
            group.missing += missing;
        }
    }
}
