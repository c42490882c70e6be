//! The measurements.

use genie_memory::{Buffer, Direction, Protection, Result, Space};
use genie_sys::machine;

use super::effort::{Effort, timed};
use super::pair::Pair;
use super::{Circumstances, Measured, between, rotation};
use crate::Costs;

/// Lengths below a granule at which copying and referencing are measured.
const SHORT: [usize; 5] = [64, 4096, 65536, 256 << 10, 1 << 20];
/// How often a sleeper is woken in a round.
const WAKES: u32 = 8;

/// Measures the primitive operations in `space`.
///
/// # Errors
/// There is no memory for some granules. Where the space's limit is low, long lengths are not measured.
///
/// # Cost
/// 0.2 to 1 s for [`Effort::Quick`], some seconds for [`Effort::Thorough`].
pub fn measure(space: &Space, effort: Effort) -> Result<Measured> {
    let others = machine::OtherPrograms::watch();
    let costs = costs(space, effort)?;
    Ok(Measured { costs, circumstances: Circumstances::of_this_build(others.share()) })
}

fn costs(space: &Space, effort: Effort) -> Result<Costs> {
    let pair = Pair::of_this_thread();
    // A thread that moves between CPUs leaves the space's mappings in use on both, and then every change of them costs
    // an interruption of the other. Where the thread may not be pinned, the measurements include these interruptions.
    let _pinned = machine::allowed_cpus().ok().and_then(|cpus| machine::pin_thread(*cpus.last()?).ok());
    let mut samples = Costs::default();
    for len in effort.lengths(space.granule(), space.limit()) {
        let mut bench = Bench::new(space, len)?;
        // The first round fills caches and pools.
        bench.round(&mut Costs::default())?;
        for _ in 0..effort.rounds() {
            bench.round(&mut samples)?;
        }
    }
    for len in SHORT.into_iter().filter(|len| *len < space.granule()) {
        let mut bench = Bench::new(space, len)?;
        for _ in 0..effort.rounds() {
            bench.copies(&mut samples)?;
            bench.short_references(&mut samples)?;
        }
    }
    // Faults wake the fault thread, maybe on another CPU, after which every change of a mapping interrupts that CPU,
    // too, for a while. So faults come last, with the measurements that need two CPUs.
    let mut bench = Bench::new(space, space.granule())?;
    for _ in 0..effort.rounds() {
        bench.replacement(&mut samples)?;
    }
    let wake = pair.and_then(|pair| pair.wake(WAKES * effort.rounds() as u32));
    samples.wake.points.extend(wake.map(|time| (1, time)));
    if let Some(pair) = pair {
        between::measure(space, pair, effort, &mut samples)?;
    }
    samples.rotation = rotation::measure(space, pair, effort);
    Ok(Costs::of_samples(samples))
}

/// One length's buffers.
struct Bench<'a> {
    space: &'a Space,
    len: usize,
    buffer: Buffer,
}

impl<'a> Bench<'a> {
    fn new(space: &'a Space, len: usize) -> Result<Self> {
        let mut buffer = space.allocate(len)?;
        buffer.fill(1);
        Ok(Self { space, len, buffer })
    }

    fn round(&mut self, samples: &mut Costs) -> Result<()> {
        self.copies(samples)?;
        self.references(samples)?;
        self.wiring(samples)?;
        self.swaps(samples)?;
        self.migrants(samples)
    }

    fn copies(&mut self, samples: &mut Costs) -> Result<()> {
        let (space, len) = (self.space, self.len);
        // From now on the pool keeps a buffer, as it does in a program that repeats the same requests.
        drop(space.system_buffer(len)?);
        let (system, allocate) = timed(|| space.system_buffer(len));
        let system = system?;
        let data = system.data();
        let (_, copyin) = timed(|| data.copy_from(&self.buffer));
        let (_, copyout) = timed(|| data.copy_to(&mut self.buffer));
        let (_, zero) = timed(|| data.fill(0));
        let ((), deallocate) = timed(|| drop(system));
        samples.zero.points.push((len, zero));
        samples.copyin.points.push((len, copyin));
        samples.copyout.points.push((len, copyout));
        samples.system_buffer.points.push((len, allocate + deallocate));
        Ok(())
    }

    /// Referencing part of a granule, with the tables in the cache, as between requests that follow each other: among
    /// granules of 2 MiB, each of which has just been copied, they are not.
    fn short_references(&self, samples: &mut Costs) -> Result<()> {
        let reference = || self.space.reference(self.buffer.as_ptr().addr(), self.len, Direction::Out);
        reference()?.release();
        let (reference, time) = timed(reference);
        let reference = reference?;
        samples.reference.points.push((self.len, time));
        let (_, time) = timed(|| reference.release());
        samples.unreference.points.push((self.len, time));
        Ok(())
    }

