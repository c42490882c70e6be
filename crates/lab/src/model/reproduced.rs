//! The papers' computed results, computed anew from their printed inputs by the models here.
//!
//! Why: a model's results for this machine can be trusted as far as its results for the papers' machines are right, where
//! the right results are known.
//! How: a cell is a printed number beside the computed one. Tests name every cell that does not come out to the digit.

pub mod latencies;
pub mod projections;
pub mod scalings;
pub mod stacks;

use crate::findings::{Table, row};
use crate::papers::{Agreement, Printed, Reproduction, Rounding};

/// A number of a paper's table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The row that it is in.
    pub row: String,
    /// The column that it is in.
    pub column: String,
    /// The printed number, and the computed one.
    pub reproduction: Reproduction,
}

impl Cell {
    /// A printed number, and what the model computes from inputs at each rounding.
    pub fn of(
        row: impl Into<String>,
        column: impl Into<String>,
        printed: Printed,
        result: impl Fn(Rounding) -> f64,
    ) -> Self {
        let reproduction = Reproduction::of(printed, result);
        Self { row: row.into(), column: column.into(), reproduction }
    }
}

/// Explains to the reader of [`Reproduced::table`] how a cell shows its agreement.
pub const KEY: &str = "In tables computed anew from a paper's printed inputs, a number alone is the paper's and the computed one; \
                       \"a ~ b\" is the paper's a and the computed b, which differ by no more than rounded inputs explain; \
                       \"a, not b\" differ by more.";

/// A paper's table.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduced {
    /// Which table it is, and what it contains, with units.
    pub title: &'static str,
    /// Its cells, row by row.
    pub cells: Vec<Cell>,
}

impl Reproduced {
    /// How many cells have this agreement.
    pub fn count(&self, agreement: Agreement) -> usize {
        self.cells.iter().filter(|cell| cell.reproduction.agreement() == agreement).count()
    }

    /// The cells that have this agreement, as `row, column`.
    pub fn names(&self, agreement: Agreement) -> Vec<String> {
        let such = self.cells.iter().filter(|cell| cell.reproduction.agreement() == agreement);
        such.map(|cell| format!("{}, {}", cell.row, cell.column)).collect()
    }

    /// The paper's table with the computed numbers; [`KEY`] says how to read it.
    pub fn table(&self) -> Table {
        let rows = distinct(self.cells.iter().map(|cell| cell.row.as_str()));
        let columns = distinct(self.cells.iter().map(|cell| cell.column.as_str()));
        let shown = |row: &str, column: &str| {
            let cell = self.cells.iter().find(|cell| cell.row == row && cell.column == column);
            cell.map_or_else(String::new, |cell| show(&cell.reproduction))
        };
        let cells = |name: &&str| row(*name, columns.iter().map(|column| shown(name, column)));
        Table::new(
            format!("{}, computed from the paper's own inputs", self.title),
            std::iter::once("").chain(columns.iter().copied()),
            rows.iter().map(cells),
        )
    }
}

fn show(reproduction: &Reproduction) -> String {
    let (printed, computed) = (reproduction.printed, reproduction.printed.like(reproduction.computed));
    match reproduction.agreement() {
        Agreement::Digits => printed.to_string(),
        Agreement::Rounding => format!("{printed} ~ {computed}"),
        Agreement::None => format!("{printed}, not {computed}"),
    }
}

fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut distinct = Vec::new();
    for text in texts {
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(row: &str, column: &str, printed: &str, inputs: [f64; 3]) -> Cell {
        let [least, computed, greatest] = inputs;
        let reproduction = Reproduction { printed: printed.parse().unwrap(), computed, least, greatest };
        Cell { row: row.to_owned(), column: column.to_owned(), reproduction }
    }

    #[test]
    fn a_table_shows_where_it_departs_from_the_paper() {
        let cells = vec![
            cell("a", "x", "1.0", [0.9, 1.0, 1.1]),
            cell("a", "y", "1.1", [0.9, 1.0, 1.2]),
            cell("b", "y", "2.0", [0.9, 1.0, 1.2]),
        ];
        let reproduced = Reproduced { title: "table 1", cells };
        let table = reproduced.table();
        assert_eq!(table.columns, ["", "x", "y"]);
        assert_eq!(table.rows, [vec!["a", "1.0", "1.1 ~ 1.0"], vec!["b", "", "2.0, not 1.0"]]);
        assert_eq!(reproduced.names(Agreement::None), ["b, y"]);
    }
}
