//! Tables and prose for people at a terminal: columns have no lines between them, numbers are aligned to the right, and what is
//! wider than eighty letters is folded.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

/// The width beyond which tables and prose are folded.
pub(crate) const WIDTH: u16 = 80;
/// On a narrower terminal, the terminal breaks the lines; otherwise words would break within columns.
const WIDTH_MIN: u16 = 60;

/// A table with these headings; the columns at `numbers` are aligned to the right.
pub(crate) fn new(
    headings: impl IntoIterator<Item = impl Into<Cell>>,
    numbers: impl IntoIterator<Item = usize>,
) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let mut numbers = numbers.into_iter().peekable();
    // Words are folded to a narrower terminal; numbers would be cut apart there.
    let terminal = table.width().filter(|width| *width > 0 && numbers.peek().is_none());
    table.set_width(terminal.map_or(WIDTH, |width| width.clamp(WIDTH_MIN, WIDTH)));
    table.set_header(headings.into_iter().map(Into::into).collect::<Vec<Cell>>());
    for index in numbers {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table as lines without blanks at their ends.
pub(crate) fn text(table: &Table) -> String {
    table.to_string().lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// Folds each line of prose at blanks; continued lines begin with two blanks more than the line.
pub(crate) fn fold(text: &str) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut width = indent.len();
        folded.push_str(indent);
        for (index, word) in line.split_whitespace().enumerate() {
            let len = word.chars().count();
            if index > 0 && width + 1 + len > usize::from(WIDTH) {
                folded = folded + "\n" + indent + "  ";
                width = indent.len() + 2;
            } else if index > 0 {
                folded.push(' ');
                width += 1;
            }
            folded.push_str(word);
            width += len;
        }
        folded.push('\n');
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_at_blanks_and_lose_no_word() {
        let line = format!("  note: {}", "word ".repeat(60));
        let folded = fold(&format!("short  line\n\n{line}\n"));
        let lines: Vec<_> = folded.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= usize::from(WIDTH)), "{folded}");
        assert_eq!(lines[..2], ["short line", ""]);
        assert!(lines[2].starts_with("  note: word") && lines[3].starts_with("    word"), "{folded}");
        assert_eq!(folded.matches("word").count(), 60);
    }
}