    /// Referencing, write protection, and its removal; the cost of the removal includes what the client's next stores
    /// pay for it.
    fn references(&mut self, samples: &mut Costs) -> Result<()> {
        let (space, len) = (self.space, self.len);
        let touch = self.touch();
        let addr = self.buffer.as_ptr().addr();
        let (reference, time) = timed(|| space.reference(addr, len, Direction::Out));
        let reference = reference?;
        samples.reference.points.push((len, time));
        if matches!(space.protection(), Protection::None(_)) {
            let (_, time) = timed(|| reference.release());
            samples.unreference.points.push((len, time));
            return Ok(());
        }
        let (protected, time) = timed(|| space.read_only(&reference));
        protected?;
        samples.read_only.points.push((len, time));
        let before = space.statistics();
        let (_, release) = timed(|| reference.release());
        let reinstated = space.statistics().reinstated > before.reinstated;
        let stores = self.touch();
        // Now and then a buffer is left protected, to learn whether its owner stores; such a run is no sample.
        if reinstated {
            samples.reinstate.points.push((len, (release + stores - touch).max(release / 2.0)));
        }
        let unprotected = space.reference(addr, len, Direction::Out)?;
        let (_, time) = timed(|| unprotected.release());
        samples.unreference.points.push((len, time));
        Ok(())
    }

    /// A store into a granule from which an output is pending.
    fn replacement(&mut self, samples: &mut Costs) -> Result<()> {
        let (space, granule) = (self.space, self.space.granule());
        if matches!(space.protection(), Protection::None(_)) {
            return Ok(());
        }
        let reference = space.reference(self.buffer.as_ptr().addr(), 1, Direction::Out)?;
        space.read_only(&reference)?;
        let ((), time) = timed(|| self.buffer[0] = self.buffer[0].wrapping_add(1));
        samples.replacement.points.push((granule, time));
        Ok(())
    }

    fn wiring(&self, samples: &mut Costs) -> Result<()> {
        let (wired, time) = timed(|| self.space.wire_region(self.buffer.region()));
        // Without the right to lock so much memory there is no cost to be measured.
        let Ok(wired) = wired else { return Ok(()) };
        samples.wire.points.push((self.len, time));
        let ((), time) = timed(|| drop(wired));
        samples.unwire.points.push((self.len, time));
        Ok(())
    }

    fn swaps(&mut self, samples: &mut Costs) -> Result<()> {
        let (space, len) = (self.space, self.len);
        let addr = self.buffer.as_ptr().addr();
        let granules = (len / space.granule()) as u32;
        drop(space.aligned_buffer(addr, len)?);
        let touch = self.touch();
        let (system, allocate) = timed(|| space.aligned_buffer(addr, len));
        let mut system = system?;
        let (passed, swap) = timed(|| space.deliver(&mut system, &mut self.buffer, &(0..granules)));
        passed?;
        let loads = self.touch();
        let ((), deallocate) = timed(|| drop(system));
        samples.swap.points.push((len, (swap + loads - touch).max(swap)));
        samples.aligned_buffer.points.push((len, allocate + deallocate));
        if granules == 1 && space.can_swap_partial_granules() {
            self.guard(samples, swap)?;
        }
        Ok(())
    }

    /// What a swap of a granule that lacks one byte of data costs beyond the swap of a whole granule.
    fn guard(&mut self, samples: &mut Costs, whole: f64) -> Result<()> {
        let (space, len) = (self.space, self.len - 1);
        let addr = self.buffer.as_ptr().addr();
        let mut system = space.aligned_buffer(addr, len)?;
        let (passed, time) = timed(|| space.deliver(&mut system, &mut self.buffer[..len], &(0..1)));
        passed?;
        samples.guard.points.push((space.granule(), (time - whole).max(1.0)));
        Ok(())
    }

    fn migrants(&mut self, samples: &mut Costs) -> Result<()> {
        let (space, len) = (self.space, self.len);
        let mut system = space.aligned_buffer(0, len)?;
        let (created, time) = timed(|| space.region_from(&mut system, len));
        let (migrant, _) = created?;
        samples.region_create.points.push((len, time));
        let mut emigrating = migrant.emigrate()?;
        let (hidden, time) = timed(|| emigrating.hide());
        hidden?;
        samples.invalidate.points.push((len, time));
        let ((), enqueue) = timed(|| drop(emigrating));
        let (immigrating, dequeue) = timed(|| space.dequeue(len, true));
        let mut immigrating = immigrating?;
        samples.region_queue.points.push((len, enqueue + dequeue));
        let (restored, time) = timed(|| immigrating.reinstate());
        restored?;
        samples.restore.points.push((len, time));
        let emigrating = immigrating.arrive(len).emigrate()?;
        let (removed, time) = timed(|| emigrating.remove());
        removed?;
        samples.region_remove.points.push((len, time));
        Ok(())
    }

    /// Stores one word into every 4 KiB; returns the time it took.
    fn touch(&mut self) -> f64 {
        let ((), time) = timed(|| {
            for byte in self.buffer.iter_mut().step_by(4096) {
                *byte = std::hint::black_box(*byte).wrapping_add(1);
            }
        });
        time
    }
}
