//! A measurement of several servers that take turns, repeated.
//!
//! Owns: the order of it: as many servers as fit are open together and take a step each in turn, so that what
//! disturbs the machine disturbs all of them; and the figures of every server, from which ratios are made repetition
//! by repetition. Never: knows what a step is; a row's [`Trial`] does.

use crate::support::{RUNS, Spread, Table, ratios};

use super::kind::Kind;

/// A server in the middle of one repetition.
pub(crate) trait Trial: Sized {
    /// What a repetition comes to.
    type Figures;
    /// How many steps a repetition has.
    const STEPS: usize;

    /// Takes the step with this number.
    fn step(&mut self, number: usize) -> anyhow::Result<()>;

    /// Takes the figures; the server ends.
    fn end(self) -> anyhow::Result<Self::Figures>;
}

/// One server, and so one line of a table.
pub(crate) struct Case<F> {
    pub(crate) kind: Kind,
    runs: Vec<F>,
    /// Why it could not be measured; it is not tried again.
    failure: Option<String>,
}

/// Measures each of these servers as often as every figure is, `together` of them at once. One that fails does not
/// keep the others from being measured.
pub(crate) fn measure<T: Trial>(
    kinds: &[Kind],
    together: usize,
    start: impl Fn(Kind) -> anyhow::Result<T>,
) -> Vec<Case<T::Figures>> {
    let mut cases: Vec<_> = kinds.iter().map(|kind| Case::new(*kind)).collect();
    for _ in 0..RUNS {
        for cases in cases.chunks_mut(together) {
            repeat(cases, &start);
        }
    }
    cases
}

fn repeat<T: Trial>(cases: &mut [Case<T::Figures>], start: impl Fn(Kind) -> anyhow::Result<T>) {
    let start = |case: &mut Case<T::Figures>| {
        let kind = case.kind;
        case.attempt(|| start(kind))
    };
    let mut trials: Vec<Option<T>> = cases.iter_mut().map(start).collect();
    for number in 0..T::STEPS {
        for (case, slot) in cases.iter_mut().zip(&mut trials) {
            let trial = slot.take();
            *slot = trial.and_then(|mut trial| case.attempt(|| trial.step(number).map(|()| trial)));
        }
    }
    for (case, trial) in cases.iter_mut().zip(trials) {
        let figures = trial.and_then(|trial| case.attempt(|| trial.end()));
        case.runs.extend(figures);
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

    /// What `step` comes to; none when it, or one before it, failed.
    fn attempt<T>(&mut self, step: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        if self.failure.is_some() {
            return None;
        }
        step()
            .map_err(|error| self.failure = Some(format!("{error:#}")))
            .ok()
    }

    /// A figure over all repetitions.
    pub(crate) fn spread(&self, figure: impl Fn(&F) -> f64) -> Option<Spread> {
        Spread::of(self.runs.iter().map(figure))
    }

    /// A figure as a multiple of the same of `twin`, which is one of `all`; none where there is no other such server.
    pub(crate) fn beside(
        &self,
        all: &[Case<F>],
        twin: Option<Kind>,
        figure: impl Fn(&F) -> f64,
    ) -> Option<Spread> {
        let twin = twin.filter(|twin| *twin != self.kind)?;
        let twin = all.iter().find(|case| case.kind == twin)?;
        let values = |case: &Case<F>| case.runs.iter().map(&figure).collect::<Vec<f64>>();
        ratios(&values(self), &values(twin))
    }

    /// Adds its line to the table, and below the table why it could not be measured.
    pub(crate) fn tell(&self, table: &mut Table, sessions: usize, figures: Vec<Option<Spread>>) {
        let label = format!("{}, {sessions}", self.kind.label());
        if let Some(failure) = &self.failure {
            table.note(format!("{label}: not measured: {failure}"));
        }
        table.spreads(label, figures);
    }
}
