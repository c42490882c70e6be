//! How many instructions passing data takes, by scheme and length, where they were counted; otherwise why they were not.
//!
//! Why: CPU time differs between machines, and fluctuates; instructions show what a scheme does, on whatever machine.
//! Limits: instructions are not all alike. One string instruction copies any number of bytes, so instructions do not show
//! what copying costs.

use super::super::latency::{self, schemes};
use super::super::reading::Reading;
use crate::counter::{Counting, Modes};
use crate::findings::{Figure, Scale, Table};
use crate::measurement::{Measurements, Quantity};
use genie_net::Rate;

/// The modes in which instructions were counted, mostly a single one.
fn counted(measurements: &Measurements) -> impl Iterator<Item = (Modes, Reading<'_>)> {
    let reading = |modes| {
        let quantity = Quantity::instructions(modes);
        (modes, Reading::of(measurements, latency::ID, Rate::Unlimited.name(), quantity))
    };
    let were = |(_, reading): &(Modes, Reading<'_>)| !reading.lengths(schemes()).is_empty();
    [Modes::UserAndKernel, Modes::User].into_iter().map(reading).filter(were)
}

/// Instructions over length.
pub(super) fn figures(measurements: &Measurements) -> impl Iterator<Item = Figure> {
    counted(measurements).filter_map(|(modes, reading)| {
        let name = format!("cpu-{}", reading.quantity.name());
        let title = format!("Instructions of sender and receiver together, {}", modes.words());
        reading.figure(&name, &title, "instructions", Scale::Logarithmic, schemes())
    })
}

/// Instructions by scheme and length.
pub(super) fn tables(measurements: &Measurements) -> impl Iterator<Item = Table> {
    counted(measurements).map(|(modes, reading)| {
        reading.table(format!("Instructions {} (medians)", modes.words()), "scheme", schemes())
    })
}

/// Says in which modes instructions were counted, and why in some or all they were not.
pub(super) fn notes(measurements: &Measurements) -> Vec<String> {
    let modes: Vec<_> = counted(measurements).map(|(modes, _)| modes).collect();
    if modes.is_empty() {
        let was_measured = measurements.of(latency::ID).next().is_some();
        return was_measured.then(|| uncounted(measurements)).into_iter().collect();
    }
    let of_instructions = "Instructions are those of all threads of the two clients' processes, as the processor counts them, \
                           between the same moments as CPU time, less what reading the counters takes; in operations of \
                           their own. Where the processor has fast string moves, a long copy is few instructions, however \
                           many bytes it moves."
        .to_owned();
    let lack = measurements.circumstances.instructions.as_ref().and_then(|counting| counting.lack.as_ref());
    let without_kernel = lack
        .filter(|_| modes.contains(&Modes::User))
        .map(|lack| format!("The kernel's were not counted: {lack}."));
    std::iter::once(of_instructions).chain(without_kernel).collect()
}

/// Why there are no counts of instructions.
fn uncounted(measurements: &Measurements) -> String {
    let why = match &measurements.circumstances.instructions {
        None => "the version of genie that measured this did not do that",
        Some(Counting { modes: None, lack }) => lack.as_deref().unwrap_or("no reason was kept"),
        Some(Counting { modes: Some(_), .. }) => {
            "of no operation were the processor's counters there all the while; it has few of them, and lends them to others, \
             too (perf, the kernel's NMI watchdog)"
        }
    };
    format!("Instructions were not counted: {why}.")
}

#[cfg(test)]
mod tests {
    use super::super::super::latency::{LONGEST, PAPER_LEN};
    use super::super::super::synthetic::{made, run};
    use super::super::conclude;
    use super::*;
    use crate::circumstances::Circumstances;
    use crate::findings::Conclusion;

    /// Emulated copy takes 1234 instructions whatever the length, everything else 1500 or 2000.
    fn measured(quantity: Quantity, counting: Option<Counting>) -> Conclusion {
        let points = schemes().flat_map(|series| [PAPER_LEN, LONGEST].map(|x| (series, x)));
        let made = |(series, x)| {
            let long = if x == LONGEST { 2000.0 } else { 1500.0 };
            let us = if series == "emulated copy" { 1234.0 } else { long };
            made("unlimited", series, quantity, (x, us))
        };
        let mut measurements = run(latency::ID, points.map(made));
        measurements.circumstances = Circumstances { instructions: counting, ..Circumstances::default() };
        conclude(&measurements)
    }

    fn lacking(modes: Option<Modes>) -> Option<Counting> {
        Some(Counting { modes, lack: Some("nobody may".to_owned()) })
    }

    fn names(conclusion: &Conclusion) -> Vec<&str> {
        conclusion.figures.iter().map(|figure| figure.name.as_str()).collect()
    }

    #[test]
    fn what_was_counted_is_shown_in_a_table_and_a_figure() {
        let counting = Counting { modes: Some(Modes::UserAndKernel), lack: None };
        let conclusion = measured(Quantity::Instructions, Some(counting));
        assert_eq!(names(&conclusion), ["cpu-instructions"]);
        let figure = &conclusion.figures[0];
        assert_eq!(figure.y.label, "instructions");
        assert_eq!((figure.y.scale, figure.curves.len()), (Scale::Logarithmic, schemes().count()));
        let curve = figure.curves.iter().find(|curve| curve.name == "copy").unwrap();
        assert_eq!(
            curve.points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>()[0],
            (61_440.0, 1500.0)
        );
        let table = conclusion.tables.last().unwrap();
        assert_eq!(table.title, "Instructions in user mode and in the kernel (medians)");
        assert_eq!(table.columns, ["scheme", "60 KiB", "16 MiB"]);
        assert_eq!(table.rows[0], ["copy", "1500", "2000"]);
        assert_eq!(table.rows[1], ["emulated copy", "1234", "1234"]);
        assert!(!conclusion.notes.iter().any(|note| note.contains("not counted")), "{:?}", conclusion.notes);
        assert!(
            conclusion.notes.iter().any(|note| note.starts_with("Instructions are those of all threads"))
        );
    }

    #[test]
    fn without_the_kernels_the_reader_is_told_so_and_why() {
        let conclusion = measured(Quantity::UserInstructions, lacking(Some(Modes::User)));
        assert_eq!(names(&conclusion), ["cpu-user-instructions"]);
        assert_eq!(conclusion.tables.last().unwrap().title, "Instructions in user mode (medians)");
        assert_eq!(conclusion.notes.last().unwrap(), "The kernel's were not counted: nobody may.");
    }

    #[test]
    fn what_was_not_counted_has_its_reason() {
        for (counting, reason) in [
            (lacking(None), "Instructions were not counted: nobody may."),
            (lacking(Some(Modes::User)), "Instructions were not counted: of no operation were"),
            (None, "Instructions were not counted: the version of genie"),
        ] {
            let conclusion = measured(Quantity::CpuTime, counting);
            assert_eq!(names(&conclusion), ["cpu-time", "cpu-saturation"]);
            assert_eq!(conclusion.tables.len(), 3);
            assert!(conclusion.notes.last().unwrap().starts_with(reason), "{:?}", conclusion.notes);
        }
        let notes = conclude(&Measurements::default()).notes;
        assert!(!notes.iter().any(|note| note.contains("nstructions")), "{notes:?}");
    }
}
