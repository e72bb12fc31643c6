//! The first phase: every session connects, subscribes and opens its stream, a limited number at a time.

use std::time::Duration;

use super::{Engine, broken};
use crate::bench::BenchError;
use crate::bench::load::pipeline::PipelineEnds;
use crate::bench::load::schedule::nanos;
use crate::bench::load::session::Session;
use crate::bench::load::stats::Kind;

/// Sessions that are opening at the same time: less than any listener's backlog.
const OPENING_MAX: usize = 100;

/// The pause after the last session has opened: some servers are ready only a moment after they say so.
const PAUSE: Duration = Duration::from_millis(300);

impl Engine<'_> {
    /// Opens all sessions.
    pub(crate) fn open(&mut self) -> Result<(), BenchError> {
        self.readings.empty_kib = self.server_kib();
        let settings = self.settings;
        let kinds = [
            (Kind::Reading, settings.sessions),
            (Kind::Slow, settings.slow),
            (Kind::Stalled, settings.stalled),
        ];
        let mut plan: Vec<Kind> = Vec::new();
        for (kind, count) in kinds {
            plan.extend(std::iter::repeat_n(kind, count));
            self.book.stats.group_mut(kind).sessions = count as u64;
        }
        self.book.stats.group_mut(Kind::Polling).sessions = self.pollers.len() as u64;
        let begin = self.now();
        let all = plan.len();
        let until = begin + nanos(settings.open_timeout);
        while self.live + self.failed < all && !self.is_stopped() {
            let now = self.now();
            if now > until {
                break;
            }
            // By the clock rather than by a pause per session, so that a slow turn does not lower the rate.
            let allowed = ((now - begin) as f64 / 1e9 * settings.connect_rate) as usize + 1;
            match &mut self.streams {
                Some(streams) => streams.open_until(allowed.min(all), &self.book, &self.registry)?,
                None => self.connect_until(allowed.min(all), &plan),
            }
            let pace = Duration::from_secs_f64(1.0 / settings.connect_rate);
            self.turn(now + nanos(pace.max(Duration::from_millis(1))))?;
            self.report_progress("opening", self.live as u64, all as u64);
        }
        self.readings.opened_in = Duration::from_nanos(self.now() - begin);
        self.check_all_open(all)?;
        self.idle(PAUSE)?;
        self.readings.idle_kib = self.server_kib();
        Ok(())
    }

    fn connect_until(&mut self, allowed: usize, plan: &[Kind]) {
        while self.opening < OPENING_MAX && self.sessions.len() < allowed {
            let kind = plan[self.sessions.len()];
            self.connect(kind);
        }
    }

    fn check_all_open(&self, all: usize) -> Result<(), BenchError> {
        if self.live == all {
            return Ok(());
        }
        if self.is_stopped() {
            return Err(BenchError::Failed(
                "interrupted before all sessions were open".to_owned(),
            ));
        }
        let lost = &self.book.stats.lost_reason;
        let late = format!("no answer within --open-timeout {:?}", self.settings.open_timeout);
        let reason = self.failed_reason.as_ref().or(lost.as_ref()).unwrap_or(&late);
        Err(BenchError::Failed(format!(
            "{} of {all} sessions could not be opened: {reason}",
            all - self.live
        )))
    }

    /// Begins to open one more session.
    pub(crate) fn connect(&mut self, kind: Kind) {
        // Tokens are indices, so the ones of ended sessions are used again.
        let index = self.free.pop().unwrap_or(self.sessions.len());
        let revision = self.settings.revision_of(index);
        let opened = Session::open(
            &self.book,
            &self.registry,
            (index, kind),
            revision,
            self.settings.subscribe,
        );
        let session = match opened {
            Ok(session) => {
                self.opening += 1;
                Some(session)
            }
            Err(error) => {
                self.failed += 1;
                self.failed_reason.get_or_insert(error.to_string());
                None
            }
        };
        match self.sessions.get_mut(index) {
            Some(place) => *place = session,
            None => self.sessions.push(session),
        }
    }

    /// Handles events for this time.
    pub(crate) fn idle(&mut self, length: Duration) -> Result<(), BenchError> {
        let until = self.now() + nanos(length);
        while self.now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    /// Ends a session here and at the server.
    pub(crate) fn retire(&mut self, index: usize) -> Result<(), BenchError> {
        let now = self.now();
        let Some(session) = self.sessions[index].take() else {
            return Ok(());
        };
        self.live -= 1;
        self.free.push(index);
        if let Some(request) = session.farewell(&self.book.target) {
            let target = &self.book.target;
            let registry = &self.registry;
            let sent = self
                .cleaner
                .send(PipelineEnds { target, registry }, &request, (), now);
            sent.map_err(|error| broken(&error))?;
        }
        Ok(())
    }
}
