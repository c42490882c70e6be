//! Tables for people at a terminal: columns have no lines between them, and numbers are aligned to the right.

use comfy_table::{Cell, CellAlignment, Table};

/// A table with these headings; the columns at `numbers` are aligned to the right.
pub(crate) fn new(
    headings: impl IntoIterator<Item = impl Into<Cell>>,
    numbers: impl IntoIterator<Item = usize>,
) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
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
