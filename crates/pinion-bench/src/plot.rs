//! Charts as SVG, without scripts, readable on light and dark backgrounds.

mod axis;
mod lines;

pub(crate) use axis::{Axis, Scale};
pub(crate) use lines::{Chart, Line, svg};

const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Colors that differ in brightness, too (Okabe and Ito).
pub(crate) const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#777777"];

/// Returns the first elements of an image: its styles and its title, which is at `left`.
fn head(title: &str, width: f64, height: f64, left: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<style>text{{fill:#222}}.g{{stroke:#ccc}}@media(prefers-color-scheme:dark){{text{{fill:#ddd}}\
         .g{{stroke:#444}}}}</style>\n<title>{0}</title>\n<text x=\"{left}\" y=\"20\" font-size=\"13\">{0}</text>\n",
        escape(title)
    )
}

/// Escapes text for XML and HTML.
pub(crate) fn escape(text: &str) -> String {
    let is_printable = |c: &char| !c.is_control() || *c == '\n';
    let text: String = text.chars().filter(is_printable).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
