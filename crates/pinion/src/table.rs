use comfy_table::{ContentArrangement, Table as Inner, TableStyle};

use crate::{Failure, output};

/// A table for people: no borders, columns aligned, never broken over lines (terminals wrap; `cut` and `grep` do not).
pub(crate) struct Table(Inner);

impl Table {
    /// A table with these column heads.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let mut table = Inner::new();
        table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled).set_header(heads);
        Self(table)
    }

    /// Adds a row. What containers chose themselves must not steer the terminal.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        self.0.add_row(cells.into_iter().map(|cell| printable(cell.as_ref())));
    }

    /// The text, without a last line end.
    pub(crate) fn text(&self) -> String {
        let text = self.0.to_string();
        let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
        lines.join("\n")
    }

    /// Prints it.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        output::line(&self.text())
    }
}

/// Control characters, shown.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["a", "Up"]);
        table.row(["longer", "Exited\x1b[2J"]);
        let text = table.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("NAME"), "{text:?}");
        assert_eq!(lines[0].find("STATE"), lines[1].find("Up"));
        assert!(lines.iter().all(|line| *line == line.trim_end() && !line.contains('\x1b')), "{text:?}");
    }
}
