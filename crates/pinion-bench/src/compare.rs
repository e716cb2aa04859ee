//! `pinion-bench compare`: compares two runs of a scenario, such as one before and one after a change.

use std::{fmt::Write, path::PathBuf};

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    engine::Failure,
    report::{Cell, Row, rows},
    results::{self, Results},
    statistics::Estimate,
};

/// Arguments of `pinion-bench compare`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Results of the first run, written with --results.
    first: PathBuf,
    /// Results of the second run, of the same scenario.
    second: PathBuf,
    /// Show all rows, not only those that differ.
    #[arg(long)]
    all: bool,
}

/// A value of both runs.
struct Pair<'a> {
    row: &'a Row,
    contestant: &'a str,
    first: Estimate,
    second: Estimate,
}

/// Compares the runs and prints a table.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (first, second) = (results::read(&arguments.first)?, results::read(&arguments.second)?);
    let (name, other) = (&first.head.scenario.name, &second.head.scenario.name);
    if name != other {
        return Err(Failure(format!(
            "{} is of scenario {name}, {} of {other}",
            arguments.first.display(),
            arguments.second.display()
        )));
    }
    print!("{}", text(&first, &second, arguments.all));
    Ok(())
}

fn text(first: &Results, second: &Results, all: bool) -> String {
    let (first_rows, second_rows) = (rows(first), rows(second));
    let pairs = pairs((first, &first_rows), (second, &second_rows));
    let agreeing = pairs.iter().filter(|pair| pair.first.overlaps(&pair.second)).count();
    let mut text = String::new();
    for difference in differences(first, second) {
        let _ = writeln!(text, "- {difference}");
    }
    let _ = writeln!(
        text,
        "{agreeing} of {} values agree: their confidence intervals overlap ({:.1} %)",
        pairs.len(),
        100.0 * agreeing as f64 / pairs.len().max(1) as f64
    );
    let mut table = Table::new();
    let header = ["", "contestant", "first", "second", "second / first"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for pair in pairs.iter().filter(|pair| all || !pair.first.overlaps(&pair.second)) {
        let parameter = pair.row.parameter.map(|value| format!(" ({value})")).unwrap_or_default();
        let interval = |estimate: Estimate| format!("{:.3} [{:.3}–{:.3}]", estimate.value, estimate.low, estimate.high);
        table.add_row([
            format!("{}{parameter}", pair.row.metric.label()),
            pair.contestant.to_owned(),
            interval(pair.first),
            interval(pair.second),
            format!("{:.3}", pair.second.value / pair.first.value),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if table.row_count() > 0 {
        let _ = writeln!(text, "\n{table}");
    }
    text
}

/// Returns what differs between the settings of the runs.
fn differences(first: &Results, second: &Results) -> Vec<String> {
    let (one, other) = (&first.head, &second.head);
    let mut differences = Vec::new();
    if one.machine != other.machine {
        differences.push(format!("machine: {}; {}", one.machine.line(), other.machine.line()));
    }
    if one.scenario.settings != other.scenario.settings {
        differences.push(format!("settings: {:?}; {:?}", one.scenario.settings, other.scenario.settings));
    }
    for contestant in &one.scenario.contestants {
        let same = other.scenario.contestants.iter().find(|other| other.name == contestant.name);
        match same {
            Some(same) if same.version != contestant.version => {
                differences.push(format!("{}: {}; {}", contestant.name, contestant.version, same.version));
            }
            Some(_) => {}
            None => differences.push(format!("{} is only in the first run", contestant.name)),
        }
    }
    differences
}

fn pairs<'a>(
    (first, first_rows): (&'a Results, &'a [Row]),
    (second, second_rows): (&Results, &[Row]),
) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for row in first_rows {
        let is_same = |other: &&Row| other.metric.name == row.metric.name && other.parameter == row.parameter;
        let Some(other) = second_rows.iter().find(is_same) else { continue };
        for (cell, contestant) in row.cells.iter().zip(&first.head.scenario.contestants) {
            let names = second.head.scenario.contestants.iter();
            let index = names.clone().position(|other| other.name == contestant.name);
            let other = index.and_then(|index| other.cells.get(index)).and_then(|cell: &Cell| cell.estimate);
            if let (Some(first), Some(second)) = (cell.estimate, other) {
                pairs.push(Pair { row, contestant: &contestant.name, first, second });
            }
        }
    }
    pairs
}
