use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{density::Density, lifecycle::STEPS, rounds::Mode};
use crate::{engine::Engine, machine::Machine, statistics::Summary};

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    engines: Vec<Name>,
    steps: [&'static str; STEPS.len()],
    /// Modes, with a table each.
    pub(crate) modes: Vec<Mode>,
    /// A row per engine.
    pub(crate) density: Vec<Density>,
}

#[derive(Debug, Serialize)]
struct Name {
    name: String,
    version: String,
}

impl Report {
    /// Creates a report without measurements.
    pub(crate) fn new(machine: Machine, engines: &[Engine]) -> Self {
        let engines = engines.iter().map(|e| Name { name: e.name.clone(), version: e.version.clone() }).collect();
        Self { machine, engines, steps: STEPS, modes: Vec::new(), density: Vec::new() }
    }

    /// Formats Markdown tables: a row per step, a column per engine, and columns with the ratio of the first engine to
    /// each other one.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!("{}\n", self.machine.line());
        for engine in &self.engines {
            let _ = writeln!(text, "{}: {}", engine.name, engine.version);
        }
        for mode in &self.modes {
            let _ = writeln!(text, "\n{} in flight; milliseconds, p50 / p99\n\n{}", mode.in_flight, self.mode(mode));
        }
        if let Some(first) = self.density.first() {
            let _ = writeln!(
                text,
                "\n{} running pods of one container; without the processes of the containers\n\n{}",
                first.pods,
                self.densities()
            );
        }
        text
    }

    fn mode(&self, mode: &Mode) -> Table {
        let mut header = vec!["".to_owned()];
        header.extend(self.engines.iter().map(|e| e.name.clone()));
        header.extend(self.engines.iter().skip(1).map(|e| format!("{} / {}", self.engines[0].name, e.name)));
        let mut table = markdown(header);
        for (index, step) in STEPS.iter().enumerate() {
            table.add_row(times(step, mode.engines.iter().map(|row| row.steps[index]).collect()));
        }
        table.add_row(times("whole life", mode.engines.iter().map(|row| row.whole).collect()));
        let mut plain = |name: &str, values: Vec<f64>, digits: usize| {
            let mut cells = vec![name.to_owned()];
            cells.extend(values.iter().map(|value| format!("{value:.digits$}")));
            cells.extend(values.iter().skip(1).map(|value| ratio(values[0], *value)));
            table.add_row(cells);
        };
        plain("all pods, s", mode.engines.iter().map(|row| row.wall_s).collect(), 2);
        plain("CPU ms per pod (whole machine)", mode.engines.iter().map(|row| row.cpu_ms).collect(), 1);
        plain("forks and threads per pod", mode.engines.iter().map(|row| row.forks).collect(), 1);
        plain("KiB to disk per pod", mode.engines.iter().map(|row| row.disk_bytes / 1024.0).collect(), 1);
        align(table)
    }

    fn densities(&self) -> Table {
        let header = ["", "daemon at rest, PSS KiB", "processes per pod", "PSS KiB per pod", "host mounts per pod"];
        let mut table = markdown(header.map(str::to_owned).to_vec());
        for row in &self.density {
            table.add_row(vec![
                row.engine.clone(),
                row.rest_kib.to_string(),
                format!("{:.2}", row.processes),
                format!("{:.0}", row.pss_kib),
                format!("{:.2}", row.mounts),
            ]);
        }
        align(table)
    }
}

fn times(name: &str, values: Vec<Summary>) -> Vec<String> {
    let mut cells = vec![name.to_owned()];
    cells.extend(values.iter().map(|value| format!("{:.2} / {:.2}", value.p50_ms, value.p99_ms)));
    cells.extend(values.iter().skip(1).map(|value| ratio(values[0].p50_ms, value.p50_ms)));
    cells
}

fn ratio(first: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.3}", first / other) } else { "–".to_owned() }
}

fn markdown(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}

fn align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
