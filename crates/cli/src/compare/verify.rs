//! Proof that every byte arrives: operations that are not timed and whose data is compared.
//!
//! How: before the server checks an output, the opposite bytes have gone the same way, so that nothing that a system buffer
//! still holds from earlier can be taken for the data. An input goes into a buffer filled with the opposite bytes, and the
//! client compares it. Timed operations move the same bytes: see [`after_timing`].

use genie::{Direction, Error, Scheme};
use genie_lab::data::{Verdict, difference};

use super::bench::{Bench, Task};
use super::subject::Subject;

/// Passes the data once and compares every byte.
pub(super) fn once(bench: &Bench, subject: &mut Subject<'_>) -> Result<Verdict, Error> {
    match subject.direction {
        Direction::Out => output(bench, subject),
        Direction::In => input(bench, subject),
    }
}

fn output(bench: &Bench, subject: &mut Subject<'_>) -> Result<Verdict, Error> {
    let (data, opposite) = (bench.data.of(subject.len), bench.data.opposite(subject.len));
    subject.output(Task::NULL, |bytes| bytes.copy_from_slice(opposite))?;
    match subject.output(Task::CHECK, |bytes| bytes.copy_from_slice(data)) {
        Ok(_) => Ok(Ok(())),
        Err(Error::Server(error)) => {
            // The buffer that a failed output gives back may lack the data; timed outputs must pass the data.
            subject.fill(data)?;
            Ok(Err(format!("as the server saw it, {error}")))
        }
        Err(error) => Err(error),
    }
}

fn input(bench: &Bench, subject: &mut Subject<'_>) -> Result<Verdict, Error> {
    let (data, opposite) = (bench.data.of(subject.len), bench.data.opposite(subject.len));
    subject.fill(opposite)?;
    let mut verdict = Ok(());
    subject.input(Task::FETCH, |bytes| verdict = compare(bytes, data))?;
    subject.tidy()?;
    // The opposite bytes are now in a system buffer, or in a region kept for reuse. To put the data into all of these takes
    // as many inputs as buffers rotate, and one more.
    for _ in 0..=bench.rotation(subject.len) {
        subject.input(Task::FETCH, |_| {})?;
        subject.tidy()?;
    }
    Ok(verdict)
}

/// Compares what timed inputs delivered. Where the server writes nothing (`task` is NULL), these are the bytes that earlier
/// inputs left in the system buffers: the data. Only move takes fresh memory
/// for each input, so its timed inputs deliver unknown bytes; move is compared before the timing only.
///
/// Timed outputs by native schemes pass the buffer that was filled with the data. Timed outputs by migrant schemes pass
/// buffers that were just allocated, whatever these hold.
pub(super) fn after_timing(bench: &Bench, subject: &mut Subject<'_>, task: Task) -> Result<Verdict, Error> {
    let data = bench.data.of(subject.len);
    if let Some(bytes) = subject.native() {
        return Ok(compare(bytes, data));
    }
    if subject.direction == Direction::Out || subject.scheme == Scheme::Move {
        return Ok(Ok(()));
    }
    subject.input(Task::FETCH, |_| {})?;
    let mut verdict = Ok(());
    subject.input(task, |bytes| verdict = compare(bytes, data))?;
    Ok(verdict)
}

fn compare(found: &[u8], expected: &[u8]) -> Verdict {
    if found.len() != expected.len() {
        return Err(format!("{} bytes arrived, not {}", found.len(), expected.len()));
    }
    difference(found, expected)
        .map_or(Ok(()), |at| Err(format!("as the client saw it, the data differs at offset {at}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_by_its_offset() {
        assert_eq!(compare(b"abc", b"abc"), Ok(()));
        assert_eq!(
            compare(b"abx", b"abc"),
            Err("as the client saw it, the data differs at offset 2".to_owned())
        );
        assert!(compare(b"ab", b"abc").unwrap_err().contains("2 bytes arrived"));
    }
}
