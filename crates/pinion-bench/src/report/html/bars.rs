//! A row as bars: the median of each contestant, its interval, and its rounds.

use std::fmt::Write;

use super::super::{Cell, Row, Section};
use crate::{
    number::short,
    plot::{COLORS, escape},
    statistics::Verdict,
};

/// Length of the axis and height of a bar, in units of the image, which is stretched.
const LENGTH: f64 = 1000.0;
const HEIGHT: f64 = 16.0;

pub(super) fn write(text: &mut String, section: &Section, row: &Row) {
    let ends = row.cells.iter().filter_map(|cell| cell.estimate.map(|estimate| estimate.high));
    let maximum = ends.fold(0.0, f64::max);
    let _ = writeln!(text, "<div class=\"metric\"><h4>{}</h4>", escape(&row.metric.label()));
    for (contestant, cell) in row.cells.iter().enumerate() {
        let name = escape(&section.results.head.scenario.contestants[contestant].name);
        let bar = bar(cell, maximum, COLORS[contestant % COLORS.len()]);
        let (value, ratio) = (value(cell), ratio(section, row, contestant));
        let _ = writeln!(
            text,
            "<div class=\"row\"><span class=\"name\">{name}</span><span class=\"bar\">{bar}</span><span \
             class=\"value\">{value}</span>{ratio}</div>"
        );
    }
    text.push_str("</div>\n");
}

fn bar(cell: &Cell, maximum: f64, color: &str) -> String {
    let Some(estimate) = cell.estimate.filter(|_| maximum > 0.0) else { return String::new() };
    let x = |value: f64| (value / maximum).clamp(0.0, 1.0) * (LENGTH - 4.0);
    let mut text = format!(
        "<svg viewBox=\"0 0 {LENGTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\"><title>{0}</title><rect y=\"3\" width=\"{1:.1}\" \
         height=\"10\" fill=\"{color}\" fill-opacity=\"0.55\"/>",
        self::value(cell),
        x(estimate.value).max(2.0)
    );
    // Those beyond the largest interval are drawn at the end.
    for (_, round) in &cell.rounds {
        let _ = write!(text, "<rect x=\"{:.1}\" y=\"5\" width=\"2\" height=\"6\" fill=\"{color}\"/>", x(*round));
    }
    let (low, high) = (x(estimate.low), x(estimate.high));
    let width = (high - low).max(2.0);
    let _ = write!(text, "<rect x=\"{low:.1}\" y=\"14\" width=\"{width:.1}\" height=\"2\" fill=\"{color}\"/></svg>");
    text
}

fn value(cell: &Cell) -> String {
    let failures = if cell.failures > 0 { format!(", {} failed", cell.failures) } else { String::new() };
    let Some(estimate) = cell.estimate else { return format!("not measured{failures}") };
    let (low, high) = (short(estimate.low), short(estimate.high));
    let interval = if cell.rounds.len() > 1 { format!(" [{low}–{high}]") } else { String::new() };
    format!("{}{interval}{failures}", short(estimate.value))
}

/// Returns the ratio of the first contestant to another one.
fn ratio(section: &Section, row: &Row, contestant: usize) -> String {
    let comparison = (contestant > 0).then(|| row.compare(0, contestant)).flatten();
    let Some(comparison) = comparison else { return "<span class=\"ratio\"></span>".to_owned() };
    let first = escape(&section.results.head.scenario.contestants[0].name);
    let (class, verdict) = match comparison.verdict {
        Verdict::Better => ("better", "better"),
        Verdict::Worse => ("worse", "worse"),
        Verdict::Equal => ("dim", "equal"),
        Verdict::Undecided => ("dim", "too few rounds"),
    };
    let ratio = comparison.ratio.map(|ratio| format!("is {} ×, ", short(ratio.value))).unwrap_or_default();
    format!("<span class=\"ratio {class}\">{first} {ratio}{verdict}</span>")
}
