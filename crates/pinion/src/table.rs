use comfy_table::{ContentArrangement, Table as Inner, TableStyle};

use crate::{Failure, output};

/// A table for users: aligned columns without borders. Rows are never broken over lines, which `cut` and `grep` could
/// not process; terminals wrap them.
pub(crate) struct Table(Inner);

impl Table {
    /// Creates a table with these column headings.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let mut table = Inner::new();
        table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled).set_header(heads);
        Self(table)
    }

    /// Adds a row. Control characters are replaced, because containers choose some of the texts.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        self.0.add_row(cells.into_iter().map(|cell| printable(cell.as_ref())));
    }

    /// Returns the text without a trailing newline.
    pub(crate) fn text(&self) -> String {
        let text = self.0.to_string();
        let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
        lines.join("\n")
    }

    /// Prints the table to standard output.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        output::line(&self.text())
    }
}

/// Replaces control characters with U+FFFD, so that a text from a container cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
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
