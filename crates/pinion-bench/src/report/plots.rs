//! The plots of a section.

use super::{Row, Section};
use crate::{
    number::short,
    plot::{Axis, Chart, Line, Scale},
};

/// Most points of a distribution; more are not visible.
const DISTRIBUTION_POINTS: usize = 200;

/// Returns the plots of the rows that answer the question of a scenario.
pub(crate) fn charts(section: &Section) -> Vec<Chart> {
    let headlines: Vec<&Row> = section.rows.iter().filter(|row| row.metric.is_headline).collect();
    let mut charts = growth(section, &headlines);
    for row in headlines {
        charts.extend(distribution(section, row));
        charts.extend(time_line(section, row));
    }
    charts
}

fn title(section: &Section, row: &Row) -> String {
    match row.parameter {
        Some(_) => format!("{} ({})", row.metric.name, section.group_title(row.parameter)),
        None => row.metric.name.clone(),
    }
}

fn names(section: &Section) -> impl Iterator<Item = String> {
    section.results.head.scenario.contestants.iter().map(|contestant| contestant.name.clone())
}

/// Plots the share of values up to a value.
fn distribution(section: &Section, row: &Row) -> Option<Chart> {
    let line = |(name, values): (String, &Vec<f64>)| {
        let count = values.len();
        let step = count.div_ceil(DISTRIBUTION_POINTS).max(1);
        let ranks = (0..count).step_by(step).chain(count.checked_sub(1));
        let points = ranks.map(|rank| (values[rank], 100.0 * (rank + 1) as f64 / count as f64)).collect();
        Line { name, points }
    };
    let lines: Vec<Line> = names(section).zip(row.cells.iter().map(|cell| &cell.values)).map(line).collect();
    let is_visible = lines.iter().any(|line| line.points.len() > 2);
    is_visible.then(|| Chart {
        title: format!("{}: distribution", title(section, row)),
        x: Axis { name: row.metric.label(), scale: Scale::Logarithmic },
        y: Axis { name: "% of the values up to this one".to_owned(), scale: Scale::Linear },
        lines,
    })
}

/// Plots the medians of the rounds over the time of the run.
fn time_line(section: &Section, row: &Row) -> Option<Chart> {
    let turns = &section.results.turns;
    let time = |contestant: usize, round: usize| {
        turns.iter().find(|turn| turn.contestant == contestant && turn.round == round).map(|turn| turn.at_s)
    };
    let line = |(contestant, name): (usize, String)| {
        let rounds = row.cells[contestant].rounds.iter();
        Line { name, points: rounds.filter_map(|(round, value)| Some((time(contestant, *round)?, *value))).collect() }
    };
    let lines: Vec<Line> = names(section).enumerate().map(line).collect();
    let is_visible = lines.iter().any(|line| line.points.len() > 2);
    is_visible.then(|| Chart {
        title: format!("{}: course of the run", title(section, row)),
        x: Axis { name: "seconds since the start".to_owned(), scale: Scale::Linear },
        y: Axis { name: format!("{}, median of a round", row.metric.label()), scale: Scale::Logarithmic },
        lines,
    })
}

/// Plots the medians of each headline metric over the scenario's parameter, if it has at least three values.
fn growth(section: &Section, headlines: &[&Row]) -> Vec<Chart> {
    let mut metrics: Vec<&str> = headlines.iter().map(|row| row.metric.name.as_str()).collect();
    metrics.dedup();
    metrics.sort_unstable();
    metrics.dedup();
    let mut charts = Vec::new();
    for metric in metrics {
        let rows: Vec<&&Row> =
            headlines.iter().filter(|row| row.metric.name == metric && row.parameter.is_some()).collect();
        let Some(first) = rows.first().filter(|_| rows.len() > 2) else { continue };
        let line = |(contestant, name): (usize, String)| {
            let points = rows.iter().filter_map(|row| Some((row.parameter?, row.cells[contestant].median()?)));
            Line { name, points: points.collect() }
        };
        let parameter = &section.results.head.scenario.parameter;
        let values: Vec<String> = rows.iter().filter_map(|row| row.parameter).map(short).collect();
        charts.push(Chart {
            title: format!("{metric}: {parameter}, {}", values.join(", ")),
            x: Axis { name: parameter.clone(), scale: Scale::Values },
            y: Axis { name: first.metric.label(), scale: Scale::Logarithmic },
            lines: names(section).enumerate().map(line).collect(),
        });
    }
    charts
}
