//! All values of a section as a table, closed at first.

use std::fmt::Write;

use super::super::Section;
use crate::{number::short, plot::escape};

const COLUMNS: [&str; 9] = ["values", "failed", "mean", "deviation", "min", "median", "p90", "p99", "max"];

pub(super) fn write(text: &mut String, section: &Section) {
    text.push_str("<details><summary>All values</summary>\n");
    for row in &section.rows {
        let group = row.parameter.map(|_| format!(" ({})", section.group_title(row.parameter))).unwrap_or_default();
        let title = escape(&format!("{}{group}", row.metric.label()));
        let header: Vec<String> = COLUMNS.iter().map(|column| format!("<th>{column}</th>")).collect();
        let _ = writeln!(
            text,
            "<h4>{title}</h4>\n<table class=\"values\"><thead><tr><th></th>{}</tr></thead><tbody>",
            header.concat()
        );
        for (cell, contestant) in row.cells.iter().zip(&section.results.head.scenario.contestants) {
            let statistics = [
                cell.mean(),
                cell.deviation(),
                cell.percentile(0.0),
                cell.median().unwrap_or(f64::NAN),
                cell.percentile(0.9),
                cell.percentile(0.99),
                cell.percentile(1.0),
            ];
            let counts = [cell.values.len().to_string(), cell.failures.to_string()];
            let cells = counts.into_iter().chain(statistics.map(short));
            let cells: Vec<String> =
                COLUMNS.iter().zip(cells).map(|(name, cell)| format!("<td data-name=\"{name}\">{cell}</td>")).collect();
            let name = escape(&contestant.name);
            let _ = writeln!(text, "<tr><td data-name=\"\">{name}</td>{}</tr>", cells.concat());
        }
        text.push_str("</tbody></table>\n");
    }
    text.push_str("</details>\n");
}
