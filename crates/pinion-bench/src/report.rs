//! Reports of results: an answer in a sentence, tables, and plots; as text, as JSON, and for browsers.

mod answer;
mod html;
mod json;
mod markdown;
mod plots;
mod publications;
mod quote;
mod rows;

use std::path::PathBuf;

pub(crate) use rows::{Cell, Row, rows};

use crate::{
    engine::Failure,
    number::short,
    output,
    results::{self, Results},
    run::Options,
};

/// Arguments of `pinion-bench report`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files that scenarios wrote with --results.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write a report for browsers to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the medians of all rows to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The results of a scenario, and the rows of its tables.
pub(crate) struct Section {
    pub(crate) results: Results,
    pub(crate) rows: Vec<Row>,
}

impl Section {
    /// Computes the rows.
    pub(crate) fn new(results: Results) -> Self {
        let rows = rows(&results);
        Self { results, rows }
    }

    /// Returns the values of the scenario's parameter that rows have, in ascending order; `None` comes last.
    fn parameters(&self) -> Vec<Option<f64>> {
        let mut parameters: Vec<Option<f64>> = self.rows.iter().map(|row| row.parameter).collect();
        parameters.sort_by(|one, other| one.unwrap_or(f64::INFINITY).total_cmp(&other.unwrap_or(f64::INFINITY)));
        parameters.dedup();
        parameters
    }

    /// Returns the title of the rows with a value of the parameter.
    fn group_title(&self, parameter: Option<f64>) -> String {
        parameter.map_or_else(
            || self.results.head.scenario.common.clone(),
            |value| format!("{}: {}", self.results.head.scenario.parameter, short(value)),
        )
    }
}

/// Reads results and reports on them.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut sections = Vec::new();
    for file in &arguments.files {
        sections.push(Section::new(results::read(file)?));
    }
    write(&sections, arguments.html.as_ref(), arguments.json.as_ref())
}

/// Prints the tables of a run, and writes the reports that are requested.
pub(crate) fn finish(results: Results, options: &Options) -> Result<(), Failure> {
    let failure = results.failure.clone();
    write(&[Section::new(results)], options.html.as_ref(), options.json.as_ref())?;
    failure.map_or(Ok(()), |cause| Err(Failure(cause)))
}

/// Prints the tables first: what was measured must not be lost because of the path of a file.
fn write(sections: &[Section], html: Option<&PathBuf>, json: Option<&PathBuf>) -> Result<(), Failure> {
    let printed = output::write(&markdown::text(sections), &json::Summary::of(sections), json.map(PathBuf::as_path));
    let page = html.map_or(Ok(()), |path| {
        std::fs::write(path, html::page(sections))
            .map_err(|error| Failure(format!("write {}: {error}", path.display())))
    });
    printed.and(page)
}
