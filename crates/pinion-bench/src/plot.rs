//! Charts as SVG, without scripts, readable on light and dark backgrounds.

mod ranges;

use std::fmt::Write;

pub(crate) use ranges::{Range, RangeChart, ranges};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Colors that differ in brightness, too (Okabe and Ito).
const COLORS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#777777"];

/// Lines over a logarithmic axis.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Name of the horizontal axis, whose values are positive.
    pub(crate) x: String,
    /// Name of the vertical axis, which begins at zero.
    pub(crate) y: String,
    pub(crate) lines: Vec<Line>,
}

/// A line and its name.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

struct Scale {
    x_min: f64,
    x_max: f64,
    y_max: f64,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let points = || chart.lines.iter().flat_map(|line| &line.points).filter(|(x, y)| *x > 0.0 && y.is_finite());
        let x_min = points().map(|(x, _)| x.log2()).fold(f64::INFINITY, f64::min);
        let x_max = points().map(|(x, _)| x.log2()).fold(f64::NEG_INFINITY, f64::max);
        let y_max = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let x_min = if x_min.is_finite() { x_min } else { 0.0 };
        Self { x_min, x_max: x_max.max(x_min + 1.0), y_max: if y_max > 0.0 { y_max * 1.08 } else { 1.0 } }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value.log2() - self.x_min) / (self.x_max - self.x_min) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.y_max * (HEIGHT - TOP - BOTTOM)
    }
}

/// Draws a chart.
pub(crate) fn svg(chart: &Chart) -> String {
    let scale = Scale::of(chart);
    let mut text = head(&chart.title, HEIGHT);
    axes(&mut text, chart, &scale);
    for (number, line) in chart.lines.iter().enumerate() {
        draw(&mut text, line, COLORS[number % COLORS.len()], number, &scale);
    }
    text.push_str("</svg>\n");
    text
}

/// Returns the first elements of an image of this height: its styles and its title.
fn head(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<style>text{{fill:#222}}.g{{stroke:#ccc}}@media(prefers-color-scheme:dark){{text{{fill:#ddd}}\
         .g{{stroke:#444}}}}</style>\n<title>{0}</title>\n<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{0}</text>\n",
        escape(title)
    )
}

fn axes(text: &mut String, chart: &Chart, scale: &Scale) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let step = step(scale.y_max);
    for number in 0..=(scale.y_max / step) as usize {
        let (value, y) = (number as f64 * step, scale.y(number as f64 * step));
        let _ = writeln!(text, "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        let label = format!("{value:.*}", if step < 1.0 { 1 } else { 0 });
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, y + 4.0);
    }
    let mut values: Vec<f64> = chart.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    for value in values.iter().filter(|value| **value > 0.0) {
        let x = scale.x(*value);
        let _ = writeln!(text, "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>", bottom + 16.0);
    }
    let (middle, below) = (f64::midpoint(LEFT, right), HEIGHT - 14.0);
    let _ = writeln!(text, "<text x=\"{middle:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>", escape(&chart.x));
    let centre = f64::midpoint(TOP, bottom);
    let _ = writeln!(
        text,
        "<text transform=\"translate(16 {centre:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        escape(&chart.y)
    );
}

fn draw(text: &mut String, line: &Line, color: &str, number: usize, scale: &Scale) {
    let visible = line.points.iter().filter(|(x, y)| *x > 0.0 && y.is_finite());
    let points: Vec<(f64, f64)> = visible.map(|(x, y)| (scale.x(*x), scale.y(*y))).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let path = path.join(" ");
    let _ = writeln!(text, "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{path}\"/>");
    for (x, y) in &points {
        let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
    }
    let (x, y) = (WIDTH - RIGHT + 12.0, TOP + 8.0 + 18.0 * number as f64);
    let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{color}\"/>", y - 4.0);
    let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 12.0, escape(&line.name));
}

/// Returns a round distance of about five lines up to a maximum.
fn step(maximum: f64) -> f64 {
    let power = 10f64.powf((maximum / 5.0).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| maximum / (power * factor) <= 6.0);
    power * factor.unwrap_or(10.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_shows_every_line_and_escapes_names() {
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.to_owned(), points: points.to_vec() };
        let chart = Chart {
            title: "a < b".to_owned(),
            x: "x".to_owned(),
            y: "y".to_owned(),
            lines: vec![line("one & only", &[(1.0, 1.0), (512.0, 0.5)]), line("none", &[(1.0, f64::NAN)])],
        };
        let text = svg(&chart);
        assert!(text.contains("a &lt; b") && text.contains("one &amp; only") && !text.contains("NaN"), "{text}");
        assert_eq!((text.matches("<polyline").count(), text.matches("r=\"3\"").count()), (2, 2));
        assert!(!svg(&Chart { lines: Vec::new(), ..chart }).contains("inf"));
    }

    #[test]
    fn lines_of_the_grid_are_round_and_few() {
        for (maximum, expected) in [(1.08, 0.2), (0.5, 0.1), (37.0, 10.0), (100.0, 20.0)] {
            assert!((step(maximum) - expected).abs() < 1e-9, "{maximum}: {}", step(maximum));
        }
    }
}
