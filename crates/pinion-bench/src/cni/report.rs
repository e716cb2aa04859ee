//! The measurements, as a table.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{Cycle, lists::List};
use crate::{machine::Machine, statistics::median};

/// All measurements.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    rounds: usize,
    pub(super) cases: Vec<Case>,
}

/// One network with one number of pods.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    pub(super) list: List,
    /// Pods that were attached all the time.
    pub(super) pods: usize,
    pub(super) engine: Vec<Cycle>,
    pub(super) programs: Vec<Cycle>,
}

impl Case {
    fn row(&self) -> Vec<String> {
        let of = |cycles: &[Cycle], part: fn(&Cycle) -> f64| median(cycles.iter().map(part));
        let both = |cycle: &Cycle| cycle.attach_ms + cycle.detach_ms;
        let all = |cycle: &Cycle| cycle.attach_ms + cycle.detach_ms + cycle.settle_ms;
        // Pair by pair: what disturbed a round disturbed both.
        let ratio = |part: fn(&Cycle) -> f64| {
            median(self.engine.iter().zip(&self.programs).map(|(engine, programs)| part(engine) / part(programs)))
        };
        let ms = |value: f64| format!("{value:.2}");
        vec![
            self.list.name().to_owned(),
            self.pods.to_string(),
            ms(of(&self.engine, |c| c.attach_ms)),
            ms(of(&self.engine, |c| c.detach_ms)),
            ms(of(&self.engine, |c| c.settle_ms)),
            ms(of(&self.programs, |c| c.attach_ms)),
            ms(of(&self.programs, |c| c.detach_ms)),
            format!("{:.3}", ratio(both)),
            format!("{:.3}", ratio(all)),
        ]
    }
}

impl Report {
    pub(super) fn new(machine: Machine, rounds: usize) -> Self {
        Self { machine, rounds, cases: Vec::new() }
    }

    /// Returns the table, with the machine.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([
            "network",
            "pods",
            "attach",
            "detach",
            "settle",
            "programs: attach",
            "detach",
            "ratio",
            "ratio, settled",
        ]);
        table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        for case in &self.cases {
            table.add_row(case.row());
        }
        format!(
            "{}\n{} rounds, medians in milliseconds. settle: from the response of detach until nothing is left of the pod.\n\
             ratio: attach and detach against the programs, the median of all rounds; settled: with settle.\n\n{table}",
            self.machine.line(),
            self.rounds
        )
    }
}
