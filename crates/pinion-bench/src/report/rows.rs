use crate::{
    results::{Metric, Results, Turn},
    statistics::{Comparison, Estimate, Noise, Scale, median},
};

/// Most values of a parameter that are reported: a file may have any.
const PARAMETERS_MAX: usize = 100;

/// The values of a metric for one value of the scenario's parameter, of all contestants.
pub(crate) struct Row {
    pub(crate) metric: Metric,
    pub(crate) parameter: Option<f64>,
    /// A cell per contestant.
    pub(crate) cells: Vec<Cell>,
    /// The difference of a contestant from itself: the largest one of all.
    pub(crate) noise: Noise,
}

/// The values of one contestant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// All values, in ascending order.
    pub(crate) values: Vec<f64>,
    /// Numbers of rounds, with the median of each.
    pub(crate) rounds: Vec<(usize, f64)>,
    /// The median of the rounds.
    pub(crate) estimate: Option<Estimate>,
    /// Number of failures.
    pub(crate) failures: usize,
}

impl Cell {
    /// Returns a percentile of all values by the nearest rank; not a number without values.
    pub(crate) fn percentile(&self, quantile: f64) -> f64 {
        let rank = (self.values.len() as f64 * quantile).ceil() as usize;
        self.values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// Returns the mean of all values; not a number without values.
    pub(crate) fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// Returns the standard deviation of all values, as that of a sample; not a number with fewer than two.
    pub(crate) fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        if self.values.len() < 2 { f64::NAN } else { (squares / (self.values.len() - 1) as f64).sqrt() }
    }

    /// Returns the medians of the rounds, in their order.
    pub(crate) fn medians(&self) -> Vec<f64> {
        self.rounds.iter().map(|(_, median)| *median).collect()
    }

    /// Returns the median; `None` without values.
    pub(crate) fn median(&self) -> Option<f64> {
        self.estimate.map(|estimate| estimate.value)
    }
}

impl Row {
    /// Compares two contestants by the rounds in which both were measured; `None` without such rounds.
    pub(crate) fn compare(&self, one: usize, other: usize) -> Option<Comparison> {
        // That of a third contestant says nothing about these two.
        let noise = Noise::of(&self.cells[one].medians()).max(Noise::of(&self.cells[other].medians()));
        let tolerance = |cell: &Cell| self.metric.tolerance(cell.median().unwrap_or(0.0));
        let resolution = tolerance(&self.cells[one]).max(tolerance(&self.cells[other]));
        let (one, other) = (&self.cells[one].rounds, &self.cells[other].rounds);
        let pair = |(round, value): &(usize, f64)| {
            other.iter().find(|(other_round, _)| other_round == round).map(|(_, other)| (*value, *other))
        };
        let better = self.metric.better;
        Comparison::of(&one.iter().filter_map(pair).collect::<Vec<_>>(), Scale { better, noise, resolution })
    }
}

/// Computes the rows of all metrics: those with a parameter first, by its value.
pub(crate) fn rows(results: &Results) -> Vec<Row> {
    let scenario = &results.head.scenario;
    let mut parameters: Vec<Option<f64>> = Vec::new();
    for turn in &results.turns {
        let of_failures = turn.log.failures.iter().map(|failure| failure.parameter);
        for parameter in turn.log.measurements.iter().map(|measurement| measurement.parameter).chain(of_failures) {
            if parameters.len() < PARAMETERS_MAX && !parameters.contains(&parameter) {
                parameters.push(parameter);
            }
        }
    }
    parameters.sort_by(|one, other| one.unwrap_or(f64::INFINITY).total_cmp(&other.unwrap_or(f64::INFINITY)));
    let mut rows = Vec::new();
    for parameter in parameters {
        for metric in &scenario.metrics {
            let cell = |contestant| cell(&results.turns, contestant, metric, parameter);
            let cells: Vec<Cell> = (0..scenario.contestants.len()).map(cell).collect();
            if cells.iter().any(|cell| !cell.values.is_empty() || cell.failures > 0) {
                let noise = cells.iter().map(|cell| Noise::of(&cell.medians())).fold(Noise::default(), Noise::max);
                rows.push(Row { metric: metric.clone(), parameter, cells, noise });
            }
        }
    }
    rows
}

fn cell(turns: &[Turn], contestant: usize, metric: &Metric, parameter: Option<f64>) -> Cell {
    let mut cell = Cell::default();
    for turn in turns.iter().filter(|turn| turn.contestant == contestant) {
        let is_of_row = |name: &str, value: Option<f64>| name == metric.name && value == parameter;
        let measurements = turn.log.measurements.iter();
        let values: Vec<f64> = measurements
            .filter(|measurement| is_of_row(&measurement.metric, measurement.parameter))
            .flat_map(|measurement| measurement.values.iter().copied())
            .collect();
        let failures = turn.log.failures.iter();
        cell.failures += failures.filter(|failure| is_of_row(&failure.metric, failure.parameter)).count();
        if !values.is_empty() {
            cell.rounds.push((turn.round, median(values.iter().copied())));
            cell.values.extend(values);
        }
    }
    cell.rounds.sort_by_key(|(round, _)| *round);
    cell.values.sort_by(f64::total_cmp);
    cell.estimate = Estimate::of(&cell.medians());
    cell
}
