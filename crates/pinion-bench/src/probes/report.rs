use std::{collections::BTreeMap, fmt::Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::Arguments;
use crate::{machine::Machine, statistics::Summary};

/// All measurements.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    containers: usize,
    period_ms: u64,
    seconds: u64,
    command: Vec<String>,
    /// A row per engine.
    pub(super) engines: Vec<Row>,
}

/// The measurements of one engine.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) engine: String,
    pub(super) version: String,
    /// Number of probes that are possible in the time.
    pub(super) wanted: usize,
    /// Number of errors by gRPC code or exit code.
    pub(super) errors: BTreeMap<String, usize>,
    pub(super) exec_sync: Summary,
    /// CPU usage of the whole machine without the client, in percent of one core.
    pub(super) node_percent: f64,
    /// CPU usage of the processes of the engine and their reaped children, in percent of one core.
    pub(super) engine_percent: f64,
    pub(super) node_ms_per_probe: f64,
    pub(super) engine_ms_per_probe: f64,
    /// CPU usage of the client, in percent of one core.
    pub(super) client_percent: f64,
    /// Processes and threads created on the whole machine.
    pub(super) forks_per_probe: f64,
    /// Number of zombies that were not reaped within a second.
    pub(super) zombies: usize,
}

impl Report {
    /// Creates a report without measurements.
    pub(super) fn new(machine: Machine, arguments: &Arguments) -> Self {
        Self {
            machine,
            containers: arguments.containers,
            period_ms: arguments.period,
            seconds: arguments.seconds,
            command: arguments.command.clone(),
            engines: Vec::new(),
        }
    }

    /// Formats a Markdown table: a row per measurement, a column per engine, and columns with the ratio of the first
    /// engine to each other one.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.machine.line());
        for row in &self.engines {
            let _ = writeln!(text, "{}: {}", row.engine, row.version);
        }
        let command = self.command.join(" ");
        let Self { containers, period_ms, seconds, .. } = self;
        let _ = writeln!(text, "\n{containers} containers, `{command}` in each every {period_ms} ms for {seconds} s\n");
        let mut header = vec![String::new()];
        header.extend(self.engines.iter().map(|row| row.engine.clone()));
        header.extend(self.engines.iter().skip(1).map(|row| format!("{} / {}", self.engines[0].engine, row.engine)));
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(header);
        let mut plain = |name: &str, digits: usize, value: fn(&Row) -> f64| {
            let values: Vec<f64> = self.engines.iter().map(value).collect();
            let mut cells = vec![name.to_owned()];
            cells.extend(values.iter().map(|value| format!("{value:.digits$}")));
            cells.extend(values.iter().skip(1).map(|value| ratio(values[0], *value)));
            table.add_row(cells);
        };
        plain("probes", 0, |row| row.exec_sync.count as f64);
        plain("possible probes", 0, |row| row.wanted as f64);
        plain("ExecSync p50, ms", 2, |row| row.exec_sync.p50_ms);
        plain("ExecSync p99, ms", 2, |row| row.exec_sync.p99_ms);
        plain("CPU of the node, % of a core", 1, |row| row.node_percent);
        plain("CPU of the engine's processes, % of a core", 1, |row| row.engine_percent);
        plain("CPU of the node per probe, ms", 2, |row| row.node_ms_per_probe);
        plain("processes and threads per probe", 1, |row| row.forks_per_probe);
        plain("errors", 0, |row| row.errors.values().sum::<usize>() as f64);
        plain("persistent zombies", 0, |row| row.zombies as f64);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let _ = writeln!(text, "{table}");
        for row in self.engines.iter().filter(|row| !row.errors.is_empty()) {
            let _ = writeln!(text, "{}: {:?}", row.engine, row.errors);
        }
        text
    }
}

fn ratio(first: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.3}", first / other) } else { "–".to_owned() }
}
