//! The measurements, as tables and as plots.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{Arguments, client::Measured, plan::Strategy};
use crate::{
    machine::Machine,
    plot::{Axis, Chart, Line, Scale},
    statistics::median,
};

/// All measurements.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    seconds: f64,
    rounds: usize,
    pub(super) bursts: Vec<Burst>,
    pub(super) cases: Vec<Case>,
}

/// Creation and deletion of so many namespaces.
#[derive(Debug, Serialize)]
pub(super) struct Burst {
    pub(super) namespaces: usize,
    /// One after the other, each dropped at once.
    pub(super) create_and_drop_ms: f64,
    /// With `Namespace::create_many`.
    pub(super) create_many_ms: f64,
    /// Memory of the kernel.
    pub(super) kib_per_namespace: f64,
    pub(super) pin_ms: f64,
    /// One pin after the other.
    pub(super) unpin_ms: f64,
    /// The group of all pins.
    pub(super) delete_group_ms: f64,
    /// Until no namespace can be entered after that.
    pub(super) gone_ms: Option<f64>,
}

/// The servers with one number of namespaces and connections.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    pub(super) namespaces: usize,
    /// In each namespace.
    pub(super) connections: usize,
    pub(super) series: Vec<Series>,
}

/// The runs of one server.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) server: String,
    /// Why it was not measured.
    pub(super) not_measured: Option<String>,
    pub(super) runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pub(super) measured: Measured,
    /// Processor time of the server.
    pub(super) cpu_us_per_request: f64,
    /// From the start of the server's program until it listened in all namespaces.
    pub(super) listening_ms: f64,
    /// Memory of the server's processes.
    pub(super) pss_kib: u64,
    /// Threads of the server's processes.
    pub(super) threads: u64,
}

impl Run {
    fn rate(&self) -> f64 {
        self.measured.requests as f64 / self.measured.seconds.max(f64::MIN_POSITIVE)
    }
}

impl Series {
    /// Creates a series without runs.
    pub(super) fn new(server: String) -> Self {
        Self { server, not_measured: None, runs: Vec::new() }
    }

    fn median(&self, value: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(value))
    }

    /// Returns the median of the ratios of the throughput to that of another server in the same round.
    fn ratio(&self, other: &Self) -> f64 {
        median(self.runs.iter().zip(&other.runs).map(|(run, other)| run.rate() / other.rate()))
    }
}

impl Case {
    fn base(&self) -> Option<&Series> {
        self.series.iter().find(|series| series.server == Strategy::One.to_string())
    }
}

impl Report {
    /// Creates a report without measurements.
    pub(super) fn new(machine: Machine, arguments: &Arguments) -> Self {
        let (seconds, rounds) = (arguments.seconds, arguments.rounds);
        Self { machine, seconds, rounds, bursts: Vec::new(), cases: Vec::new() }
    }

    /// Formats Markdown tables.
    pub(super) fn tables(&self) -> String {
        let mut text = format!("{}\n", self.machine.line());
        if !self.bursts.is_empty() {
            let _ = write!(text, "\nCreation and deletion, ms for all\n\n{}\n", self.burst_table());
        }
        for case in &self.cases {
            let Case { namespaces, connections, .. } = case;
            let _ = write!(
                text,
                "\n{namespaces} namespaces with {connections} connections each; medians of {} rounds of {} s\n\n{}\n",
                self.rounds,
                self.seconds,
                case.table()
            );
        }
        text
    }

    fn burst_table(&self) -> Table {
        let header =
            ["namespaces", "create and drop", "create_many", "KiB each", "pin", "unpin", "delete group", "until gone"];
        let rows = self.bursts.iter().map(|burst| {
            let number = |value: f64| format!("{value:.1}");
            vec![
                burst.namespaces.to_string(),
                number(burst.create_and_drop_ms),
                number(burst.create_many_ms),
                format!("{:.0}", burst.kib_per_namespace),
                number(burst.pin_ms),
                number(burst.unpin_ms),
                number(burst.delete_group_ms),
                burst.gone_ms.map_or_else(|| "unknown".to_owned(), number),
            ]
        });
        table(&header, rows)
    }

    /// Returns a plot of the throughput of each server against the number of namespaces.
    pub(super) fn chart(&self, connections: usize) -> Chart {
        let mut lines: Vec<Line> = Vec::new();
        for case in self.cases.iter().filter(|case| case.connections == connections) {
            let Some(base) = case.base() else { continue };
            for series in case.series.iter().filter(|series| !series.runs.is_empty()) {
                let point = (case.namespaces as f64, series.ratio(base));
                match lines.iter_mut().find(|line| line.name == series.server) {
                    Some(line) => line.points.push(point),
                    None => lines.push(Line { name: series.server.clone(), points: vec![point] }),
                }
            }
        }
        Chart {
            title: format!("Echo server, {connections} connections per namespace"),
            x: Axis { name: "namespaces".to_owned(), scale: Scale::Values },
            y: Axis { name: "throughput, ratio to one namespace".to_owned(), scale: Scale::Linear },
            lines,
        }
    }
}

impl Case {
    fn table(&self) -> Table {
        let header = [
            "server",
            "requests/s",
            "ratio to one",
            "p50 µs",
            "p99 µs",
            "CPU µs/request",
            "MiB",
            "threads",
            "listening ms",
            "errors",
        ];
        let rows = self.series.iter().map(|series| {
            if series.runs.is_empty() {
                let cause = series.not_measured.as_deref().unwrap_or("no runs");
                return vec![series.server.clone(), format!("not measured: {cause}")];
            }
            let ratio = self.base().map_or_else(String::new, |base| format!("{:.2}", series.ratio(base)));
            let cell = |digits: usize, value: f64| format!("{value:.digits$}");
            vec![
                series.server.clone(),
                cell(0, series.median(Run::rate)),
                ratio,
                cell(1, series.median(|run| run.measured.p50_us)),
                cell(1, series.median(|run| run.measured.p99_us)),
                cell(2, series.median(|run| run.cpu_us_per_request)),
                cell(1, series.median(|run| run.pss_kib as f64 / 1024.0)),
                cell(0, series.median(|run| run.threads as f64)),
                cell(1, series.median(|run| run.listening_ms)),
                series.runs.iter().map(|run| run.measured.errors).sum::<u64>().to_string(),
            ]
        });
        table(&header, rows)
    }
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.iter().copied()).add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_runs_of_the_same_round() {
        let series = |rates: [u64; 3]| Series {
            server: String::new(),
            not_measured: None,
            runs: rates
                .map(|requests| Run {
                    measured: Measured { requests, seconds: 1.0, ..Measured::default() },
                    cpu_us_per_request: 0.0,
                    listening_ms: 0.0,
                    pss_kib: 0,
                    threads: 1,
                })
                .to_vec(),
        };
        assert!((series([10, 40, 90]).ratio(&series([20, 40, 100])) - 0.9).abs() < 1e-9);
        assert!((median([1.0, 2.0, 4.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median([]).is_nan());
    }
}
