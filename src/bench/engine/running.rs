//! The second phase: updates go out on time while every kind of client reads. Its first part, the warm-up, is
//! not counted.

use std::time::{Duration, Instant};

use super::Engine;
use crate::bench::BenchError;
use crate::bench::engine::ticker::Ticker;
use crate::bench::load::schedule::{Pace, Schedule, nanos};
use crate::bench::load::stats::Kind;
use crate::bench::report::Second;

/// Nanoseconds that a session of the churn stays.
pub(crate) const CHURN_LIFE: u64 = 1_000_000_000;

/// The time from the begin of the phase to the first update.
const LEAD: Duration = Duration::from_millis(20);

const SECOND: u64 = 1_000_000_000;

/// The activities beside the updates.
struct Sides {
    churn: Option<Schedule>,
    polls: Option<Schedule>,
    /// Slow sessions, each with the bytes that it may read, times nanoseconds per second.
    slow: Vec<(usize, u64)>,
    /// The time of the last slow read.
    slow_at: u64,
}

impl Engine<'_> {
    /// Publishes and reads for the time in the settings.
    pub(crate) fn run(&mut self) -> Result<(), BenchError> {
        let settings = self.settings;
        // A little later, so that the first update is not late already.
        let begin = self.now() + nanos(LEAD);
        let measured = begin + nanos(settings.warm_up);
        let end = measured + nanos(settings.duration);
        self.book.stats.window = measured..end;
        self.running = true;
        let _ticker = self.start_publishing(begin);
        let mut sides = self.sides(begin);
        while self.now() < measured && !self.is_stopped() {
            self.step(measured, &mut sides)?;
            self.report_progress("warming up", self.now().saturating_sub(begin), measured - begin);
        }
        let cpu = self.cpu();
        let mut second = self.first_second(measured);
        while self.now() < end && !self.is_stopped() {
            self.step(second.end.min(end), &mut sides)?;
            let now = self.now();
            if now >= second.end {
                self.end_second(&mut second);
            }
            self.report_progress(
                "measuring",
                now.saturating_sub(measured).min(end - measured),
                end - measured,
            );
        }
        // A rest of less than half a second would show as a drop of the rate.
        if self.now() > second.begin + SECOND / 2 {
            self.end_second(&mut second);
        }
        let now = self.now();
        self.book.stats.window.end = now.min(end);
        let after = self.cpu();
        self.readings.server_cpu = difference(after.server, cpu.server);
        self.readings.own_cpu = difference(after.own, cpu.own);
        if let Some(schedule) = &mut self.schedule {
            schedule.stop(now);
        }
        Ok(())
    }

    fn start_publishing(&mut self, begin: u64) -> Option<Ticker> {
        self.publisher.as_ref()?;
        let pace = self.settings.pace;
        let active = self.settings.active();
        self.schedule = Some(Schedule::new(pace, self.book.uris.len(), begin, active));
        match pace {
            // Flat out the answers wake the loop.
            Pace::FlatOut => None,
            Pace::PerSecond(rate) => {
                let begin: Instant = self.clock + Duration::from_nanos(begin);
                Some(Ticker::start(self.waker.clone(), begin, rate))
            }
        }
    }

    fn sides(&self, begin: u64) -> Sides {
        let active = self.settings.active();
        let mut sides = Sides {
            churn: None,
            polls: None,
            slow: Vec::new(),
            slow_at: begin,
        };
        if self.settings.churn > 0.0 {
            let pace = Pace::PerSecond(self.settings.churn);
            sides.churn = Some(Schedule::new(pace, 1, begin, active));
        }
        let pollers = self.pollers.len();
        if pollers > 0 {
            let rate = pollers as f64 / self.settings.poll_interval.as_secs_f64();
            sides.polls = Some(Schedule::new(Pace::PerSecond(rate), pollers, begin, active));
        }
        for (index, session) in self.sessions.iter().enumerate() {
            if let Some(session) = session
                && session.kind == Kind::Slow
            {
                sides.slow.push((index, 0));
            }
        }
        sides
    }

    /// Handles events until `until` at the longest, and starts the activities that are due.
    fn step(&mut self, until: u64, sides: &mut Sides) -> Result<(), BenchError> {
        let now = self.now();
        let mut next = until;
        for schedule in [&sides.churn, &sides.polls].into_iter().flatten() {
            next = next.min(schedule.next_at(now).unwrap_or(until));
        }
        self.turn(next)?;
        let now = self.now();
        if let Some(churn) = &mut sides.churn {
            self.churn(churn, now)?;
        }
        if let Some(polls) = &mut sides.polls {
            while let Some(due) = polls.due(now) {
                let asked = self.pollers[due.resource].ask(&self.book, &self.registry, now);
                // A poller that cannot ask is lost like a stream; the run goes on.
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
        while let Some((until, index)) = self.churners.front().copied()
            && until <= now
        {
            self.churners.pop_front();
            self.retire(index)?;
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
        // Counted in bytes times nanoseconds per second, so that rounding loses no byte.
        let gained = passed * self.settings.slow_rate;
        for (index, credit) in &mut sides.slow {
            *credit += gained;
            let bytes = usize::try_from(*credit / SECOND).unwrap_or(super::READ_BYTES);
            let bytes = bytes.min(super::READ_BYTES);
            if bytes > 0 {
                // Credit is not saved up: after a pause the client would read in a burst.
                *credit = (*credit % SECOND).min(gained);
                self.read_bytes(*index, bytes, now);
            }
        }
    }

    /// Reads some bytes of a session that is not registered for events.
    fn read_bytes(&mut self, index: usize, bytes: usize, now: u64) {
        let Some(Some(session)) = self.sessions.get_mut(index) else {
            return;
        };
        let read = session.read_once(&mut self.book, &self.registry, &mut self.buffer[..bytes], now);
        if let Err(reason) = read {
            self.lose(index, true, reason);
        }
    }

    /// Reads the CPU of both processes.
    fn cpu(&mut self) -> CpuReading {
        CpuReading {
            server: match &mut self.server {
                Some(server) => server.cpu_nanos(),
                None => None,
            },
            own: self.own.cpu_nanos(),
        }
    }

    fn first_second(&mut self, begin: u64) -> RunningSecond {
        self.book.stats.second.reset();
        self.book.stats.second_deliveries = 0;
        RunningSecond {
            begin,
            end: begin + SECOND,
            cpu: self.cpu(),
        }
    }

    fn end_second(&mut self, second: &mut RunningSecond) {
        let now = self.now();
        let cpu = self.cpu();
        let nanos = (now - second.begin).max(1);
        let server_kib = self.server_kib();
        let stats = &mut self.book.stats;
        let length = (now - second.begin) as f64 / 1e9;
        self.timeline.push(Second {
            at_s: (now - stats.window.start) as f64 / 1e9,
            deliveries_per_s: stats.second_deliveries as f64 / length,
            p99_us: (!stats.second.is_empty()).then(|| stats.second.value_at_quantile(0.99)),
            server_cpu_percent: percent(difference(cpu.server, second.cpu.server), nanos),
            server_kib,
            own_cpu_percent: percent(difference(cpu.own, second.cpu.own), nanos),
        });
        stats.second.reset();
        stats.second_deliveries = 0;
        *second = RunningSecond {
            begin: now,
            end: second.end + SECOND,
            cpu,
        };
    }
}

/// The current second of the timeline.
struct RunningSecond {
    begin: u64,
    end: u64,
    cpu: CpuReading,
}

/// Nanoseconds of CPU that both processes have used; none where they cannot be read.
#[derive(Clone, Copy)]
struct CpuReading {
    server: Option<u64>,
    own: Option<u64>,
}

fn difference(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// Returns the share of one core.
fn percent(cpu_nanos: Option<u64>, nanos: u64) -> Option<f64> {
    Some(cpu_nanos? as f64 / nanos as f64 * 100.0)
}
