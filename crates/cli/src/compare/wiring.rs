//! Schemes that wire their region, where the memory-lock limit forbids it.
//!
//! How: each subject passes data once before it is measured. A subject that cannot wire is left out, and all that were left
//! out are reported in one line.

use genie::{Direction, Error, Scheme};
use genie_lab::length;

use super::bench::{Bench, Task};
use super::subject::Subject;
use crate::failure::Failure;

/// The subjects that had to be left out, and why.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    schemes: Vec<Scheme>,
    lengths: Vec<usize>,
    cause: Option<String>,
}

impl LeftOut {
    /// The schemes that can pass data of this length, each of which has done so once.
    pub(super) fn usable<'b>(
        &mut self,
        bench: &'b Bench,
        schemes: &[Scheme],
        direction: Direction,
        len: usize,
    ) -> Result<Vec<Subject<'b>>, Error> {
        let mut usable = Vec::with_capacity(schemes.len());
        let all = bench.places().flat_map(|place| schemes.iter().map(move |scheme| (place, scheme)));
        for (place, scheme) in all {
            let mut subject = Subject::new(bench, place, *scheme, direction, len)?;
            let passed = match direction {
                Direction::Out => {
                    subject.output(Task::NULL, |bytes| bytes.copy_from_slice(bench.data.of(len)))
                }
                Direction::In => subject.input(Task::FETCH, |_| {}),
            };
            // The region that an input by move leaves behind is moved out, and moving out wires it.
            match passed.and_then(|_| subject.tidy()) {
                Ok(()) => usable.push(subject),
                Err(Error::Passing(genie_passing::Error::Wire { source, .. })) => {
                    self.add(*scheme, len, &source.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(usable)
    }

    fn add(&mut self, scheme: Scheme, len: usize, cause: &str) {
        if !self.schemes.contains(&scheme) {
            self.schemes.push(scheme);
        }
        if !self.lengths.contains(&len) {
            self.lengths.push(len);
        }
        self.cause.get_or_insert_with(|| cause.to_owned());
    }

    /// Says in one line what was left out; fails if nothing remains to be measured.
    pub(super) fn report(&self, nothing_remains: bool) -> Result<(), Failure> {
        let Some(line) = self.line() else { return Ok(()) };
        if nothing_remains {
            return Err(Failure::could_not(line));
        }
        eprintln!("genie: {line}");
        Ok(())
    }

    fn line(&self) -> Option<String> {
        let cause = self.cause.as_ref()?;
        let lengths: Vec<_> = self.lengths.iter().map(|len| length::format(*len)).collect();
        let names: Vec<_> = self.schemes.iter().map(|scheme| scheme.name()).collect();
        let (are, they) = if names.len() == 1 { ("is", "it wires its") } else { ("are", "they wire their") };
        let (names, at) = (list(&names), lengths.join(", "));
        Some(format!("{names} {are} left out at {at}: {they} region, and {cause}"))
    }
}

/// `a`, `a and b`, `a, b and c`.
fn list(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_one_line() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.line(), None);
        for scheme in [Scheme::Share, Scheme::Move, Scheme::WeakMove, Scheme::Share] {
            left_out.add(scheme, 16 << 20, "mlock failed");
        }
        assert_eq!(
            left_out.line().unwrap(),
            "share, move and weak move are left out at 16 MiB: they wire their region, and mlock failed"
        );
        assert_eq!(left_out.report(true).unwrap_err().status, 1);
    }
}
