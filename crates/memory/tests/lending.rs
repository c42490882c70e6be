//! Random programs among lenders that come and go: whatever the order, clients find what they have stored or were given,
//! and each granule is in its place and in its pool.

use crate::machine::{self, Machine, checked, output_of, pattern, same, scatter, seen};
use genie_memory::{Buffer, GranuleKind, LenderId, Migrant, Reference, Space, SystemBuffer};
use genie_sys::Object;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// How many of each a program keeps.
const MOST: usize = 3;
/// The longest buffer, in granules.
const LONGEST: usize = 3;
/// Granules for buffers, outputs of earlier contents of buffers, system buffers and migrants, and a free granule for
/// each granule under output.
const GRANULES: usize = 20 * LONGEST;

on_each_kind!(lenders_that_come_and_go_lose_nothing);

/// One step; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Allocate {
        granules: u8,
    },
    Free {
        which: u8,
    },
    Store {
        which: u8,
        seed: u64,
    },
    Output {
        which: u8,
    },
    EndOutput {
        which: u8,
    },
    /// Allocates a system buffer and fills it.
    Begin {
        lender: u8,
        granules: u8,
        seed: u64,
    },
    /// Delivers one, and keeps it, so that it can be filled once more.
    Deliver {
        which: u8,
        to: u8,
        keep: bool,
    },
    /// Makes a region of one.
    Move {
        which: u8,
    },
    Chunk {
        lender: u8,
        keep: bool,
    },
    Connect {
        granules: u8,
    },
    Disconnect {
        lender: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let n = any::<u8>;
    prop_oneof![
        2 => n().prop_map(|granules| Step::Allocate { granules }),
        1 => n().prop_map(|which| Step::Free { which }),
        2 => (n(), any::<u64>()).prop_map(|(which, seed)| Step::Store { which, seed }),
        3 => n().prop_map(|which| Step::Output { which }),
        2 => n().prop_map(|which| Step::EndOutput { which }),
        5 => (n(), n(), any::<u64>()).prop_map(|(lender, granules, seed)| Step::Begin { lender, granules, seed }),
        5 => (n(), n(), any::<bool>()).prop_map(|(which, to, keep)| Step::Deliver { which, to, keep }),
        1 => n().prop_map(|which| Step::Move { which }),
        1 => (n(), any::<bool>()).prop_map(|(lender, keep)| Step::Chunk { lender, keep }),
        2 => n().prop_map(|granules| Step::Connect { granules }),
        1 => n().prop_map(|lender| Step::Disconnect { lender }),
    ]
}

struct World {
    space: Space,
    kind: GranuleKind,
    buffers: Vec<(Buffer, Vec<u8>)>,
    outputs: Vec<(Reference, Vec<u8>)>,
    migrants: Vec<(Migrant, Vec<u8>)>,
    systems: Vec<(SystemBuffer, Vec<u8>)>,
    chunks: Vec<SystemBuffer>,
    lenders: Vec<LenderId>,
}

/// Adds to a list that keeps only so many.
fn keep<T>(list: &mut Vec<T>, item: T) {
    list.push(item);
    if list.len() > MOST {
        list.remove(0);
    }
}

fn index<T>(list: &[T], which: u8) -> Option<usize> {
    usize::from(which).checked_rem(list.len())
}

impl World {
    fn new(space: Space, kind: GranuleKind) -> Self {
        let (buffers, outputs, migrants, systems) = Default::default();
        let (chunks, lenders) = Default::default();
        Self { space, kind, buffers, outputs, migrants, systems, chunks, lenders }
    }

    fn len(&self, granules: u8) -> usize {
        (1 + usize::from(granules) % LONGEST) * self.kind.size()
    }

    /// The space itself or one of its lenders.
    fn lender(&self, which: u8) -> LenderId {
        let which = usize::from(which) % (self.lenders.len() + 1);
        self.lenders.get(which).copied().unwrap_or_default()
    }

