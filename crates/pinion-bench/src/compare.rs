//! `pinion-bench compare`: compares two runs of a scenario, such as one before and one after a change.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fmt::Write,
    path::{Path, PathBuf},
};

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    engine::Failure,
    number::short,
    output,
    report::{Row, rows},
    results::{self, Contestant, Results, printable_lines},
    statistics::{Estimate, ROUNDS_MIN},
};

/// Arguments of `pinion-bench compare`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Results of the first run, written with --results, or a directory with those of several scenarios.
    first: PathBuf,
    /// Results of the second run, of the same scenarios.
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

impl Pair<'_> {
    /// Returns whether the runs agree; `None` if one of them had too few rounds for an interval.
    fn agrees(&self) -> Option<bool> {
        let is_confident = self.first.is_confident() && self.second.is_confident();
        is_confident.then(|| {
            self.first.overlaps(&self.second, self.row.metric.tolerance(self.first.value.max(self.second.value)))
        })
    }
}

/// How many values agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Agreement {
    agreeing: usize,
    count: usize,
    /// Values of too few rounds.
    undecided: usize,
}

impl std::ops::AddAssign for Agreement {
    fn add_assign(&mut self, other: Self) {
        self.agreeing += other.agreeing;
        self.count += other.count;
        self.undecided += other.undecided;
    }
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { agreeing, count, undecided } = self;
        if *count > 0 {
            let share = 100.0 * *agreeing as f64 / *count as f64;
            write!(f, "{agreeing} of {count} values agree: their confidence intervals overlap ({share:.1} %)")?;
        }
        match undecided {
            0 => Ok(()),
            _ if *count == 0 => write!(
                f,
                "all {undecided} values are of fewer than {ROUNDS_MIN} rounds: nothing is concluded from them"
            ),
            _ => write!(
                f,
                "; {undecided} others are of fewer than {ROUNDS_MIN} rounds, and nothing is concluded from them"
            ),
        }
    }
}

/// Compares the runs and prints a table.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let files = files(arguments)?;
    for only in &files.only {
        output::print(&printable_lines(&format!("- {}: only in one of the runs", only.display())))?;
    }
    if let [(first, second)] = files.both.as_slice() {
        let (_, text, _) = compare(first, second, arguments.all)?;
        return output::print(&printable_lines(&text));
    }
    let mut total = Agreement::default();
    for (first, second) in &files.both {
        match compare(first, second, arguments.all) {
            Ok((title, text, agreement)) => {
                total += agreement;
                output::print(&printable_lines(&format!("## {title}\n\n{text}")))?;
            }
            // One of the runs may have been interrupted. The others are compared all the same.
            Err(failure) => output::print(&printable_lines(&format!("- {}: {failure}", first.display())))?,
        }
    }
    if total == Agreement::default() {
        return Err(Failure("the runs have no value in common".to_owned()));
    }
    output::print(&format!("All: {total}"))
}

/// Compares two files. Returns the title of their scenario, and the text.
fn compare(first: &Path, second: &Path, all: bool) -> Result<(String, String, Agreement), Failure> {
    let (one, other) = (results::read(first)?, results::read(second)?);
    let (name, other_name) = (&one.head.scenario.name, &other.head.scenario.name);
    if name != other_name {
        let (first, second) = (first.display(), second.display());
        return Err(Failure(format!("{first} is of scenario {name}, {second} of {other_name}")));
    }
    let (text, agreement) = text(&one, &other, all)?;
    Ok((one.head.scenario.title, text, agreement))
}

/// Files with results.
struct Files {
    /// Those of the first and of the second run with the same names.
    both: Vec<(PathBuf, PathBuf)>,
    /// Those that only one of the runs has.
    only: Vec<PathBuf>,
}

/// Returns the files to compare: those with the same names, of two directories.
fn files(arguments: &Arguments) -> Result<Files, Failure> {
    let Arguments { first, second, .. } = arguments;
    if !first.is_dir() || !second.is_dir() {
        return Ok(Files { both: vec![(first.clone(), second.clone())], only: Vec::new() });
    }
    let (names, others) = (names(first)?, names(second)?);
    let only = |directory: &PathBuf, names: &BTreeSet<OsString>, others: &BTreeSet<OsString>| {
        names.difference(others).map(|name| directory.join(name)).collect::<Vec<_>>()
    };
    let only = [only(first, &names, &others), only(second, &others, &names)].concat();
    let both: Vec<_> = names.intersection(&others).map(|name| (first.join(name), second.join(name))).collect();
    if both.is_empty() {
        return Err(Failure(format!("{} and {} have no results of the same names", first.display(), second.display())));
    }
    Ok(Files { both, only })
}

/// Returns the names of the files with results in a directory.
fn names(directory: &Path) -> Result<BTreeSet<OsString>, Failure> {
    let entries =
        std::fs::read_dir(directory).map_err(|error| Failure(format!("read {}: {error}", directory.display())))?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names.filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "jsonl")).collect())
}

