use serde::Serialize;

use super::Section;
use crate::{
    results::{Description, Metric},
    statistics::{Estimate, Verdict},
};

/// The rows of all sections.
#[derive(Serialize)]
pub(crate) struct Summary<'a>(Vec<SectionSummary<'a>>);

#[derive(Serialize)]
struct SectionSummary<'a> {
    scenario: &'a Description,
    is_complete: bool,
    rows: Vec<RowSummary<'a>>,
}

#[derive(Serialize)]
struct RowSummary<'a> {
    metric: &'a Metric,
    parameter: Option<f64>,
    /// By which share a contestant differs from itself.
    noise: Option<f64>,
    contestants: Vec<CellSummary<'a>>,
}

#[derive(Serialize)]
struct CellSummary<'a> {
    name: &'a str,
    /// The median of the rounds, and its confidence interval.
    median: Option<Estimate>,
    count: usize,
    failures: usize,
    mean: f64,
    deviation: f64,
    min: f64,
    p99: f64,
    max: f64,
    /// Ratio of the first contestant to this one, by rounds.
    first_to_this: Option<Estimate>,
    /// Whether the first contestant is better than this one.
    verdict: Option<&'static str>,
}

impl<'a> Summary<'a> {
    pub(crate) fn of(sections: &'a [Section]) -> Self {
        Self(sections.iter().map(SectionSummary::of).collect())
    }
}

impl<'a> SectionSummary<'a> {
    fn of(section: &'a Section) -> Self {
        let scenario = &section.results.head.scenario;
        let rows = section.rows.iter().map(|row| {
            let cells = row.cells.iter().zip(&scenario.contestants).enumerate().map(|(index, (cell, contestant))| {
                let comparison = (index > 0).then(|| row.compare(0, index)).flatten();
                CellSummary {
                    name: &contestant.name,
                    median: cell.estimate,
                    count: cell.values.len(),
                    failures: cell.failures,
                    mean: cell.mean(),
                    deviation: cell.deviation(),
                    min: cell.percentile(0.0),
                    p99: cell.percentile(0.99),
                    max: cell.percentile(1.0),
                    first_to_this: comparison.and_then(|comparison| comparison.ratio),
                    verdict: comparison.map(|comparison| match comparison.verdict {
                        Verdict::Better => "better",
                        Verdict::Worse => "worse",
                        Verdict::Equal => "equal",
                        Verdict::Undecided => "undecided",
                    }),
                }
            });
            RowSummary {
                metric: &row.metric,
                parameter: row.parameter,
                noise: row.noise.share,
                contestants: cells.collect(),
            }
        });
        Self { scenario, is_complete: section.results.is_complete(), rows: rows.collect() }
    }
}
