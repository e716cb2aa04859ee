//! Charts of ranges: a row for each case, with a point for each value and a line at the median.

use std::fmt::Write;

use super::{BOTTOM, COLORS, TOP, axis::step, escape};
use crate::statistics::median;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 100.0;
/// Height of a series of a row, and distance of rows.
const BAND: f64 = 16.0;
const GAP: f64 = 12.0;

/// Values in rows, on an axis that begins at zero.
#[derive(Clone, Debug)]
pub(crate) struct RangeChart {
    pub(crate) title: String,
    /// Name of the horizontal axis.
    pub(crate) axis: String,
    /// Those of one row follow each other.
    pub(crate) ranges: Vec<Range>,
}

/// The values of one series in one row.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) row: String,
    pub(crate) series: String,
    pub(crate) values: Vec<f64>,
}

/// Draws a chart. The axis ends at twice the largest median; points beyond it are drawn as arrows at its end.
pub(crate) fn ranges(chart: &RangeChart) -> String {
    let mut series: Vec<&str> = Vec::new();
    for range in &chart.ranges {
        if !series.contains(&range.series.as_str()) {
            series.push(&range.series);
        }
    }
    let medians = chart.ranges.iter().map(|range| median(range.values.iter().copied()));
    let largest = chart.ranges.iter().flat_map(|range| &range.values).copied().fold(0.0, f64::max);
    let maximum = (medians.filter(|value| value.is_finite()).fold(0.0, f64::max) * 2.0).min(largest * 1.05).max(1e-9);
    let rows = chart.ranges.chunk_by(|one, two| one.row == two.row);
    let heights: Vec<f64> = rows.clone().map(|row| row.len() as f64 * BAND + GAP).collect();
    let height = TOP + heights.iter().sum::<f64>() + BOTTOM;
    let mut text = super::head(&chart.title, WIDTH, height, 64.0);
    axis(&mut text, &chart.axis, maximum, height);
    let mut top = TOP;
    for (row, row_height) in rows.zip(heights) {
        let middle = top + (row_height - GAP) / 2.0 + 4.0;
        let name = row.first().map(|range| escape(&range.row)).unwrap_or_default();
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>", LEFT - 10.0);
        for (number, range) in row.iter().enumerate() {
            let color = series.iter().position(|name| *name == range.series).unwrap_or(0) % COLORS.len();
            draw(&mut text, range, COLORS[color], top + (number as f64 + 0.5) * BAND, maximum);
        }
        top += row_height;
    }
    for (number, name) in series.iter().enumerate() {
        let (x, y, color) = (WIDTH - RIGHT + 18.0, TOP + 8.0 + 18.0 * number as f64, COLORS[number % COLORS.len()]);
        let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{color}\"/>", y - 4.0);
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 12.0, escape(name));
    }
    text.push_str("</svg>\n");
    text
}

fn x(value: f64, maximum: f64) -> f64 {
    LEFT + value / maximum * (WIDTH - LEFT - RIGHT)
}

fn axis(text: &mut String, name: &str, maximum: f64, height: f64) {
    let (step, bottom) = (step(maximum), height - BOTTOM);
    for number in 0..=(maximum / step) as usize {
        let value = number as f64 * step;
        let x = x(value, maximum);
        let _ = writeln!(text, "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>");
        let label = format!("{value:.*}", usize::from(step < 1.0));
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 16.0);
    }
    let (middle, below) = (f64::midpoint(LEFT, WIDTH - RIGHT), height - 14.0);
    let _ = writeln!(text, "<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>", escape(name));
}

fn draw(text: &mut String, range: &Range, color: &str, y: f64, maximum: f64) {
    for value in range.values.iter().filter(|value| value.is_finite()) {
        let x = x(value.min(maximum), maximum);
        let _ = if *value <= maximum {
            writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\" fill-opacity=\"0.5\"/>")
        } else {
            let (left, above, below) = (x - 6.0, y - 4.0, y + 4.0);
            writeln!(text, "<path d=\"M{left:.1} {above:.1}L{x:.1} {y:.1}L{left:.1} {below:.1}z\" fill=\"{color}\"/>")
        };
    }
    let median = median(range.values.iter().copied());
    if median.is_finite() {
        let (x, above, below) = (x(median, maximum), y - BAND / 2.0 + 1.0, y + BAND / 2.0 - 1.0);
        let line = format!("x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{above:.1}\" y2=\"{below:.1}\"");
        let _ = writeln!(text, "<line {line} stroke=\"{color}\" stroke-width=\"2.5\"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(row: &str, series: &str, values: &[f64]) -> Range {
        Range { row: row.to_owned(), series: series.to_owned(), values: values.to_vec() }
    }

    #[test]
    fn every_value_is_drawn_also_those_beyond_the_axis() {
        let ranges_of = vec![
            range("a & b", "one", &[1.0, 2.0, 3.0]),
            range("a & b", "two", &[2.0, 2.0, 50.0]),
            range("c", "one", &[1.0]),
            range("c", "two", &[]),
        ];
        let chart = RangeChart { title: "t".to_owned(), axis: "µs".to_owned(), ranges: ranges_of };
        let text = ranges(&chart);
        assert_eq!((text.matches("r=\"3\"").count(), text.matches("<path").count()), (6, 1), "{text}");
        assert_eq!(text.matches("stroke-width=\"2.5\"").count(), 3, "a median for each series with values");
        assert_eq!(text.matches("a &amp; b").count(), 1);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        let empty = ranges(&RangeChart { ranges: Vec::new(), ..chart });
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
