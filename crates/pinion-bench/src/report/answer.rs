//! The answer of a scenario, in sentences.

use super::{Row, Section};
use crate::{
    number::short,
    results::{Better, Metric},
    statistics::{ROUNDS_MIN, Verdict, median},
};

/// The conclusions of a section.
pub(crate) struct Answer {
    /// A sentence for each headline row.
    pub(crate) headlines: Vec<String>,
    /// How many rows the first contestant leads, and a sentence for each that it does not.
    pub(crate) standing: Option<String>,
    pub(crate) not_best: Vec<String>,
    /// Failures of each contestant.
    pub(crate) failures: Vec<String>,
    /// The noise of the machine, and whether the run is complete.
    pub(crate) notes: Vec<String>,
}

impl Answer {
    pub(crate) fn of(section: &Section) -> Self {
        let has_other = |row: &&Row| row.cells.iter().skip(1).any(|cell| cell.estimate.is_some());
        let (decided, undecided): (Vec<&Row>, Vec<&Row>) =
            section.rows.iter().filter(has_other).partition(|row| is_decided(row));
        let not_best: Vec<String> = decided.iter().filter_map(|row| not_best(section, row)).collect();
        let name = section.results.head.scenario.contestants.first().map(|contestant| contestant.name.as_str());
        let standing = name.filter(|_| !decided.is_empty()).map(|name| {
            let (leads, rows) = (decided.len() - not_best.len(), decided.len());
            let undecided = match undecided.len() {
                0 => String::new(),
                count => format!("; {count} rows have too few rounds"),
            };
            format!("{name} is the best, or does not differ from the best beyond the noise, in {leads} of {rows} rows{undecided}.")
        });
        Self {
            headlines: section
                .rows
                .iter()
                .filter(|row| row.metric.is_headline)
                .filter_map(|row| headline(section, row))
                .collect(),
            standing,
            not_best,
            failures: failures(section),
            notes: notes(section),
        }
    }
}

fn name(section: &Section, contestant: usize) -> &str {
    &section.results.head.scenario.contestants[contestant].name
}

/// Returns whether it is known if the first contestant is the best one: if it has no values, if another one is better, or if there
/// are enough rounds to compare it with all others.
fn is_decided(row: &Row) -> bool {
    let others = (1..row.cells.len()).filter(|other| row.cells[*other].estimate.is_some());
    let verdicts: Vec<Verdict> =
        others.map(|other| row.compare(0, other).map_or(Verdict::Undecided, |comparison| comparison.verdict)).collect();
    let is_measured = row.cells[0].estimate.is_some();
    !is_measured || verdicts.contains(&Verdict::Worse) || !verdicts.contains(&Verdict::Undecided)
}

/// Returns the contestants that have values, the best median first.
fn ranking(row: &Row) -> Vec<(usize, f64)> {
    let medians = row.cells.iter().enumerate();
    let mut ranking: Vec<(usize, f64)> =
        medians.filter_map(|(contestant, cell)| Some((contestant, cell.median()?))).collect();
    ranking.sort_by(|(_, one), (_, other)| match row.metric.better {
        Better::Lower => one.total_cmp(other),
        Better::Higher => other.total_cmp(one),
    });
    ranking
}

fn headline(section: &Section, row: &Row) -> Option<String> {
    let ranking = ranking(row);
    let ((best, value), others) = ranking.split_first()?;
    let group =
        if row.parameter.is_some() { format!(" ({})", section.group_title(row.parameter)) } else { String::new() };
    let value = format!("{} {}", short(*value), row.metric.unit);
    let mut text = format!("{}{group}: {} {}", row.metric.name, name(section, *best), value.trim_end());
    for (index, (other, other_value)) in others.iter().enumerate() {
        let relation = match row.compare(*best, *other).map(|comparison| (comparison.verdict, comparison.ratio)) {
            Some((Verdict::Equal, _)) => "no difference beyond the noise".to_owned(),
            Some((Verdict::Better, Some(ratio))) => factor(&row.metric, 1.0 / ratio.value),
            // Too few rounds, or the rounds in which both were measured differ from all.
            _ => format!("{} {}", short(*other_value), row.metric.unit).trim_end().to_owned(),
        };
        let separator = if index == 0 { "; " } else { ", " };
        text = format!("{text}{separator}{} {relation}", name(section, *other));
    }
    for (contestant, cell) in row.cells.iter().enumerate().filter(|(_, cell)| cell.failures > 0) {
        let attempts = cell.failures + cell.values.len();
        text = format!("{text}; {} failed {} of {attempts} times", name(section, contestant), cell.failures);
    }
    Some(format!("{text}."))
}

