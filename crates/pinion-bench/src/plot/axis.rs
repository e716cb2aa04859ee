use crate::number::short;

/// Most ticks of a linear axis.
const TICKS_MAX: usize = 20;

/// An axis of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Its name, with a unit.
    pub(crate) name: String,
    /// How values are placed on it.
    pub(crate) scale: Scale,
}

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// In proportion, from zero.
    Linear,
    /// By their logarithm, with a tick at round numbers.
    Logarithmic,
    /// By their logarithm, with a tick at every value.
    Values,
}

/// An axis with the range of its values.
#[derive(Clone, Debug)]
pub(super) struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    /// Values with a tick, in ascending order.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// Returns the range of an axis for these values. Those that it cannot show are ignored.
    pub(super) fn range(&self, values: impl Iterator<Item = f64>) -> Range {
        let is_linear = self.scale == Scale::Linear;
        let mut values: Vec<f64> = values.filter(|value| value.is_finite() && (is_linear || *value > 0.0)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (first, last) = (values.first().copied().unwrap_or(1.0), values.last().copied().unwrap_or(1.0));
        if is_linear {
            let high = if last > 0.0 { last * 1.05 } else { 1.0 };
            let step = step(high);
            let ticks = (0..=((high / step) as usize).min(TICKS_MAX)).map(|number| number as f64 * step).collect();
            return Range { scale: self.scale, low: 0.0, high, ticks };
        }
        // Room for marks at the ends.
        let high = if self.scale == Scale::Values { last } else { last * 1.05 }.max(first * 1.5);
        let ticks = if self.scale == Scale::Values { values } else { round_ticks(first, high) };
        Range { scale: self.scale, low: first.log2(), high: high.log2(), ticks }
    }
}

impl Range {
    /// Returns the position of a value between 0 and 1; `None` for values that the axis cannot show.
    pub(super) fn position(&self, value: f64) -> Option<f64> {
        let value = if self.scale == Scale::Linear { value } else { value.log2() };
        let position = (value - self.low) / (self.high - self.low);
        position.is_finite().then(|| position.clamp(0.0, 1.0))
    }

    /// Formats a tick.
    pub(super) fn label(&self, tick: f64) -> String {
        if self.scale == Scale::Linear { format!("{tick:.*}", decimals(step(self.high))) } else { short(tick) }
    }
}

/// Returns the digits after the point that a number with one significant digit needs.
fn decimals(value: f64) -> usize {
    let digits = if value > 0.0 && value < 1.0 { (-value.log10()).ceil() } else { 0.0 };
    (digits as usize).min(6)
}

/// Returns round numbers in a range, at most seven: the powers of ten with 1, 2 and 5 of each, or fewer of them.
fn round_ticks(low: f64, high: f64) -> Vec<f64> {
    let exponents = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    for factors in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
        let ticks =
            exponents.clone().flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)));
        let ticks: Vec<f64> = ticks.filter(|tick| (low..=high).contains(tick)).collect();
        if ticks.len() <= 7 {
            return if ticks.is_empty() { vec![low, high] } else { ticks };
        }
    }
    exponents.step_by(2).map(|exponent| 10f64.powi(exponent)).filter(|tick| (low..=high).contains(tick)).collect()
}

/// Returns a round distance of about five ticks up to a maximum.
fn step(maximum: f64) -> f64 {
    let power = 10f64.powf((maximum / 5.0).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| maximum / (power * factor) <= 6.0);
    power * factor.unwrap_or(10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (maximum, expected) in [(1.08, 0.2), (0.5, 0.1), (37.0, 10.0), (100.0, 20.0)] {
            assert!((step(maximum) - expected).abs() < 1e-9, "{maximum}: {}", step(maximum));
        }
        assert_eq!(round_ticks(1.5, 60.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(round_ticks(1.1, 1.9), [1.1, 1.9], "a range without a round number");
        assert!(round_ticks(0.001, 1e6).len() <= 7);
    }

    #[test]
    fn values_that_an_axis_cannot_show_have_no_position() {
        let axis = Axis { name: String::new(), scale: Scale::Values };
        let range = axis.range([0.0, f64::NAN, 1.0, 100.0].into_iter());
        assert_eq!((range.position(0.0), range.position(f64::NAN)), (None, None));
        assert!(range.position(10.0).is_some_and(|position| (position - 0.5).abs() < 1e-9));
        let nothing = axis.range(std::iter::empty());
        assert!(nothing.ticks.iter().all(|tick| tick.is_finite()));
    }
}
