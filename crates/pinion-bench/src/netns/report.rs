//! Creation and deletion, as a table.

use comfy_table::{CellAlignment, Table, presets};

/// Creation and deletion of so many namespaces.
#[derive(Debug)]
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

const HEADER: [&str; 8] =
    ["namespaces", "create and drop", "create_many", "KiB each", "pin", "unpin", "delete group", "until gone"];

/// Returns the table.
pub(super) fn table(bursts: &[Burst]) -> Table {
    let rows = bursts.iter().map(|burst| {
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
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(HEADER).add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