/// Formats the ratio of a worse value to the best one.
fn factor(metric: &Metric, ratio: f64) -> String {
    match metric.better {
        Better::Lower if ratio >= 1.995 => format!("{} times as much", short(ratio)),
        Better::Lower => format!("{} % more", short((ratio - 1.0) * 100.0)),
        Better::Higher => format!("{} % of that", short(ratio * 100.0)),
    }
}

fn not_best(section: &Section, row: &Row) -> Option<String> {
    let label = match row.parameter {
        Some(_) => format!("{} ({})", row.metric.label(), section.group_title(row.parameter)),
        None => row.metric.label(),
    };
    let own = &row.cells[0];
    let Some(own_median) = own.median() else {
        return Some(format!("{label}: {} was not measured.", name(section, 0)));
    };
    let is_worse = |(other, _): &&(usize, f64)| {
        row.compare(0, *other).is_some_and(|comparison| comparison.verdict == Verdict::Worse)
    };
    let ranking = ranking(row);
    let better: Vec<String> = ranking
        .iter()
        .filter(is_worse)
        .map(|(other, value)| format!("{} {}", name(section, *other), short(*value)))
        .collect();
    (!better.is_empty()).then(|| format!("{label}: {} {}, {}.", name(section, 0), short(own_median), better.join(", ")))
}

fn failures(section: &Section) -> Vec<String> {
    let mut sentences = Vec::new();
    for row in &section.rows {
        for (contestant, cell) in row.cells.iter().enumerate().filter(|(_, cell)| cell.failures > 0) {
            let causes = section.results.turns.iter().filter(|turn| turn.contestant == contestant);
            let failures = causes.flat_map(|turn| &turn.log.failures);
            let first = failures
                .filter(|failure| failure.metric == row.metric.name && failure.parameter == row.parameter)
                .map(|failure| failure.cause.as_str())
                .next();
            let attempts = cell.failures + cell.values.len();
            sentences.push(format!(
                "{}: {} of {attempts} failed: {}{} (the first: {})",
                name(section, contestant),
                cell.failures,
                row.metric.name,
                row.parameter.map(|_| format!(" ({})", section.group_title(row.parameter))).unwrap_or_default(),
                first.unwrap_or_default()
            ));
        }
    }
    sentences
}

fn notes(section: &Section) -> Vec<String> {
    let mut notes = Vec::new();
    let results = &section.results;
    let mut reference: Vec<f64> = results.turns.iter().map(|turn| turn.reference_ms).collect();
    reference.sort_by(f64::total_cmp);
    if let (Some(first), Some(last)) = (reference.first(), reference.last()) {
        notes.push(format!(
            "The same arithmetic took {} to {} ms between the turns (median {}): the noise of the processors.",
            short(*first),
            short(*last),
            short(median(reference.iter().copied()))
        ));
    }
    let noises: Vec<f64> = section.rows.iter().filter_map(|row| Some(row.noise.share? * 100.0)).collect();
    if !noises.is_empty() {
        notes.push(format!(
            "Even and odd rounds of the same contestant differ by {} % in the median of the rows, by {} % at most; what two contestants differ \
             by less than one of them from itself is called noise.",
            short(median(noises.iter().copied())),
            short(noises.iter().copied().fold(0.0, f64::max))
        ));
    }
    let scenario = &results.head.scenario;
    let is_short = |row: &&Row| row.cells.iter().any(|cell| (1..ROUNDS_MIN).contains(&cell.rounds.len()));
    let short_rows = section.rows.iter().filter(is_short).count();
    if short_rows > 0 {
        notes.push(format!(
            "{short_rows} rows have values of fewer than six rounds: their intervals are the whole range, with less than 95 % confidence, and \
             nothing is concluded from them (“?”)."
        ));
    }
    if !results.is_complete() {
        let planned = scenario.rounds * scenario.contestants.len();
        notes.push(format!("Interrupted: {} of {planned} turns were measured.", results.turns.len()));
    }
    notes
}
