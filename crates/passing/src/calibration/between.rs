//! What copying costs between two CPUs.
//!
//! Why: a server in another process works on another CPU. The data that it has written, and the buffer that it has read last,
//! are in that CPU's cache, and every copy first takes them from there, line by line. At some ten kilobytes that costs
//! several times as much as a copy within one cache. But then the data is in the cache of the side that copied, where data
//! passed in place is not yet. So the copy alone says too little.
//! How: data is passed both ways between two CPUs, by a copy and in place, and each side touches all of it, as much with the one as
//! with the other. The difference is what the copy costs. Input in place comes in two buffers by turns, as it does when granules are
//! swapped: the server fills next what the client had before. A server that fills the same buffer each time, as with a copy, first
//! has to take its lines back from the client's cache.
//! Limits: nothing is measured where there is no second CPU.

use std::hint::black_box;
use std::time::{Duration, Instant};

use genie_memory::{Data, DataMut, Result, Space, SystemBuffer};

use super::effort::Effort;
use super::pair::Pair;
use crate::Costs;
use crate::cost::median;

const LENGTHS: [usize; 8] = [64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// How often data is passed in a row by a copy, or in place. The first time is not counted: it follows the other way.
const IN_A_ROW: usize = 8;
/// A round that takes so many times as long as the fastest one was measured on CPUs that were placed otherwise.
const PLACED_OTHERWISE: f64 = 1.5;

/// Adds the samples of all lengths.
///
/// # Errors
/// No memory.
pub(super) fn measure(space: &Space, pair: Pair, effort: Effort, samples: &mut Costs) -> Result<()> {
    for len in LENGTHS.into_iter().filter(|len| 4 * len <= space.limit()) {
        let buffers = [space.system_buffer(len)?, space.system_buffer(len)?];
        let [client, system] = buffers.each_ref().map(SystemBuffer::data);
        let written_by = |buffer: &DataMut<'_>| buffer.fill(1);
        let (out, into) = (&mut samples.copyin_between.points, &mut samples.copyout_between.points);
        // Out: the first CPU is the client's. In: the second one is.
        out.extend(
            difference(
                pair,
                effort,
                |copies, _| {
                    written_by(&client);
                    if copies {
                        system.copy_data(&client);
                    }
                },
                |copies, _| load(if copies { &system } else { &client }),
            )
            .map(|cost| (len, cost)),
        );
        into.extend(
            difference(
                pair,
                effort,
                |copies, turn| {
                    written_by(if copies || turn % 2 == 0 { &system } else { &client });
                },
                |copies, turn| {
                    if copies {
                        client.copy_data(&system);
                    }
                    load(if copies || turn % 2 == 1 { &client } else { &system });
                },
            )
            .map(|cost| (len, cost)),
        );
    }
    Ok(())
}

/// Loads each byte once, as a program does that works on the data: not in pieces that are copied.
fn load(data: &Data<'_>) {
    black_box(data.sum());
}

/// How much longer passing takes when it copies, in nanoseconds: the median of the rounds' differences. The host of a virtual
/// machine may place its CPUs otherwise meanwhile, so that they share no cache, and everything takes ten times as long: the rounds
/// count in which the CPUs were nearest. None where the machine left no time to find out. `write` and `read` are told whether they
/// copy, and which turn it is.
fn difference(
    pair: Pair,
    effort: Effort,
    write: impl Fn(bool, usize),
    read: impl Fn(bool, usize) + Sync,
) -> Option<f64> {
    let deadline = Instant::now() + effort.time_for_a_difference();
    let turns = 0..2 * IN_A_ROW * effort.differences();
    let items = turns.take_while(|_| Instant::now() < deadline);
    let copies = |turn| turn / IN_A_ROW % 2 == 1;
    let times = pair.relay(items, |turn| write(copies(turn), turn), |turn| read(copies(turn), turn));
    let rounds = times.chunks_exact(2 * IN_A_ROW);
    let of = |times: &[f64]| median(times[1..].iter().copied());
    let rounds: Vec<_> = rounds.map(|round| (of(&round[..IN_A_ROW]), of(&round[IN_A_ROW..]))).collect();
    where_nearest(&rounds)
}

/// How much longer the copy takes, of the times (in place, by a copy) of rounds.
fn where_nearest(rounds: &[(f64, f64)]) -> Option<f64> {
    let nearest = rounds.iter().map(|(in_place, _)| *in_place).reduce(f64::min)?;
    let near = rounds.iter().filter(|(in_place, _)| *in_place < PLACED_OTHERWISE * nearest);
    Some(median(near.map(|(in_place, copied)| copied - in_place)).max(0.0))
}

impl Effort {
    /// How often both ways are tried at most.
    const fn differences(self) -> usize {
        match self {
            Self::Quick => 9,
            Self::Thorough => 61,
        }
    }

    /// On a machine that is busy otherwise, measuring one length in one direction ends after this time.
    const fn time_for_a_difference(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(20),
            Self::Thorough => Duration::from_millis(500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds on CPUs that were far from each other once made the difference nothing.
    #[test]
    fn rounds_count_in_which_the_cpus_were_near() {
        let (near, far) = ((100.0, 190.0), (2000.0, 1900.0));
        assert_eq!(where_nearest(&[far, near, far, far]), Some(90.0));
        assert_eq!(where_nearest(&[far, far]), Some(0.0), "a copy never takes less than nothing");
        assert_eq!(where_nearest(&[]), None);
    }
}
