use super::*;
use crate::experiments::synthetic::{Made, granule, run};
use crate::findings::Verdict;
use crate::measurement::Quantity;
use crate::model::measured::EXPERIMENT as ID;

const GRANULE: u64 = 4096;
const LENGTHS: [u64; 5] = [64, GRANULE, 2 * GRANULE, 4 * GRANULE, 15 * GRANULE];

/// A row's points on a line of table 8.2, in microseconds; short data costs something else.
fn points<'t>(setting: &'t str, series: &'t str, factor: f64, fixed: f64) -> Vec<Made<'t>> {
    let us = |x: u64| if x < GRANULE { 777.0 } else { factor * x as f64 + fixed };
    let made = |x| Made { setting, series, x, quantity: Quantity::OperationTime, us: us(x) };
    LENGTHS.map(made).into()
}

/// A run with these points, which says how large the granules were.
fn measured<'t>(rows: impl IntoIterator<Item = Vec<Made<'t>>>) -> Measurements {
    let mut run = run(ID, rows.into_iter().flatten());
    run.steps[0].measured.push(granule(GRANULE));
    run
}

fn latency() -> Vec<Made<'static>> {
    let made = |x: u64| Made {
        setting: "",
        series: "emulated share",
        x,
        quantity: Quantity::Latency,
        us: 0.0602 * x as f64 + 137.0,
    };
    LENGTHS.map(made).into()
}

/// A run like the thesis's.
fn papers() -> Measurements {
    let rows = [
        points("sender, copy", "Copyin", 0.0180, 3.0),
        points("receiver, copy", "Copyout", 0.0220, 15.0),
        points("sender, share", "Reference", 0.000363, 4.0),
        points("receiver, move", "Reference", 0.000363, 6.0),
        points("receiver, share", "Unreference", 0.000100, 2.0),
        points("receiver, emulated copy", "Swap", 0.00163, 15.0),
        latency(),
    ];
    measured(rows)
}

fn verdicts(measurements: &Measurements) -> Vec<Verdict> {
    conclude(measurements).verdicts.into_iter().map(|finding| finding.verdict).collect()
}

fn row<'t>(table: &'t Table, name: &str) -> &'t [String] {
    table.rows.iter().find(|row| row[0] == name).expect("the row")
}

#[test]
fn lines_are_those_of_multiples_of_the_granule_averaged_over_settings_beside_the_papers() {
    let table = &conclude(&papers()).tables[0];
    let reference = row(table, "Reference");
    assert_eq!(reference[1..4], ["0.363", "5.00", "1.000"]);
    assert_eq!(reference[6..], ["0.363", "5"]);
    assert!(reference[4].ends_with("(4 KiB)") && reference[5].ends_with("(60 KiB)"), "{reference:?}");
}

#[test]
fn the_base_is_emulated_share_without_referencing_and_unreferencing() {
    let table = &conclude(&papers()).tables[0];
    assert_eq!(row(table, "Base")[1..3], ["59.7", "130"]);
}

#[test]
fn the_claims_hold_for_the_papers_own_lines() {
    let held = verdicts(&papers());
    assert_eq!(held, [Verdict::Holds; 3]);
}

#[test]
fn costs_that_jump_and_cheap_copies_are_found() {
    let bent = [1.0, 1.0, 1.0, 9.0, 9.0];
    let bent = LENGTHS.iter().zip(bent).map(|(x, us)| Made {
        setting: "receiver, emulated copy",
        series: "Swap",
        x: *x,
        quantity: Quantity::OperationTime,
        us,
    });
    let rows = [
        points("sender, copy", "Copyin", 0.0002, 3.0),
        points("receiver, copy", "Copyout", 0.0001, 3.0),
        bent.collect(),
    ];
    let found = verdicts(&measured(rows));
    assert_eq!(found, [Verdict::DoesNotHold; 3]);
}

#[test]
fn a_setting_in_which_another_operation_did_the_work_is_left_out_of_the_mean() {
    let rows = [
        points("receiver, share", "Unreference", 0.0001, 2.0),
        LENGTHS
            .map(|x| Made {
                setting: "sender, weak move",
                series: "Unreference",
                x,
                quantity: Quantity::OperationTime,
                us: 0.01,
            })
            .into(),
    ];
    let table = &conclude(&measured(rows)).tables[0];
    assert_eq!(row(table, "Unreference")[1..3], ["0.100", "2.00"]);
}

#[test]
fn rows_of_the_papers_that_are_absent_have_a_reason() {
    let conclusion = conclude(&papers());
    for missing in ["Wire", "Overlay deallocate", "Region map", "Region create"] {
        assert!(conclusion.notes.iter().any(|note| note.starts_with(&format!("{missing}: "))), "{missing}");
    }
    let parts = &conclusion.tables[1];
    assert_eq!(parts.rows.len(), 25);
    assert_eq!(parts.rows[2][..3], ["c  Iolet enter", "–", "–"]);
    let absent = conclusion.notes.iter().find(|note| note.contains("table 12.1")).expect("a note");
    assert!(absent.contains("c, d, e, f (there are no iolets yet)"), "{absent}");
}
