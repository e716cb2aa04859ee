//! Reports as Markdown, which is readable as text, too.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{Cell, Row, Section, answer::Answer, publications, quote};
use crate::{
    number::short,
    results::printable_lines,
    statistics::{Comparison, Verdict},
};

/// Least number of values for which the 99th percentile is shown.
const P99_MIN: usize = 50;

/// Returns the report of all sections.
pub(crate) fn text(sections: &[Section]) -> String {
    // A file of results may have any names and texts.
    printable_lines(&sections.iter().map(section).collect::<Vec<_>>().join("\n"))
}

fn section(section: &Section) -> String {
    let head = &section.results.head;
    let scenario = &head.scenario;
    let answer = Answer::of(section);
    let mut text = format!("## {}\n\n{}\n\n", scenario.title, scenario.work);
    list(&mut text, "", answer.headlines.iter());
    list(&mut text, "", answer.standing.iter());
    list(&mut text, "Not the best", answer.not_best.iter());
    list(&mut text, "Failures", answer.failures.iter());
    for parameter in section.parameters() {
        let rows = section.rows.iter().filter(|row| row.parameter == parameter);
        let _ = writeln!(
            text,
            "{}; median [95 % confidence interval]\n\n{}\n",
            section.group_title(parameter),
            table(section, rows)
        );
    }
    publications(&mut text, section);
    list(&mut text, "", answer.notes.iter());
    let _ = writeln!(text, "{}; pinion-bench {}\n", head.machine.line(), head.tool);
    let contestants = scenario.contestants.iter();
    let contestants: Vec<String> =
        contestants.map(|one| format!("{}: {}, {}", one.name, one.version, one.configuration)).collect();
    list(&mut text, "", contestants.iter());
    let settings: Vec<String> = scenario.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let _ = writeln!(text, "{} rounds; {}\n\n    {}", scenario.rounds, settings.join("; "), quote::command(head));
    text
}

fn publications(text: &mut String, section: &Section) {
    for comparison in publications::of(section) {
        let publication = comparison.publication;
        let _ = writeln!(text, "Published: {}, <{}>. {}.", publication.source, publication.url, publication.setting);
        let _ = writeln!(text, "{}\n", publication.remark);
        let columns = if comparison.has_values() { 3 } else { 2 };
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(["", "published", "this run"].into_iter().take(columns));
        for line in &comparison.lines {
            table.add_row([line.published.name, line.published.value, &line.value].into_iter().take(columns));
        }
        if !comparison.lines.is_empty() {
            let _ = writeln!(text, "{table}\n");
        }
    }
}

fn list<'a>(text: &mut String, title: &str, items: impl Iterator<Item = &'a String>) {
    let items: Vec<String> = items.map(|item| format!("- {item}\n")).collect();
    if !items.is_empty() {
        let title = if title.is_empty() { String::new() } else { format!("{title}:\n\n") };
        let _ = writeln!(text, "{title}{}", items.concat());
    }
}

fn table<'a>(section: &Section, rows: impl Iterator<Item = &'a Row>) -> Table {
    let contestants = &section.results.head.scenario.contestants;
    let mut header = vec![String::new()];
    header.extend(contestants.iter().map(|contestant| contestant.name.clone()));
    header.extend(contestants.iter().skip(1).map(|other| format!("{} / {}", contestants[0].name, other.name)));
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for row in rows {
        let mut cells = vec![row.metric.label()];
        cells.extend(row.cells.iter().map(value));
        cells.extend((1..contestants.len()).map(|other| ratio(row.compare(0, other))));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn value(cell: &Cell) -> String {
    let failures = if cell.failures > 0 { format!(" ({} failed)", cell.failures) } else { String::new() };
    let Some(estimate) = cell.estimate else { return format!("–{failures}") };
    let p99 =
        if cell.values.len() >= P99_MIN { format!(" p99 {}", short(cell.percentile(0.99))) } else { String::new() };
    let (low, high) = (short(estimate.low), short(estimate.high));
    let interval = if cell.rounds.len() > 1 { format!(" [{low}–{high}]") } else { String::new() };
    format!("{}{interval}{p99}{failures}", short(estimate.value))
}

fn ratio(comparison: Option<Comparison>) -> String {
    let Some(comparison) = comparison else { return "–".to_owned() };
    let verdict = match comparison.verdict {
        Verdict::Better => "",
        Verdict::Worse => " worse",
        Verdict::Equal => " equal",
        Verdict::Undecided => " ?",
    };
    let value = comparison.ratio.map_or_else(|| "–".to_owned(), |ratio| short(ratio.value));
    format!("{value}{verdict}")
}
