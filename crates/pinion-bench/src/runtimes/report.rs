use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::{machine::Machine, pods::Density, statistics::Summary};

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
    /// A row per engine.
    pub(crate) density: Vec<Density>,
}

/// The measurements of one contestant.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether the containers ran through an engine, and not at the command line.
    pub(crate) is_engine: bool,
    pub(crate) times: Summary,
    /// Number of containers that failed.
    pub(crate) errors: usize,
    pub(crate) last_error: Option<String>,
    /// Time of all containers.
    pub(crate) total_s: f64,
    /// CPU time of the whole machine per container.
    pub(crate) cpu_ms: f64,
    /// Processes and threads created on the whole machine, per container.
    pub(crate) forks: f64,
    /// Written to disks of the whole machine, per container.
    pub(crate) disk_kib: f64,
    /// Lowest memory limit at which `true` runs.
    pub(crate) memory_kib: Option<u64>,
}

impl Report {
    /// Formats Markdown tables: a row per contestant.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!("{}\n", self.machine.line());
        for row in &self.rows {
            let way = if row.is_engine { "engine" } else { "command line" };
            let _ = writeln!(text, "{} ({way}): {}", row.name, row.version);
            if let Some(error) = &row.last_error {
                let _ = writeln!(text, "  last of {} errors: {error}", row.errors);
            }
        }
        let _ = writeln!(text, "\ncontainers of `true`; milliseconds\n\n{}", self.runs());
        if let Some(first) = self.density.first() {
            let pods = first.pods;
            let _ = writeln!(text, "\n{pods} running pods of one container, without its processes\n\n{}", self.pods());
        }
        text
    }

    fn runs(&self) -> Table {
        let header = [
            "",
            "mean",
            "median",
            "min",
            "p99",
            "max",
            "errors",
            "total s",
            "CPU ms",
            "forks",
            "disk KiB",
            "lowest memory KiB",
        ];
        let mut table = markdown(&header);
        for row in &self.rows {
            let Summary { mean_ms, p50_ms, min_ms, p99_ms, max_ms, .. } = row.times;
            let mut cells = vec![row.name.clone()];
            cells.extend([mean_ms, p50_ms, min_ms, p99_ms, max_ms].map(|value| format!("{value:.2}")));
            cells.push(row.errors.to_string());
            cells.extend([row.total_s, row.cpu_ms, row.forks, row.disk_kib].map(|value| format!("{value:.1}")));
            cells.push(row.memory_kib.map_or("–".to_owned(), |kib| kib.to_string()));
            table.add_row(cells);
        }
        align(table)
    }

    fn pods(&self) -> Table {
        let mut table = markdown(&["", "processes per pod", "PSS KiB per pod", "host mounts per pod"]);
        for row in &self.density {
            let values = [row.processes, row.pss_kib, row.mounts];
            let cells = values.map(|value| format!("{value:.2}"));
            table.add_row([vec![row.engine.clone()], cells.to_vec()].concat());
        }
        align(table)
    }
}

fn markdown(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table
}

fn align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
