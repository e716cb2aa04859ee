//! What was published about the work of a section, next to the values of the run.

use super::Section;
use crate::{
    number::short,
    published::{self, Counterpart, Publication, PublishedValue, Statistic},
};

/// A publication, and its values next to those of a run.
pub(super) struct Comparison {
    pub(super) publication: &'static Publication,
    pub(super) lines: Vec<Line>,
}

impl Comparison {
    /// Returns whether the run has a counterpart of a value.
    pub(super) fn has_values(&self) -> bool {
        self.lines.iter().any(|line| !line.value.is_empty())
    }
}

/// A published value, and its counterpart.
pub(super) struct Line {
    pub(super) published: &'static PublishedValue,
    /// The value of the run, and the contestant that it is of; empty if there is none.
    pub(super) value: String,
}

/// Returns the publications about the work of a section.
pub(super) fn of(section: &Section) -> Vec<Comparison> {
    let publications = published::of(&section.results.head.scenario.name);
    publications.map(|publication| Comparison { publication, lines: lines(section, publication) }).collect()
}

fn lines(section: &Section, publication: &'static Publication) -> Vec<Line> {
    let line = |published: &'static PublishedValue| {
        let value =
            published.counterpart.as_ref().and_then(|counterpart| value(section, counterpart)).unwrap_or_default();
        Line { published, value }
    };
    publication.values.iter().map(line).collect()
}

/// Returns the value of a counterpart, in the unit of its rows; `None` if one of them was not measured.
fn value(section: &Section, counterpart: &Counterpart) -> Option<String> {
    let contestants = &section.results.head.scenario.contestants;
    let contestant = contestants.iter().position(|contestant| contestant.name == counterpart.contestant)?;
    let (mut sum, mut unit) = (0.0, "");
    for metric in counterpart.metrics {
        let row = section.rows.iter().find(|row| row.metric.name == *metric)?;
        let cell = row.cells.get(contestant)?;
        match counterpart.statistic {
            Statistic::Mean if cell.values.is_empty() => return None,
            Statistic::Mean => {
                sum += cell.mean();
                unit = &row.metric.unit;
            }
            Statistic::Failures => {
                let count = cell.failures + cell.values.len();
                return Some(format!("{} of {count} ({})", cell.failures, counterpart.contestant));
            }
        }
    }
    Some(format!("{} {unit} ({})", short(sum), counterpart.contestant))
}
