//! Axes: their range, whether they are logarithmic, and ticks at round numbers.

/// The ticks of an axis, about.
const TICKS: f64 = 5.0;
/// Values whose greatest is this many times the least need a logarithmic axis, or the small ones are a line
/// on the ground.
const LOG_FROM: f64 = 20.0;
/// The steps between the ticks of an axis of time, in seconds.
const TIME_STEPS: [f64; 15] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 3_600.0,
];

/// The axis of values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    pub(crate) is_log: bool,
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    /// Returns an axis from 0 to a round number that is not below any of the values.
    pub(crate) fn linear(values: &[f64]) -> Axis {
        let most = match greatest(values) {
            most if most > 0.0 => most,
            _ => 1.0,
        };
        let step = round_step(most / TICKS);
        let count = (most / step * (1.0 - 1e-9)).ceil();
        Axis {
            low: 0.0,
            high: count * step,
            is_log: false,
            ticks: (0..=count as usize).map(|tick| tick as f64 * step).collect(),
        }
    }

    /// Returns a logarithmic axis where the values span more than one order of magnitude, else a linear one.
    pub(crate) fn fitting(values: &[f64]) -> Axis {
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        let most = greatest(values);
        match least.is_finite() && most / least >= LOG_FROM {
            true => Axis::logarithmic(least, most),
            false => Axis::linear(values),
        }
    }

    fn logarithmic(least: f64, most: f64) -> Axis {
        let first = least.log10().floor() as i32;
        let last = most.log10().floor() as i32;
        let mut round = Vec::new();
        for decade in first..=last + 1 {
            round.extend([1.0, 2.0, 5.0].map(|part| part * 10f64.powi(decade)));
        }
        let low = round.iter().copied().filter(|at| *at <= least * (1.0 + 1e-9));
        let low = low.fold(round[0], f64::max);
        let high = round.iter().copied().filter(|at| *at >= most * (1.0 - 1e-9));
        let high = high.fold(f64::INFINITY, f64::min);
        round.retain(|at| (low..=high).contains(at));
        // Over many decades the powers of ten are enough, and of very many every second one or fewer.
        let is_wide = round.len() > 8;
        let every = (last - first) / 6 + 1;
        round.retain(|at| {
            let power = at.log10();
            !is_wide || (power - power.round()).abs() < 1e-6 && (power.round() as i32 - first) % every == 0
        });
        Axis {
            low,
            high,
            is_log: true,
            ticks: round,
        }
    }

    /// Returns the place of a value between 0, the low end, and 1; values outside lie on the ends.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = match self.is_log {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        match place.is_finite() {
            true => place.clamp(0.0, 1.0),
            false => 0.0,
        }
    }
}

/// Returns the ticks of an axis of time that ends at `last`, in seconds.
pub(crate) fn time_ticks(last: f64) -> Vec<f64> {
    let wanted = last / TICKS;
    // Beyond the steps, an hour lies between two ticks, or more.
    let beyond = (wanted / 3_600.0).ceil() * 3_600.0;
    let step = TIME_STEPS.into_iter().find(|step| *step >= wanted);
    let step = step.unwrap_or(beyond);
    let count = (last / step + 1e-9).floor() as usize;
    (0..=count).map(|tick| tick as f64 * step).collect()
}

fn greatest(values: &[f64]) -> f64 {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    finite.fold(0.0, f64::max)
}

/// Returns the next of 1, 2, 2.5, 5, 10, 20, … that is not below.
fn round_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0].map(|step| step * power);
    // Not quite: 0.3 divided by 3 is a little more than 0.1.
    let step = steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9));
    step.unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn linear_axis_ends_at_a_round_number() {
        for (most, high, ticks) in [
            (0.0, 1.0, 6),
            (0.7, 0.8, 5),
            (13.0, 15.0, 4),
            (100.0, 100.0, 6),
            (2_400.0, 2_500.0, 6),
            (9_999.0, 10_000.0, 6),
        ] {
            let axis = Axis::linear(&[most]);
            assert!((axis.high - high).abs() < 1e-9, "{most}: {axis:?}");
            assert_eq!(axis.ticks.len(), ticks, "{most}: {axis:?}");
        }
    }

    #[test]
    fn wide_values_have_a_logarithmic_axis() {
        assert!(!Axis::fitting(&[100.0, 1_900.0]).is_log);
        let axis = Axis::fitting(&[90.0, 3_000.0]);
        assert_eq!(axis.ticks, [50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]);
        assert_eq!((axis.place(50.0), axis.place(5_000.0)), (0.0, 1.0));
        assert!((axis.place(500.0) - 0.5).abs() < 1e-9);
        let axis = Axis::fitting(&[30.0, 4_000_000.0]);
        assert_eq!(axis.ticks, [100.0, 1e3, 1e4, 1e5, 1e6]);
    }

    #[test]
    fn time_has_round_ticks() {
        assert_eq!(time_ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(time_ticks(1.2).len(), 3);
        assert_eq!(time_ticks(61.0), [0.0, 15.0, 30.0, 45.0, 60.0]);
        assert_eq!(time_ticks(3_600.0).len(), 4);
    }

    proptest! {
        #[test]
        fn axis_holds_every_value(values in proptest::collection::vec(0.0..1e18f64, 1..20)) {
            for axis in [Axis::linear(&values), Axis::fitting(&values)] {
                prop_assert!((2..=9).contains(&axis.ticks.len()), "{:?}", axis);
                let most = greatest(&values);
                prop_assert!(axis.high >= most * (1.0 - 1e-9) && axis.high <= most.max(0.1) * 10.0 + 1.0);
                for value in &values {
                    prop_assert!((0.0..=1.0).contains(&axis.place(*value)));
                }
            }
        }
    }
}
