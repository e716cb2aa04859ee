use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::rounds::Measurements;
use crate::{engine::Engine, machine::Machine};

/// All measurements.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    pods: usize,
    names: Vec<String>,
    /// A row per engine.
    pub(super) engines: Vec<Row>,
}

/// The measurements of one engine.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) engine: String,
    pub(super) version: String,
    pub(super) calm: Vec<Measurements>,
    /// Measurements with one frozen and one killed container.
    pub(super) disturbed: Vec<Measurements>,
}

impl Report {
    /// Creates a report without measurements.
    pub(super) fn new(machine: Machine, engines: &[Engine], pods: usize) -> Self {
        let names = engines.iter().map(|engine| engine.name.clone()).collect();
        Self { machine, pods, names, engines: Vec::new() }
    }

    /// Formats a Markdown table for each engine.
    pub(super) fn tables(&self) -> String {
        let mut text = format!("{}\n{} pods of one container\n", self.machine.line(), self.pods);
        for row in &self.engines {
            let _ = writeln!(text, "\n{}: {}\n\n{}", row.engine, row.version, table(row));
        }
        text
    }
}

fn table(row: &Row) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(vec![
        "",
        "p50 ms",
        "p99 ms",
        "KiB",
        "daemon CPU ms",
        "with a frozen and a killed container: p50 ms",
        "p99 ms",
    ]);
    for (calm, disturbed) in row.calm.iter().zip(&row.disturbed) {
        table.add_row(match &calm.refused {
            Some(error) => vec![calm.list.to_owned(), error.clone()],
            None => vec![
                calm.list.to_owned(),
                format!("{:.2}", calm.times.p50_ms),
                format!("{:.2}", calm.times.p99_ms),
                (calm.bytes / 1024).to_string(),
                format!("{:.2}", calm.cpu_ms),
                format!("{:.2}", disturbed.times.p50_ms),
                format!("{:.2}", disturbed.times.p99_ms),
            ],
        });
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
