use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::rounds::Figures;
use crate::{engine::Engine, machine::Machine};

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    pods: usize,
    names: Vec<String>,
    /// A row per engine.
    pub(super) engines: Vec<Row>,
}

/// One engine.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) engine: String,
    pub(super) version: String,
    pub(super) calm: Vec<Figures>,
    /// With one frozen and one dead container.
    pub(super) disturbed: Vec<Figures>,
}

impl Report {
    /// Nothing measured yet.
    pub(super) fn new(machine: Machine, engines: &[Engine], pods: usize) -> Self {
        let names = engines.iter().map(|engine| engine.name.clone()).collect();
        Self { machine, pods, names, engines: Vec::new() }
    }

    /// A Markdown table for each engine.
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
        "with a frozen and a dead container: p50 ms",
        "p99 ms",
    ]);
    for (calm, disturbed) in row.calm.iter().zip(&row.disturbed) {
        table.add_row(match &calm.refused {
            Some(words) => vec![calm.list.to_owned(), words.clone()],
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