fn text(first: &Results, second: &Results, all: bool) -> Result<(String, Agreement), Failure> {
    let (first_rows, second_rows) = (rows(first), rows(second));
    let (one, other) = ((first, first_rows.as_slice()), (second, second_rows.as_slice()));
    let pairs = pairs(one, other);
    if pairs.is_empty() {
        return Err(Failure("the runs have no value in common".to_owned()));
    }
    let decided: Vec<bool> = pairs.iter().filter_map(Pair::agrees).collect();
    let agreeing = decided.iter().filter(|agrees| **agrees).count();
    let agreement = Agreement { agreeing, count: decided.len(), undecided: pairs.len() - decided.len() };
    let mut text = String::new();
    for difference in differences(first, second) {
        let _ = writeln!(text, "- {difference}");
    }
    for missing in missing(one, other, "first").iter().chain(&missing(other, one, "second")) {
        let _ = writeln!(text, "- {missing}");
    }
    let _ = writeln!(text, "{agreement}");
    let shown: Vec<&Pair<'_>> = pairs.iter().filter(|pair| all || pair.agrees() == Some(false)).collect();
    if !shown.is_empty() {
        let _ = writeln!(text, "\n{}", table(&shown));
    }
    Ok((text, agreement))
}

fn table(pairs: &[&Pair<'_>]) -> Table {
    let mut table = Table::new();
    let header = ["", "contestant", "first", "second", "second / first"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    let interval = |one: Estimate| format!("{} [{}–{}]", short(one.value), short(one.low), short(one.high));
    for pair in pairs {
        // Not a number, which is shown as a dash, if it was zero.
        let ratio = if pair.first.value > 0.0 { pair.second.value / pair.first.value } else { f64::NAN };
        let cells = [interval(pair.first), interval(pair.second), short(ratio)];
        table.add_row([label(pair.row), pair.contestant.to_owned()].into_iter().chain(cells));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn label(row: &Row) -> String {
    format!("{}{}", row.metric.label(), row.parameter.map(|value| format!(" ({})", short(value))).unwrap_or_default())
}

/// Returns what differs between the settings of the runs.
fn differences(first: &Results, second: &Results) -> Vec<String> {
    let (one, other) = (&first.head, &second.head);
    let properties = [
        ("machine", one.machine.line(), other.machine.line()),
        ("pinion-bench", one.tool.clone(), other.tool.clone()),
        ("settings", format!("{:?}", one.scenario.settings), format!("{:?}", other.scenario.settings)),
        ("rounds", one.scenario.rounds.to_string(), other.scenario.rounds.to_string()),
        ("complete", first.is_complete().to_string(), second.is_complete().to_string()),
        ("failures", failures(first).to_string(), failures(second).to_string()),
    ];
    let changed = properties.into_iter().filter(|(_, one, other)| one != other);
    let mut differences: Vec<String> = changed.map(|(name, one, other)| format!("{name}: {one}; {other}")).collect();
    for contestant in &one.scenario.contestants {
        let same = other.scenario.contestants.iter().find(|other| other.name == contestant.name);
        let Some(same) = same.filter(|same| *same != contestant) else { continue };
        let of = |one: &Contestant| format!("{}, {}", one.version, one.configuration);
        differences.push(format!("{}: {}; {}", contestant.name, of(contestant), of(same)));
    }
    differences
}

fn failures(results: &Results) -> usize {
    results.turns.iter().map(|turn| turn.log.failures.len()).sum()
}

/// A run and its rows.
type Run<'a> = (&'a Results, &'a [Row]);

/// Returns the values of a contestant in the row with the same metric and parameter.
fn counterpart((results, rows): Run<'_>, row: &Row, contestant: &str) -> Option<Estimate> {
    let index = results.head.scenario.contestants.iter().position(|one| one.name == contestant)?;
    let key = |row: &Row| (row.metric.label(), row.parameter);
    rows.iter().find(|other| key(other) == key(row))?.cells.get(index)?.estimate
}

fn pairs<'a>(first: Run<'a>, second: Run<'_>) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for row in first.1 {
        for (cell, contestant) in row.cells.iter().zip(&first.0.head.scenario.contestants) {
            if let (Some(one), Some(other)) = (cell.estimate, counterpart(second, row, &contestant.name)) {
                pairs.push(Pair { row, contestant: &contestant.name, first: one, second: other });
            }
        }
    }
    pairs
}

/// Names the values of a run that the other one does not have.
fn missing(run: Run<'_>, other: Run<'_>, which: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for row in run.1 {
        for (cell, contestant) in row.cells.iter().zip(&run.0.head.scenario.contestants) {
            if cell.estimate.is_some() && counterpart(other, row, &contestant.name).is_none() {
                missing.push(format!("{}, {}: only in the {which} run", label(row), contestant.name));
            }
        }
    }
    missing
}
