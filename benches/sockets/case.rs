//! The measurement of several servers that take turns.
//!
//! As many servers as fit are open together and take one step each in turn, so that a disturbance of the
//! machine meets all of them; ratios are then taken repetition by repetition.

use std::fmt::Display;

use crate::support::{RUNS, Spread, Table, ratios};

use super::kind::Kind;

/// A server in the middle of one repetition.
pub(crate) trait Trial: Sized {
    /// The figures of a repetition.
    type Figures;
    /// The number of steps of a repetition.
    const STEPS: usize;

    /// Takes the step with this number.
    fn step(&mut self, number: usize) -> anyhow::Result<()>;

    /// Returns the figures, and ends the server.
    fn end(self) -> anyhow::Result<Self::Figures>;
}

/// The repetitions of one server, which are one line of a table.
pub(crate) struct Case<F> {
    pub(crate) kind: Kind,
    runs: Vec<F>,
    /// The reason for which it could not be measured; it is not tried again.
    failure: Option<String>,
}

/// Measures each of these servers [`RUNS`] times, `together` of them at once. The failure of one does not
/// keep the others from being measured.
pub(crate) fn measure<T: Trial>(
    kinds: &[Kind],
    together: usize,
    start: impl Fn(Kind) -> anyhow::Result<T>,
) -> Vec<Case<T::Figures>> {
    let mut cases: Vec<Case<T::Figures>> = kinds.iter().map(|kind| Case::new(*kind)).collect();
    for _ in 0..RUNS {
        for cases in cases.chunks_mut(together) {
            repeat(cases, &start);
        }
    }
    cases
}

fn repeat<T: Trial>(cases: &mut [Case<T::Figures>], start: impl Fn(Kind) -> anyhow::Result<T>) {
    let mut trials: Vec<Option<T>> = Vec::new();
    for case in cases.iter_mut() {
        let kind = case.kind;
        trials.push(case.attempt(|| start(kind)));
    }
    for number in 0..T::STEPS {
        for (case, trial) in std::iter::zip(cases.iter_mut(), &mut trials) {
            if let Some(running) = trial
                && case.attempt(|| running.step(number)).is_none()
            {
                // Ended at once, so that it takes no CPU from the others.
                *trial = None;
            }
        }
    }
    for (case, trial) in std::iter::zip(cases, trials) {
        if let Some(trial) = trial
            && let Some(figures) = case.attempt(|| trial.end())
        {
            case.runs.push(figures);
        }
    }
}

impl<F> Case<F> {
    fn new(kind: Kind) -> Case<F> {
        Case {
            kind,
            runs: Vec::new(),
            failure: None,
        }
    }

    /// Returns the result of `step`; none when it, or a step before it, failed.
    fn attempt<T>(&mut self, step: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        if self.failure.is_some() {
            return None;
        }
        match step() {
            Ok(result) => Some(result),
            Err(error) => {
                self.failure = Some(format!("{error:#}"));
                None
            }
        }
    }

    /// Returns a figure over all repetitions.
    pub(crate) fn spread(&self, figure: impl Fn(&F) -> f64) -> Option<Spread> {
        Spread::of(self.runs.iter().map(figure))
    }

    /// Returns a figure as a multiple of the same figure of `twin`, which is one of `all`; none where there
    /// is no other such server.
    pub(crate) fn beside(
        &self,
        all: &[Case<F>],
        twin: Option<Kind>,
        figure: impl Fn(&F) -> f64,
    ) -> Option<Spread> {
        let twin = twin.filter(|twin| *twin != self.kind)?;
        let twin = all.iter().find(|case| case.kind == twin)?;
        let ours: Vec<f64> = self.runs.iter().map(&figure).collect();
        let theirs: Vec<f64> = twin.runs.iter().map(&figure).collect();
        ratios(&ours, &theirs)
    }

    /// Adds its line to the table, and below the table the reason if it could not be measured.
    pub(crate) fn add_to(&self, table: &mut Table, size: impl Display, figures: Vec<Option<Spread>>) {
        let label = format!("{}, {size}", self.kind.label());
        if let Some(failure) = &self.failure {
            table.add_note(format!("{label}: not measured: {failure}"));
        }
        table.add_spreads(label, figures);
    }
}
