//! Comparison of two contestants, round by round.

use super::{Estimate, median};
use crate::results::Better;

/// The result of a comparison of a contestant with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The contestant is better.
    Better,
    /// The contestant is worse.
    Worse,
    /// There is no difference beyond the noise.
    Equal,
    /// There are too few rounds for a verdict.
    Undecided,
}

/// A contestant next to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// Ratio of its values to those of the other one; `None` if values are zero or negative.
    pub(crate) ratio: Option<Estimate>,
    /// Which of them is better.
    pub(crate) verdict: Verdict,
}

/// How a metric is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Which of two values is better.
    pub(crate) better: Better,
    /// Difference between the rounds of one contestant.
    pub(crate) noise: Noise,
    /// A difference up to this one is none.
    pub(crate) resolution: f64,
}

/// Difference between the median of even and that of odd rounds of one contestant; zero if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Noise {
    /// Absolute difference, in the unit of the metric.
    pub(crate) difference: f64,
    /// Relative difference; `None` if a median is not positive, or there is one round only.
    pub(crate) share: Option<f64>,
}

impl Comparison {
    /// Compares the values of rounds in which both were measured; `None` without such rounds.
    ///
    /// A difference counts if zero is outside of the confidence interval of the differences, and if it is beyond the noise and the resolution.
    pub(crate) fn of(pairs: &[(f64, f64)], scale: Scale) -> Option<Self> {
        let differences: Vec<f64> = pairs.iter().map(|(one, other)| one - other).collect();
        let difference = Estimate::of(&differences)?;
        let ratios: Option<Vec<f64>> =
            pairs.iter().map(|(one, other)| (*one > 0.0 && *other > 0.0).then(|| one / other)).collect();
        let ratio = ratios.and_then(|ratios| Estimate::of(&ratios));
        let is_beyond_noise = match (ratio, scale.noise.share) {
            (Some(ratio), Some(share)) => ratio.value.max(1.0 / ratio.value) - 1.0 > share,
            _ => difference.value.abs() > scale.noise.difference,
        };
        let is_resolved = difference.value.abs() > scale.resolution;
        let is_different = (difference.low > 0.0 || difference.high < 0.0) && is_beyond_noise && is_resolved;
        let verdict = if !difference.is_confident() {
            Verdict::Undecided
        } else if !is_different {
            Verdict::Equal
        } else if (difference.value < 0.0) == (scale.better == Better::Lower) {
            Verdict::Better
        } else {
            Verdict::Worse
        };
        Some(Self { ratio, verdict })
    }
}

impl Noise {
    /// Computes the noise of a contestant from the values of its rounds.
    pub(crate) fn of(rounds: &[f64]) -> Self {
        if rounds.len() < 2 {
            return Self::default();
        }
        let half = |parity: usize| median(rounds.iter().copied().skip(parity).step_by(2));
        let (even, odd) = (half(0), half(1));
        let share = (even > 0.0 && odd > 0.0).then(|| (even / odd).max(odd / even) - 1.0);
        Self { difference: (even - odd).abs(), share }
    }

    /// Returns the larger one of each difference.
    pub(crate) fn max(self, other: Self) -> Self {
        let share = match (self.share, other.share) {
            (Some(one), Some(two)) => Some(one.max(two)),
            (one, two) => one.or(two),
        };
        Self { difference: self.difference.max(other.difference), share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pairs: &[(f64, f64)], better: Better, share: f64) -> Option<Verdict> {
        let scale = Scale { better, noise: Noise { difference: 0.0, share: Some(share) }, resolution: 0.0 };
        Comparison::of(pairs, scale).map(|comparison| comparison.verdict)
    }

    #[test]
    fn a_difference_counts_if_it_is_beyond_noise_and_interval() {
        let twice: Vec<(f64, f64)> = (0..10).map(|n| (10.0 + f64::from(n), 20.0 + f64::from(n))).collect();
        assert_eq!(verdict(&twice, Better::Lower, 0.1), Some(Verdict::Better));
        assert_eq!(verdict(&twice, Better::Higher, 0.1), Some(Verdict::Worse));
        assert_eq!(verdict(&twice, Better::Lower, 1.5), Some(Verdict::Equal), "within the noise");
        let mixed: Vec<(f64, f64)> = (0..10).map(|n| if n % 2 == 0 { (1.0, 3.0) } else { (3.0, 1.0) }).collect();
        assert_eq!(verdict(&mixed, Better::Lower, 0.0), Some(Verdict::Equal), "the interval contains zero");
        assert_eq!(verdict(&[], Better::Lower, 0.0), None);
    }

    #[test]
    fn few_rounds_decide_nothing() {
        assert_eq!(verdict(&[(1.0, 9.0); 5], Better::Lower, 0.0), Some(Verdict::Undecided));
        assert_eq!(verdict(&[(1.0, 9.0); 6], Better::Lower, 0.0), Some(Verdict::Better));
    }

    #[test]
    fn a_difference_within_the_resolution_is_none() {
        let compare = |resolution| {
            let scale = Scale { better: Better::Lower, noise: Noise::default(), resolution };
            Comparison::of(&[(10.0, 10.05); 8], scale).map(|one| one.verdict)
        };
        assert_eq!((compare(0.1), compare(0.01)), (Some(Verdict::Equal), Some(Verdict::Better)));
    }

    #[test]
    fn zeros_are_compared_without_a_ratio() {
        let noise = Noise { difference: 1.0, share: None };
        let scale = Scale { better: Better::Lower, noise, resolution: 0.0 };
        let compare = |pair| Comparison::of(&[pair; 8], scale).map(|one| (one.ratio.is_some(), one.verdict));
        assert_eq!(compare((0.0, 4.0)), Some((false, Verdict::Better)));
        assert_eq!(compare((0.0, 0.5)), Some((false, Verdict::Equal)), "within the noise");
        assert_eq!(compare((0.0, 0.0)), Some((false, Verdict::Equal)));
    }

    #[test]
    fn noise_is_the_difference_between_even_and_odd_rounds() {
        for rounds in [[10.0, 11.0, 10.0, 11.0], [11.0, 10.0, 11.0, 10.0]] {
            let noise = Noise::of(&rounds);
            assert!(
                (noise.difference - 1.0).abs() < 1e-9 && noise.share.is_some_and(|share| (share - 0.1).abs() < 1e-9)
            );
        }
        assert_eq!(Noise::of(&[1.0]), Noise::default());
        assert_eq!(Noise::of(&[0.0, 5.0, 0.0, 5.0]), Noise { difference: 5.0, share: None });
    }
}
