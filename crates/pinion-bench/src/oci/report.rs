use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{
    Contestant,
    rounds::{Cost, LIFECYCLE},
    syscalls::Counts,
};
use crate::machine::Machine;

/// A value per runtime.
type Row = Vec<Option<Cost>>;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    runtimes: Vec<Name>,
    pub(crate) run: Row,
    pub(crate) idle: Row,
    pub(crate) exec: Row,
    pub(crate) life: Vec<Row>,
    pub(crate) syscalls: Vec<Option<Counts>>,
    pub(crate) memory_kib: Vec<Option<u64>>,
    /// Rows by number of mounts.
    pub(crate) mounts: Vec<(usize, Row)>,
}

#[derive(Debug, Serialize)]
struct Name {
    name: String,
    version: String,
    /// Whether the v2 hierarchy of a hybrid machine is hidden.
    without_v2: bool,
}

impl Report {
    /// Creates a report without measurements.
    pub(crate) fn new(machine: Machine, contestants: &[Contestant]) -> Self {
        let name = |contestant: &Contestant| Name {
            name: contestant.runtime.name.clone(),
            version: contestant.runtime.version.clone(),
            without_v2: contestant.hide_v2,
        };
        Self {
            machine,
            runtimes: contestants.iter().map(name).collect(),
            run: Vec::new(),
            idle: Vec::new(),
            exec: Vec::new(),
            life: Vec::new(),
            syscalls: Vec::new(),
            memory_kib: Vec::new(),
            mounts: Vec::new(),
        }
    }

    /// Formats Markdown: a row per measurement, a column per runtime, and columns with the ratio of the first runtime
    /// to each other one.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!("{}\n", self.machine.line());
        for runtime in &self.runtimes {
            let note = if runtime.without_v2 { " (in a mount namespace without cgroup v2)" } else { "" };
            let _ = writeln!(text, "{}: {}{note}", runtime.name, runtime.version);
        }
        let _ = writeln!(text, "\nmilliseconds, median [minimum]\n\n{}", self.table());
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        let mut header = vec![String::new()];
        header.extend(self.runtimes.iter().map(|runtime| runtime.name.clone()));
        header.extend(self.runtimes.iter().skip(1).map(|other| format!("{} / {}", self.runtimes[0].name, other.name)));
        table.load_style(presets::ASCII_MARKDOWN).set_header(header);
        let wall = |cost: &Cost| (cost.wall.p50_ms, format!("{:.2} [{:.2}]", cost.wall.p50_ms, cost.wall.min_ms));
        let cpu = |cost: &Cost| (cost.cpu.p50_ms, format!("{:.2} [{:.2}]", cost.cpu.p50_ms, cost.cpu.min_ms));
        let errors = |cost: &Cost| (0.0, cost.errors.to_string());
        let mut rows = vec![
            ("run true".to_owned(), cells(&self.run, wall)),
            ("run true, CPU".to_owned(), cells(&self.run, cpu)),
            ("run true, errors".to_owned(), cells(&self.run, errors)),
            ("run true after 100 ms of idle".to_owned(), cells(&self.idle, wall)),
            ("exec true".to_owned(), cells(&self.exec, wall)),
            ("exec true, CPU".to_owned(), cells(&self.exec, cpu)),
        ];
        rows.extend(LIFECYCLE.iter().zip(&self.life).map(|(step, row)| ((*step).to_owned(), cells(row, wall))));
        rows.extend(
            self.mounts.iter().map(|(mounts, row)| (format!("run true, {mounts} host mounts"), cells(row, wall))),
        );
        rows.push(("system calls".to_owned(), cells(&self.syscalls, |c| (c.calls as f64, c.calls.to_string()))));
        rows.push((
            "processes and threads".to_owned(),
            cells(&self.syscalls, |c| (c.clones as f64, c.clones.to_string())),
        ));
        rows.push((
            "lowest memory limit, KiB".to_owned(),
            cells(&self.memory_kib, |kib| (*kib as f64, kib.to_string())),
        ));
        for (name, cells) in rows {
            let mut row = vec![name];
            row.extend(cells);
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// Returns the values, followed by the ratios of the first to the others.
fn cells<T>(row: &[Option<T>], show: impl Fn(&T) -> (f64, String)) -> Vec<String> {
    let values: Vec<Option<(f64, String)>> = row.iter().map(|value| value.as_ref().map(&show)).collect();
    let first = values.first().cloned().flatten().map_or(0.0, |(value, _)| value);
    let ratio = |value: &Option<(f64, String)>| match value {
        Some((value, _)) if *value > 0.0 && first > 0.0 => format!("{:.2}", first / value),
        _ => "–".to_owned(),
    };
    let texts = values.iter().map(|value| value.as_ref().map_or("–".to_owned(), |(_, text)| text.clone()));
    texts.chain(values.iter().skip(1).map(ratio)).collect()
}
