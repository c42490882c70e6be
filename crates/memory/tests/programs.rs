//! Random programs over one space, against a model of what each buffer, output and migrant buffer must hold; the tables are
//! checked after each step.
//!
//! `PROPTEST_CASES` (64) is how many programs are run on small granules; huge ones, whose bytes take longer to compare,
//! get a quarter of them.

use crate::machine::{Machine, checked, client, frame, output_of, pattern, same, scatter, seen, server};
use genie_memory::{Buffer, Direction, Error, Migrant, Reference, Space, SystemBuffer, Usage, Wired};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// The most of anything that is kept at a time; what is beyond goes first.
const MOST_BUFFERS: usize = 4;
const MOST_OUTPUTS: usize = 4;
/// The longest buffer, in granules; one more where it is unaligned.
const LONGEST: usize = 3;
/// Buffers, and granules under outputs that replacements and frees have left, migrants, system buffers, and what one
/// operation needs: never so many that a store has to wait for an output, which would be for ever in one thread.
const GRANULES: usize = (2 * MOST_BUFFERS + MOST_OUTPUTS + 4) * (LONGEST + 1);

on_each_kind!(random_programs_find_what_they_have_stored);

/// One step; numbers choose among what there is, and places within it.
#[derive(Debug, Clone)]
enum Step {
    Allocate { offset: u16, len: u16 },
    Free { which: u8 },
    Store { which: u8, place: Place, seed: u64 },
    KernelStore { which: u8, place: Place },
    Output { which: u8, place: Place },
    EndOutput { which: u8 },
    Input { which: u8, place: Place, swap: (u8, u8), aligned: bool, keep: bool, seed: u64 },
    InputInPlace { which: u8, place: Place, seed: u64, fails: bool },
    AllocateMigrant { len: u16, strong: bool },
    OutputMigrant { which: u8, how: Emigration },
    InputMigrant { len: u16, strong: bool, seed: u64, fails: bool },
    FillRegion { offset: u16, len: u16, filled: u16, seed: u64 },
    Wire { which: u8 },
}

#[derive(Debug, Clone, Copy)]
struct Place {
    from: u16,
    len: u16,
}

#[derive(Debug, Clone, Copy)]
enum Emigration {
    Move,
    HideAndCache,
    Cache,
    Fail,
}

fn place() -> impl Strategy<Value = Place> {
    // Short and long ones, ends and whole buffers.
    let from = prop_oneof![Just(0), any::<u16>()];
    let len = prop_oneof![Just(u16::MAX), 0..2000u16, any::<u16>()];
    (from, len).prop_map(|(from, len)| Place { from, len })
}

fn offset() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), any::<u16>()]
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<u8>;
    let seed = any::<u64>;
    let emigration = prop_oneof![
        Just(Emigration::Move),
        Just(Emigration::HideAndCache),
        Just(Emigration::Cache),
        Just(Emigration::Fail)
    ];
    prop_oneof![
        2 => (offset(), any::<u16>()).prop_map(|(offset, len)| Step::Allocate { offset, len }),
        1 => which().prop_map(|which| Step::Free { which }),
        4 => (which(), place(), seed()).prop_map(|(which, place, seed)| Step::Store { which, place, seed }),
        1 => (which(), place()).prop_map(|(which, place)| Step::KernelStore { which, place }),
        4 => (which(), place()).prop_map(|(which, place)| Step::Output { which, place }),
        2 => which().prop_map(|which| Step::EndOutput { which }),
        4 => (which(), place(), any::<(u8, u8)>(), prop::bool::weighted(0.8), any::<bool>(), seed())
            .prop_map(|(which, place, swap, aligned, keep, seed)| Step::Input { which, place, swap, aligned, keep, seed }),
        1 => (which(), place(), seed(), any::<bool>())
            .prop_map(|(which, place, seed, fails)| Step::InputInPlace { which, place, seed, fails }),
        1 => (any::<u16>(), any::<bool>()).prop_map(|(len, strong)| Step::AllocateMigrant { len, strong }),
        2 => (which(), emigration).prop_map(|(which, how)| Step::OutputMigrant { which, how }),
        2 => (any::<u16>(), any::<bool>(), seed(), prop::bool::weighted(0.2))
            .prop_map(|(len, strong, seed, fails)| Step::InputMigrant { len, strong, seed, fails }),
        1 => (offset(), any::<u16>(), any::<u16>(), seed())
            .prop_map(|(offset, len, filled, seed)| Step::FillRegion { offset, len, filled, seed }),
        1 => which().prop_map(|which| Step::Wire { which }),
    ]
}

/// A space and the things that were made in it, each with the bytes that it must hold.
struct World {
    space: Space,
    granule: usize,
    buffers: Vec<(Buffer, Vec<u8>)>,
    outputs: Vec<(Reference, Vec<u8>)>,
    migrants: Vec<(Migrant, Vec<u8>)>,
    systems: Vec<SystemBuffer>,
    wired: Option<Wired>,
}