    fn take(&mut self, step: &Step) -> Option<()> {
        match *step {
            Step::Allocate { granules } => {
                let len = self.len(granules);
                keep(&mut self.buffers, (self.space.allocate(len).unwrap(), vec![0; len]));
            }
            Step::Free { which } => drop(self.buffers.swap_remove(index(&self.buffers, which)?)),
            Step::Store { which, seed } => {
                let which = index(&self.buffers, which)?;
                let (buffer, model) = &mut self.buffers[which];
                *model = pattern(seed, model.len());
                buffer.copy_from_slice(model);
            }
            Step::Output { which } => {
                let (buffer, model) = &self.buffers[index(&self.buffers, which)?];
                let reference = output_of(&self.space, buffer.addresses().start, buffer.len());
                keep(&mut self.outputs, (reference, model.clone()));
            }
            Step::EndOutput { which } => drop(self.outputs.swap_remove(index(&self.outputs, which)?)),
            Step::Begin { lender, granules, seed } => {
                self.begin(self.lender(lender), self.len(granules), seed)?
            }
            Step::Deliver { which, to, keep } => self.deliver(which, to, keep)?,
            Step::Move { which } => {
                let (mut system, model) = self.systems.swap_remove(index(&self.systems, which)?);
                let (migrant, _) = self.space.region_from(&mut system, model.len()).unwrap();
                keep(&mut self.migrants, (migrant, model));
            }
            Step::Chunk { lender, keep: kept } => {
                let chunk =
                    self.space.system_buffer_shown(self.lender(lender), self.lender(lender), 64).ok()?;
                if kept {
                    keep(&mut self.chunks, chunk);
                }
            }
            Step::Connect { granules } => self.connect(self.len(granules)),
            Step::Disconnect { lender } => {
                let lender = self.lenders.swap_remove(index(&self.lenders, lender)?);
                self.space.remove_lender(lender);
            }
        }
        Some(())
    }

    /// From a lender's pool, or where that is exhausted, from the space's own.
    fn begin(&mut self, lender: LenderId, len: usize, seed: u64) -> Option<()> {
        let system = self.space.aligned_buffer_from(lender, 0, len);
        let system = system.or_else(|_| self.space.aligned_buffer(0, len)).ok()?;
        let data = pattern(seed, len);
        scatter(&system.data(), &data);
        keep(&mut self.systems, (system, data));
        Some(())
    }

    fn deliver(&mut self, which: u8, to: u8, keep_it: bool) -> Option<()> {
        let (which, to) = (index(&self.systems, which)?, index(&self.buffers, to)?);
        let (mut system, data) = self.systems.swap_remove(which);
        let (buffer, model) = &mut self.buffers[to];
        let len = data.len().min(model.len());
        let swap = 0..LONGEST as u32;
        let passed = self.space.deliver(&mut system, &mut buffer[..len], &swap).unwrap();
        assert_eq!(passed.swapped as usize, len / self.kind.size());
        model[..len].copy_from_slice(&data[..len]);
        if keep_it && !system.is_empty() {
            let data = pattern(len as u64, data.len());
            scatter(&system.data(), &data);
            keep(&mut self.systems, (system, data));
        }
        Some(())
    }

    fn connect(&mut self, len: usize) {
        let lender = self.space.add_lender();
        machine::lend(&self.space, lender, Object::create(self.kind, len).unwrap()).unwrap();
        self.lenders.push(lender);
        if self.lenders.len() > MOST {
            self.space.remove_lender(self.lenders.remove(0));
        }
    }

    fn verify(&self) {
        for (buffer, model) in &self.buffers {
            same(buffer, model, "a buffer");
        }
        for (reference, model) in &self.outputs {
            same(&seen(reference), model, "an output");
        }
        for (migrant, model) in &self.migrants {
            same(migrant, model, "a moved buffer");
        }
        for (system, model) in &self.systems {
            same(&system.data().to_vec(), model, "a system buffer");
        }
        checked(&self.space);
    }

    /// Ends everything; what is left is the space's own.
    fn end(self) {
        let Self { space, lenders, .. } = self;
        drop((self.buffers, self.outputs, self.migrants, self.systems, self.chunks));
        checked(&space);
        lenders.into_iter().for_each(|lender| space.remove_lender(lender));
        let usage = checked(&space);
        assert_eq!((usage.lent, usage.retired), (0, 0), "{usage:?}");
        assert_eq!((usage.system, usage.deferred, usage.references), (0, 0, 0), "{usage:?}");
        let all = space.allocate(GRANULES * space.granule()).expect("all of the space's own granules");
        assert!(all.iter().step_by(97).all(|byte| *byte == 0));
    }
}

fn lenders_that_come_and_go_lose_nothing(machine: Machine) {
    let Some(space) = machine.protecting_space(GRANULES) else { return };
    drop(space);
    let wanted = std::env::var("PROPTEST_CASES").map_or(64, |text| text.parse().expect("a number"));
    let huge = machine.is_large();
    let cases = if huge { (wanted / 8).max(1) } else { wanted };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let program = prop::collection::vec(step(), 1..if huge { 40 } else { 80 });
    let outcome = TestRunner::new(config).run(&program, |program| {
        let mut world = World::new(machine.space(GRANULES), machine.kind);
        for step in &program {
            world.take(step);
            world.verify();
        }
        world.end();
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
