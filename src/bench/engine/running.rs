//! The second phase: updates go out on time and everybody reads as they do. The first part of it counts nowhere.

use std::time::{Duration, Instant};

use super::Engine;
use crate::bench::BenchError;
use crate::bench::engine::ticker::Ticker;
use crate::bench::load::schedule::{Pace, Schedule, nanos};
use crate::bench::load::stats::Kind;
use crate::bench::report::Second;

/// How long a session of the churn stays.
pub(crate) const CHURN_LIFE: u64 = 1_000_000_000;

/// The first update is due so long after the phase began.
const LEAD: Duration = Duration::from_millis(20);

const SECOND: u64 = 1_000_000_000;

/// What happens beside the updates.
struct Sides {
    churn: Option<Schedule>,
    polls: Option<Schedule>,
    slow: Vec<(usize, u64)>,
    slow_at: u64,
}

impl Engine<'_> {
    /// Publishes and reads for the time that was asked for.
    pub(crate) fn run(&mut self) -> Result<(), BenchError> {
        let settings = self.settings;
        let begin = self.now() + nanos(LEAD);
        let measured = begin + nanos(settings.warm_up);
        let end = measured + nanos(settings.duration);
        self.book.stats.window = measured..end;
        self.running = true;
        let _ticker = self.start_publishing(begin);
        let mut sides = self.sides(begin);
        while self.now() < measured && !self.is_stopped() {
            self.step(measured, &mut sides)?;
            self.tell("warming up", self.now().saturating_sub(begin), measured - begin);
        }
        let cpu = self.cpu();
        let mut second = self.first_second(measured);
        while self.now() < end && !self.is_stopped() {
            self.step(second.end.min(end), &mut sides)?;
            let now = self.now();
            if now >= second.end {
                self.end_second(&mut second);
            }
            self.tell(
                "measuring",
                now.saturating_sub(measured).min(end - measured),
                end - measured,
            );
        }
        if self.now() > second.begin + SECOND / 2 {
            self.end_second(&mut second);
        }
        let now = self.now();
        self.book.stats.window.end = now.min(end);
        let after = self.cpu();
        self.readings.server_cpu = after.0.zip(cpu.0).map(|(after, before)| after - before);
        self.readings.own_cpu = after.1.zip(cpu.1).map(|(after, before)| after - before);
        if let Some(schedule) = &mut self.schedule {
            schedule.stop(now);
        }
        Ok(())
    }

    fn start_publishing(&mut self, begin: u64) -> Option<Ticker> {
        self.publisher.as_ref()?;
        let (pace, active) = (self.settings.pace, self.settings.active());
        self.schedule = Some(Schedule::new(pace, self.book.uris.len(), begin, active));
        match pace {
            Pace::FlatOut => None,
            Pace::PerSecond(rate) => {
                let begin: Instant = self.clock + Duration::from_nanos(begin);
                Some(Ticker::start(self.waker.clone(), begin, rate))
            }
        }
    }

    fn sides(&self, begin: u64) -> Sides {
        let active = self.settings.active();
        let every =
            |rate: f64| Schedule::new(Pace::PerSecond(rate), self.pollers.len().max(1), begin, active);
        let asked = self.pollers.len() as f64 / self.settings.poll_interval.as_secs_f64();
        let slow = self.sessions.iter().enumerate().filter_map(|(index, session)| {
            let is_slow = session.as_ref().is_some_and(|session| session.kind == Kind::Slow);
            is_slow.then_some((index, 0))
        });
        Sides {
            churn: (self.settings.churn > 0.0).then(|| every(self.settings.churn)),
            polls: (!self.pollers.is_empty()).then(|| every(asked)),
            slow: slow.collect(),
            slow_at: begin,
        }
    }

    /// One turn, and what is due beside the updates.
    fn step(&mut self, until: u64, sides: &mut Sides) -> Result<(), BenchError> {
        let now = self.now();
        let next = [&sides.churn, &sides.polls]
            .into_iter()
            .flatten()
            .filter_map(|schedule| schedule.next_at(now));
        self.turn(next.fold(until, u64::min))?;
        let now = self.now();
        if let Some(churn) = &mut sides.churn {
            self.churn(churn, now)?;
        }
        if let Some(polls) = &mut sides.polls {
            while let Some(due) = polls.due(now) {
                let asked = self.pollers[due.resource].ask(&self.book, &self.registry, now);
                if let Err(error) = asked {
                    self.book.stats.lose(error.to_string());
                }
                polls.advance();
            }
        }
        self.read_slowly(sides, now);
        Ok(())
    }

    fn churn(&mut self, churn: &mut Schedule, now: u64) -> Result<(), BenchError> {
        while churn.due(now).is_some() {
            self.connect(Kind::Churn);
            churn.advance();
        }
        while self.churners.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, index)) = self.churners.pop_front() {
                self.retire(index)?;
            }
        }
        Ok(())
    }

    /// Gives each slow reader the bytes that its rate allows since the last time.
    fn read_slowly(&mut self, sides: &mut Sides, now: u64) {
        let passed = now.saturating_sub(sides.slow_at);
        if passed < nanos(super::TICK) {
            return;
        }
        sides.slow_at = now;
        // In bytes times nanoseconds per second, so that nothing is lost to rounding.
        let gained = passed * self.settings.slow_rate;
        for (index, credit) in &mut sides.slow {
            *credit += gained;
            let bytes = usize::try_from(*credit / SECOND).unwrap_or(super::READ_BYTES);
            let bytes = bytes.min(super::READ_BYTES);
            if bytes > 0 {
                *credit = (*credit % SECOND).min(gained);
                self.read_bytes(*index, bytes, now);
            }
        }
    }

    /// Reads some bytes of a session that is not told when it has any.
    fn read_bytes(&mut self, index: usize, bytes: usize, now: u64) {
        let Some(session) = self.sessions.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let read = session.read_once(&mut self.book, &self.registry, &mut self.buffer[..bytes], now);
        if let Err(reason) = read {
            self.lose(index, true, reason);
        }
    }

    fn cpu(&mut self) -> (Option<u64>, Option<u64>) {
        (
            self.server.as_mut().and_then(|server| server.cpu_nanos()),
            self.own.cpu_nanos(),
        )
    }

    fn first_second(&mut self, begin: u64) -> Running {
        self.book.stats.second.reset();
        self.book.stats.second_deliveries = 0;
        Running {
            begin,
            end: begin + SECOND,
            cpu: self.cpu(),
        }
    }

    fn end_second(&mut self, second: &mut Running) {
        let (now, cpu) = (self.now(), self.cpu());
        let share = |after: Option<u64>, before: Option<u64>| {
            let nanos = after?.saturating_sub(before?);
            Some(nanos as f64 / (now - second.begin).max(1) as f64 * 100.0)
        };
        let stats = &mut self.book.stats;
        let length = (now - second.begin) as f64 / 1e9;
        self.timeline.push(Second {
            at_s: (now - stats.window.start) as f64 / 1e9,
            deliveries_per_s: stats.second_deliveries as f64 / length,
            p99_us: (!stats.second.is_empty()).then(|| stats.second.value_at_quantile(0.99)),
            server_cpu_percent: share(cpu.0, second.cpu.0),
            server_kib: self.server.as_ref().and_then(|server| server.resident_kib()),
            own_cpu_percent: share(cpu.1, second.cpu.1),
        });
        stats.second.reset();
        stats.second_deliveries = 0;
        *second = Running {
            begin: now,
            end: second.end + SECOND,
            cpu,
        };
    }
}

/// The second that is running.
struct Running {
    begin: u64,
    end: u64,
    cpu: (Option<u64>, Option<u64>),
}