impl World {
    fn new(space: Space) -> Self {
        let granule = space.granule();
        let (buffers, outputs, migrants) = Default::default();
        Self { space, granule, buffers, outputs, migrants, systems: Vec::new(), wired: None }
    }

    /// A length of up to `LONGEST` granules.
    fn len(&self, len: u16) -> usize {
        1 + usize::from(len) * (LONGEST * self.granule - 1) / usize::from(u16::MAX)
    }

    fn offset(&self, offset: u16) -> usize {
        usize::from(offset) * (self.granule - 1) / usize::from(u16::MAX)
    }

    /// A buffer's number, and a part of it that is not empty.
    fn part(&self, which: u8, place: Place) -> Option<(usize, std::ops::Range<usize>)> {
        let which = usize::from(which).checked_rem(self.buffers.len())?;
        let whole = self.buffers[which].0.len();
        let from = usize::from(place.from) * (whole - 1) / usize::from(u16::MAX);
        let len = if place.len < 2000 { usize::from(place.len) + 1 } else { self.len(place.len) };
        Some((which, from..(from + len).min(whole)))
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Allocate { offset, len } => self.allocate(self.offset(offset), self.len(len)),
            Step::Free { which } => {
                if let Some(which) = usize::from(which).checked_rem(self.buffers.len()) {
                    self.buffers.swap_remove(which);
                }
            }
            Step::Store { which, place, seed } => {
                let Some((which, range)) = self.part(which, place) else { return };
                let data = pattern(seed, range.len());
                let (buffer, model) = &mut self.buffers[which];
                buffer[range.clone()].copy_from_slice(&data);
                model[range].copy_from_slice(&data);
            }
            Step::KernelStore { which, place } => {
                let Some((which, range)) = self.part(which, place) else { return };
                let (buffer, model) = &mut self.buffers[which];
                let mut zeros = std::fs::File::open("/dev/zero").unwrap();
                std::io::Read::read_exact(&mut zeros, &mut buffer[range.clone()]).unwrap();
                model[range].fill(0);
            }
            Step::Output { which, place } => self.output(which, place),
            Step::EndOutput { which } => {
                if let Some(which) = usize::from(which).checked_rem(self.outputs.len()) {
                    self.outputs.swap_remove(which).0.release();
                }
            }
            Step::Input { which, place, swap, aligned, keep, seed } => {
                self.input(which, place, swap, aligned, keep, seed);
            }
            Step::InputInPlace { which, place, seed, fails } => {
                self.input_in_place(which, place, seed, fails)
            }
            Step::AllocateMigrant { len, strong } => {
                let mut migrant = self.space.allocate_migrant(self.len(len), strong).unwrap();
                migrant.fill(0x11);
                let model = vec![0x11; migrant.len()];
                self.keep_migrant(migrant, model);
            }
            Step::OutputMigrant { which, how } => self.output_migrant(which, how),
            Step::InputMigrant { len, strong, seed, fails } => {
                self.input_migrant(self.len(len), strong, seed, fails)
            }
            Step::FillRegion { offset, len, filled, seed } => {
                self.fill_region(self.offset(offset), self.len(len), filled, seed);
            }
            Step::Wire { which } => {
                let Some(which) = usize::from(which).checked_rem(self.buffers.len()) else { return };
                self.wired = Some(self.space.wire_region(self.buffers[which].0.region()).unwrap());
            }
        }
    }

    fn allocate(&mut self, offset: usize, len: usize) {
        let buffer = self.space.allocate_at(offset, len).unwrap();
        self.buffers.push((buffer, vec![0; len]));
        if self.buffers.len() > MOST_BUFFERS {
            self.buffers.remove(0);
        }
    }

    fn output(&mut self, which: u8, place: Place) {
        let Some((which, range)) = self.part(which, place) else { return };
        let (buffer, model) = &self.buffers[which];
        let reference = output_of(&self.space, buffer.addresses().start + range.start, range.len());
        self.outputs.push((reference, model[range].to_vec()));
        if self.outputs.len() > MOST_OUTPUTS {
            self.outputs.remove(0);
        }
    }

    /// An input by emulated copy, from a system buffer that earlier inputs may have used.
    fn input(&mut self, which: u8, place: Place, swap: (u8, u8), aligned: bool, keep: bool, seed: u64) {
        let Some((which, range)) = self.part(which, place) else { return };
        let addr = self.buffers[which].0.addresses().start + range.start;
        let offset = if aligned { addr % self.granule } else { (addr + 1) % self.granule };
        let fits = |system: &SystemBuffer| system.alignment() == Some(offset) && system.len() >= range.len();
        let mut system = match self.systems.iter().position(fits) {
            Some(at) => self.systems.swap_remove(at),
            None => self.space.aligned_buffer(offset, range.len()).unwrap(),
        };
        let data = pattern(seed, range.len());
        let mut whole = system.data().to_vec();
        whole[..data.len()].copy_from_slice(&data);
        scatter(&system.data(), &whole);
        let granules = (addr % self.granule + range.len()).div_ceil(self.granule) as u32;
        let start = u32::from(swap.0) % (granules + 1);
        let swap = start..start + u32::from(swap.1) % (granules - start + 1);
        let planned = if aligned { swap.len() as u32 } else { 0 };
        let passed = self.space.deliver(&mut system, client(addr, range.len()), &swap).unwrap();
        assert_eq!(passed.swapped, planned);
        self.buffers[which].1[range].copy_from_slice(&data);
        if keep && !system.is_empty() {
            self.systems.push(system);
            if self.systems.len() > 2 {
                self.systems.remove(0);
            }
        }
    }

    fn input_in_place(&mut self, which: u8, place: Place, seed: u64, fails: bool) {
        let Some((which, range)) = self.part(which, place) else { return };
        let (buffer, model) = &mut self.buffers[which];
        let addr = buffer.addresses().start + range.start;
        let reference = self.space.reference(addr, range.len(), Direction::In).unwrap();
        let output = self.space.reference(addr, 1, Direction::Out).unwrap();
        assert!(matches!(self.space.read_only(&output), Err(Error::Unprotectable { .. })));
        if !fails {
            let data = pattern(seed, range.len());
            scatter(&server(&reference), &data);
            model[range].copy_from_slice(&data);
        }
    }

    fn keep_migrant(&mut self, migrant: Migrant, model: Vec<u8>) {
        self.migrants.push((migrant, model));
        if self.migrants.len() > 2 {
            self.migrants.remove(0);
        }
    }

    fn output_migrant(&mut self, which: u8, how: Emigration) {
        let Some(which) = usize::from(which).checked_rem(self.migrants.len()) else { return };
        let (migrant, model) = self.migrants.swap_remove(which);
        let (mut emigrating, reference) = migrant.emigrate_referenced().unwrap();
        match how {
            Emigration::Move => emigrating.remove().unwrap(),
            Emigration::HideAndCache => {
                emigrating.hide().unwrap();
                drop(emigrating);
            }
            Emigration::Cache => drop(emigrating),
            Emigration::Fail => {
                emigrating.hide().unwrap();
                let migrant = emigrating.give_back().unwrap();
                self.keep_migrant(migrant, model.clone());
            }
        }
        same(&seen(&reference), &model, "a migrant output");
    }

    fn input_migrant(&mut self, len: usize, strong: bool, seed: u64, fails: bool) {
        let mut immigrating = self.space.dequeue(len, strong).unwrap();
        let reference = immigrating.reference().unwrap();
        if fails {
            return;
        }
        let data = pattern(seed, len);
        scatter(&server(&reference), &data);
        immigrating.check(&reference).unwrap();
        drop(reference);
        immigrating.reinstate().unwrap();
        self.keep_migrant(immigrating.arrive(len), data);
    }

    fn fill_region(&mut self, offset: usize, len: usize, filled: u16, seed: u64) {
        let mut system = self.space.aligned_buffer(offset, len).unwrap();
        let mut data = pattern(seed, len);
        scatter(&system.data(), &data);
        data.truncate(usize::from(filled) * len / usize::from(u16::MAX));
        let (migrant, zeroed) = self.space.region_from(&mut system, data.len()).unwrap();
        let region = (offset + data.len()).next_multiple_of(self.granule).max(self.granule);
        assert_eq!(zeroed, region - data.len());
        self.keep_migrant(migrant, data);
    }

    /// Everything holds what it must, and every granule is in its place.
    fn verify(&self) -> Usage {
        for (buffer, model) in &self.buffers {
            same(buffer, model, "a buffer");
        }
        for (reference, model) in &self.outputs {
            same(&seen(reference), model, "an output");
        }
        for (migrant, model) in &self.migrants {
            same(migrant, model, "a migrant buffer");
        }
        // A page that a client sees and a page that a server sees are one.
        if let Some((buffer, _)) = self.buffers.last() {
            let addr = buffer.addresses().start;
            let reference = self.space.reference(addr, 1, Direction::Out).unwrap();
            assert_eq!(frame(addr), frame(reference.segments()[0].addr()));
        }
        checked(&self.space)
    }
}

fn random_programs_find_what_they_have_stored(machine: Machine) {
    let Some(space) = machine.protecting_space(GRANULES) else { return };
    drop(space);
    let wanted = std::env::var("PROPTEST_CASES").map_or(64, |text| text.parse().expect("a number"));
    let cases = if machine.is_large() { (wanted / 4).max(1) } else { wanted };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let program = prop::collection::vec(step(), 1..60);
    let outcome = TestRunner::new(config).run(&program, |program| {
        let mut world = World::new(machine.space(GRANULES));
        for step in &program {
            world.take(step);
            world.verify();
        }
        let space = world.space.clone();
        drop(world);
        let usage = checked(&space);
        prop_assert_eq!((usage.references, usage.deferred, usage.system), (0, 0, 0));
        prop_assert_eq!(usage.regions, usage.queued);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
