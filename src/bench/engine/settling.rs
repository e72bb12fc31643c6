//! The last phase: notices under way arrive, stalled clients read, and subscriptions without the newest state
//! are counted.
//!
//! By version, the phase waits until the newest version has come everywhere. By order a notice does not say
//! which update it announces, so the phase waits for silence and then changes each resource once more: the
//! next notice announces that.

use std::time::Duration;

use super::Engine;
use crate::bench::BenchError;
use crate::bench::load::schedule::{Due, nanos};
use crate::bench::load::session::Book;
use crate::bench::load::stats::{Kind, Stats};
use crate::bench::load::updates::{Updates, Watch};

/// The time without a notice that counts as silence.
const SILENCE: Duration = Duration::from_millis(700);

/// Settling takes at most this many times the silence that ends it, even if notices keep coming.
const SILENCES_MAX: u32 = 20;

/// The interval of checks for missing notices.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Engine<'_> {
    /// Waits until every client has the newest state, or no more notices come.
    pub(crate) fn settle(&mut self, by_version: bool) -> Result<(), BenchError> {
        while let Some((_, index)) = self.churners.pop_front() {
            self.retire(index)?;
        }
        self.wake_readers();
        let published = self.publisher.is_some();
        if published {
            self.until_answered()?;
        }
        // Without versions only an update after a silence can be recognized by its notice.
        if published && !by_version {
            let silence = SILENCE.min(self.settings.settle);
            self.until(silence, |_| false)?;
            self.publish_fences()?;
            self.until_answered()?;
        }
        if published {
            self.poll_once_more();
            self.until(self.settings.settle, |engine| engine.is_current())?;
        } else {
            self.until(SILENCE, |_| false)?;
        }
        self.readings.after_kib = self.server_kib();
        self.count();
        Ok(())
    }

    /// Makes slow and stalled clients read like the others.
    fn wake_readers(&mut self) {
        if let Some(streams) = &mut self.streams {
            streams.unshut();
        }
        for index in 0..self.sessions.len() {
            let Some(session) = &mut self.sessions[index] else {
                continue;
            };
            if matches!(session.kind, Kind::Slow | Kind::Stalled)
                && let Err(error) = session.come_back(&self.registry)
            {
                self.lose(index, true, error.to_string());
            }
        }
    }

    fn until_answered(&mut self) -> Result<(), BenchError> {
        let until = self.now() + nanos(self.settings.settle * SILENCES_MAX);
        while let Some(publisher) = &self.publisher
            && publisher.waiting() > 0
            && self.now() < until
        {
            self.turn(until)?;
        }
        Ok(())
    }

    fn publish_fences(&mut self) -> Result<(), BenchError> {
        let made = match &self.schedule {
            Some(schedule) => schedule.made(),
            None => 0,
        };
        for resource in 0..self.book.uris.len() {
            while let Some(publisher) = &self.publisher
                && !publisher.has_room(resource)
            {
                self.turn(self.now() + nanos(CHECK_INTERVAL))?;
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

    fn poll_once_more(&mut self) {
        let now = self.now();
        for poller in &mut self.pollers {
            // A poller that cannot ask misses the newest state, which is counted at the end.
            poller.ask(&self.book, &self.registry, now).ok();
        }
    }

    /// Handles events until `done`, or until no notice has come for `silence`.
    fn until(&mut self, silence: Duration, done: impl Fn(&Self) -> bool) -> Result<(), BenchError> {
        let begin = self.now();
        let deadline = begin + nanos(silence * SILENCES_MAX);
        let mut asked = begin;
        loop {
            if done(self) {
                return Ok(());
            }
            let now = self.now();
            let quiet_since = self.book.stats.last_at.max(begin);
            if now > deadline || now.saturating_sub(quiet_since) > nanos(silence) {
                return Ok(());
            }
            // Events are handled between two checks, which look at every subscription.
            let until = now + nanos(CHECK_INTERVAL);
            while self.now() < until {
                self.turn(until)?;
            }
            if self.now() - asked > nanos(self.settings.poll_interval) {
                asked = self.now();
                self.poll_once_more();
            }
            self.report_progress("settling", 0, 0);
        }
    }

    fn is_current(&self) -> bool {
        let book = &self.book;
        for session in self.sessions.iter().flatten() {
            for (resource, watch) in session.watches_of(book.uris.len()) {
                if !watch.is_current(resource, &book.updates) {
                    return false;
                }
            }
        }
        if let Some(streams) = &self.streams {
            let mut watches = streams.watches(book.uris.len());
            if !watches.all(|(_, resource, watch)| watch.is_current(resource, &book.updates)) {
                return false;
            }
        }
        let mut pollers = self.pollers.iter();
        pollers.all(|poller| poller.watch.is_current(poller.resource(), &book.updates))
    }

    /// Counts the updates that every client was owed and those it missed. A session whose stream was lost is
    /// counted as lost instead.
    fn count(&mut self) {
        let Book { updates, stats, .. } = &mut self.book;
        for session in self.sessions.iter().flatten().filter(|session| session.is_live()) {
            for (resource, watch) in session.watches_of(updates.resources()) {
                count_watch(stats, updates, session.kind, resource, watch);
            }
        }
        if let Some(streams) = &self.streams {
            for (kind, resource, watch) in streams.watches(updates.resources()) {
                count_watch(stats, updates, kind, resource, watch);
            }
        }
        for poller in &self.pollers {
            count_watch(stats, updates, Kind::Polling, poller.resource(), &poller.watch);
        }
    }
}

fn count_watch(stats: &mut Stats, updates: &Updates, kind: Kind, resource: usize, watch: &Watch) {
    let group = stats.group_mut(kind);
    group.owed += watch.owed(resource, updates);
    group.untold += watch.untold(resource, updates);
    group.missing += u64::from(!watch.is_current(resource, updates));
}
