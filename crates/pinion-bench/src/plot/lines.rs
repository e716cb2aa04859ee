//! Lines, each with a color and a pattern of its own.

use std::fmt::Write;

use super::{Axis, BOTTOM, COLORS, TOP, axis::Range, escape};

const WIDTH: f64 = 420.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 20.0;
/// Height of the plot, and of a row of the legend.
const PLOT: f64 = 220.0;
const LEGEND: f64 = 18.0;
/// Width of a sample of a line in the legend, and of a character.
const SAMPLE: f64 = 34.0;
const CHARACTER: f64 = 6.6;
/// Patterns, so that lines differ for readers without color vision, too.
const PATTERNS: [&str; 8] = ["none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 4", "6 2 6 6"];
/// Most points with a mark each.
const MARKS_MAX: usize = 40;

/// Lines over two axes.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

/// A line and its name.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws a chart.
pub(crate) fn svg(chart: &Chart) -> String {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let x = chart.x.range(points().map(|(x, _)| *x));
    let y = chart.y.range(points().map(|(_, y)| *y));
    let places = legend_places(&chart.lines);
    let legend = places.last().map_or(0.0, |(_, row)| (row + 1.0) * LEGEND);
    let mut text = super::head(&chart.title, WIDTH, TOP + PLOT + BOTTOM + legend, 10.0);
    axes(&mut text, chart, &x, &y);
    for (number, (line, (left, row))) in chart.lines.iter().zip(places).enumerate() {
        let style = format!(
            "fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"",
            COLORS[number % COLORS.len()],
            PATTERNS[number % PATTERNS.len()]
        );
        draw(&mut text, line, (&style, COLORS[number % COLORS.len()]), &x, &y);
        let below = TOP + PLOT + BOTTOM + row * LEGEND + 4.0;
        let _ = writeln!(text, "<path {style} d=\"M{left:.1} {0:.1}h{1:.1}\"/>", below - 4.0, SAMPLE - 8.0);
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{below:.1}\">{}</text>", left + SAMPLE, escape(&line.name));
    }
    text.push_str("</svg>\n");
    text
}

/// Returns the left end and the row of each entry of the legend.
fn legend_places(lines: &[Line]) -> Vec<(f64, f64)> {
    let (mut left, mut row) = (10.0, 0.0);
    let mut places = Vec::new();
    for line in lines {
        let width = SAMPLE + line.name.chars().count() as f64 * CHARACTER + 16.0;
        if left > 10.0 && left + width > WIDTH {
            (left, row) = (10.0, row + 1.0);
        }
        places.push((left, row));
        left += width;
    }
    places
}

fn horizontal(position: f64) -> f64 {
    LEFT + position * (WIDTH - LEFT - RIGHT)
}

fn vertical(position: f64) -> f64 {
    TOP + (1.0 - position) * PLOT
}

fn axes(text: &mut String, chart: &Chart, x: &Range, y: &Range) {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT);
    for tick in &y.ticks {
        let Some(at) = y.position(*tick).map(vertical) else { continue };
        let _ = writeln!(text, "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let (left, below, label) = (LEFT - 6.0, at + 4.0, y.label(*tick));
        let _ = writeln!(text, "<text x=\"{left:.1}\" y=\"{below:.1}\" text-anchor=\"end\">{label}</text>");
    }
    let mut free = 0.0;
    for tick in &x.ticks {
        let Some(at) = x.position(*tick).map(horizontal) else { continue };
        let _ = writeln!(text, "<line class=\"g\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
        let label = x.label(*tick);
        let half = label.len() as f64 * CHARACTER / 2.0 + 3.0;
        // A label that would overlap its neighbour is left out; its line is drawn.
        if at - half >= free {
            free = at + half;
            let _ =
                writeln!(text, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 16.0);
        }
    }
    let (middle, below) = (f64::midpoint(LEFT, right), bottom + 36.0);
    let _ =
        writeln!(text, "<text x=\"{middle:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>", escape(&chart.x.name));
    let _ = writeln!(text, "<text x=\"10\" y=\"{:.1}\">{}</text>", TOP - 8.0, escape(&chart.y.name));
}

fn draw(text: &mut String, line: &Line, (style, color): (&str, &str), x: &Range, y: &Range) {
    let place = |(one, other): &(f64, f64)| Some((horizontal(x.position(*one)?), vertical(y.position(*other)?)));
    let points: Vec<(f64, f64)> = line.points.iter().filter_map(place).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(text, "<polyline {style} points=\"{}\"/>", path.join(" "));
    if points.len() <= MARKS_MAX {
        for (x, y) in &points {
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Scale;

    #[test]
    fn a_chart_shows_every_line_and_escapes_names() {
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.to_owned(), points: points.to_vec() };
        let axis = |scale| Axis { name: "a".to_owned(), scale };
        let chart = Chart {
            title: "a < b".to_owned(),
            x: axis(Scale::Values),
            y: axis(Scale::Linear),
            lines: vec![line("one & only", &[(1.0, 1.0), (512.0, 0.5)]), line("none", &[(1.0, f64::NAN)])],
        };
        let text = svg(&chart);
        assert!(text.contains("a &lt; b") && text.contains("one &amp; only") && !text.contains("NaN"), "{text}");
        assert_eq!((text.matches("<polyline").count(), text.matches("r=\"3\"").count()), (2, 2));
        let empty = svg(&Chart { lines: Vec::new(), ..chart });
        assert!(!empty.contains("inf") && !empty.contains("NaN"), "{empty}");
    }

    #[test]
    fn long_names_continue_in_another_row_of_the_legend() {
        let lines: Vec<Line> =
            (0..6).map(|_| Line { name: "an engine with a name".to_owned(), points: Vec::new() }).collect();
        let places = legend_places(&lines);
        assert!(places.iter().all(|(left, _)| left + SAMPLE + 21.0 * CHARACTER <= WIDTH), "{places:?}");
        assert!(places.last().is_some_and(|(_, row)| *row >= 2.0), "{places:?}");
    }
}
