//! The papers' tables as data: measured numbers are the input of the models, and computed numbers are to be reproduced.
//!
//! How: one file of comma-separated values for each table, in `papers/`, headed by its source; this module reads them.
//! Invariants: numbers keep the digits that were printed, since the printed digits are the only precision there is.

pub mod brustoloni;
pub mod dalton;
pub mod printed;
pub mod rantwijk;
pub mod reproduction;
pub mod thadani;

pub use printed::{Printed, Rounding};
pub use reproduction::{Agreement, Reproduction};

/// Reads one of the tables that are part of this program.
fn read<Row: serde::de::DeserializeOwned>(table: &str) -> Vec<Row> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(table.as_bytes());
    let rows: csv::Result<Vec<Row>> = reader.deserialize().collect();
    rows.expect("a table that is part of the program can be read, which a test sees to")
}

/// The row of a table for which something holds.
///
/// # Panics
/// When the table has no such row, which would be an error in the program, since the tables are part of it.
pub(crate) fn row<Row>(table: Vec<Row>, is_it: impl Fn(&Row) -> bool) -> Row {
    table.into_iter().find(is_it).expect("the paper's table has this row")
}
