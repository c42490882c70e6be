//! Running programs: three clients in step. The client under test is compared with the model after each step, and the oracle
//! at the end.

use std::cell::Cell;
use std::io::{Read, Write};
use std::ops::Range;
use std::time::Duration;

use genie_conformance::{Guard, Scene, Setup, checked};
use genie_io::{Error, Limits};
use genie_memory::GranuleKind;
use genie_passing::{Scheme, Thresholds};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::action::{Action, BUFFERS, Delivery, End, OUTPUTS, program, thresholds};
use super::model::Model;
use super::world::{InputAction, Memory, World};
use crate::support::bytes::{pattern, same};
use crate::support::transport::{Place, open};

/// Runs random programs on one configuration: `cases` of them, if nothing else is asked for.
pub(crate) fn programs(test: &'static str, setup: Setup, place: Place, cases: u32) {
    let limits = Limits { abort_timeout: Duration::from_micros(100), ..Limits::default() };
    // Within this process programs run one after the other in one space. One that fails takes it along, so that the programs
    // that are tried to find a shorter one start with nothing wrong.
    let space = Cell::new(None);
    let open = |thresholds| match (place, space.take()) {
        (Place::InProcess, Some(space)) => Some(Scene::on(space, setup, limits.clone(), thresholds)),
        _ => open(test, setup, place, limits.clone(), thresholds),
    };
    if open(Thresholds::ALWAYS).is_none() {
        return;
    }
    let asked = |name| std::env::var(name).ok().and_then(|cases| cases.parse().ok());
    let cases = asked("GENIE_PROPTEST_CASES").or_else(|| asked("PROPTEST_CASES")).unwrap_or(cases);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let seed = seed();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let strategy = (thresholds(setup.granule()), program());
    let result = TestRunner::new_with_rng(config, rng).run(&strategy, |(thresholds, actions)| {
        let transport =
            open(thresholds).ok_or_else(|| TestCaseError::fail("the machine ran out of memory"))?;
        let mut run = Run::new(&transport);
        actions.iter().enumerate().for_each(|(step, action)| run.step(step, action));
        run.finish();
        transport.assert_idle();
        space.set(Some(transport.interface().space().clone()));
        Ok(())
    });
    if let Err(failure) = result {
        let seed: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{test}: {failure}\nto repeat: GENIE_PROPTEST_SEED={seed}");
    }
}

/// The seed given, or a new one.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    let Some(given) = std::env::var_os("GENIE_PROPTEST_SEED") else {
        let mut random = std::fs::File::open("/dev/urandom").expect("random numbers");
        random.read_exact(&mut seed).expect("random numbers");
        return seed;
    };
    let given = given.into_string().expect("GENIE_PROPTEST_SEED is 64 hexadecimal digits");
    for (byte, digits) in seed.iter_mut().zip(given.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).expect("hexadecimal digits");
        *byte = u8::from_str_radix(digits, 16).expect("GENIE_PROPTEST_SEED is 64 hexadecimal digits");
    }
    seed
}

struct Run<'t> {
    transport: &'t Scene,
    model: Model,
    /// The client under test, and the oracle.
    worlds: [World<'t>; 2],
}

impl<'t> Run<'t> {
    fn new(transport: &'t Scene) -> Self {
        let worlds = [Scheme::EmulatedCopy, Scheme::Copy].map(|scheme| World::new(transport, scheme));
        let mut run = Self { transport, model: Model::default(), worlds };
        (0..BUFFERS).for_each(|buffer| run.reallocate(buffer, buffer * 100, false));
        run
    }

    fn step(&mut self, step: usize, action: &Action) {
        self.act(action);
        let what = |buffer: usize| format!("step {step}, {action:?}: buffer {buffer}");
        self.compare(&self.worlds[0], what);
        checked(self.transport.interface().space());
    }

    /// Compares a client's buffers with those of the model.
    fn compare(&self, world: &World<'_>, what: impl Fn(usize) -> String) {
        for buffer in 0..BUFFERS {
            match (&world.buffers[buffer], &self.model.buffers[buffer]) {
                (Some(found), Some(expected)) => same(found, expected, what(buffer)),
                (None, None) => {}
                _ => panic!("{}: is there in one of the model and the world only", what(buffer)),
            }
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Store { buffer, part, byte } => {
                let Some(range) = self.range(*buffer, *part) else { return };
                self.store(*buffer, range.start, &vec![*byte; range.len()]);
            }
            Action::KernelRead { buffer, part, seed } => {
                let Some(range) = self.range(*buffer, *part) else { return };
                self.kernel_read(*buffer, range.start, &pattern(*seed, range.len()));
            }
            Action::Output { buffer, part } => self.output(*buffer, *part),
            Action::OutputTwice { buffer, parts } => {
                parts.iter().for_each(|part| self.output(*buffer, *part))
            }
            Action::TimedOut { buffer, part } => self.timed_out(*buffer, *part),
            Action::Read { output } => self.read(*output),
            Action::Complete { output, end } => self.complete(*output, *end),
            Action::Anticipate { output } => self.anticipate(*output),
            Action::Input { buffer, part, seed, less, delivery, end } => {
                let Some(range) = self.range(*buffer, *part) else { return };
                let bytes = pattern(*seed, range.len());
                let actual = bytes.len() - usize::from(*less).min(bytes.len());
                let (buffer, end) = (*buffer, *end);
                let crowded = self.model.outputs.len() >= OUTPUTS;
                let delivery = match delivery {
                    Delivery::Beside if crowded => Delivery::Normal,
                    other => *other,
                };
                self.input(&InputAction { buffer, range, bytes: &bytes, actual, delivery, end });
            }
            Action::Free { buffer } => {
                self.model.buffers[*buffer] = None;
                self.worlds.iter_mut().for_each(|world| world.buffers[*buffer] = None);
            }
            Action::Reallocate { buffer, offset, short } => {
                self.reallocate(*buffer, usize::from(*offset), *short);
            }
            Action::Fork { buffer } => {
                if let Some(Memory::Region(region)) = &mut self.worlds[0].buffers[*buffer] {
                    super::fork::store_in_child(region);
                }
            }
        }
    }

    fn range(&self, buffer: usize, part: super::action::Part) -> Option<Range<usize>> {
        Some(part.of(self.transport.setup().granule(), self.model.len(buffer)?))
    }

    /// Long buffers have so many small granules that page tables are swapped.
    fn reallocate(&mut self, buffer: usize, offset: usize, short: bool) {
        let setup = self.transport.setup();
        let offset = offset % setup.granule();
        let len = match (setup.kind, short) {
            (_, true) => setup.granule() / 2 + 100,
            (GranuleKind::Huge | GranuleKind::Collapsed, false) => 2 * setup.granule() - offset,
            (GranuleKind::Base, false) => 18 * setup.granule() + 5 - offset,
        };
        let content = pattern((offset + len) as u64, len);
        self.worlds.iter_mut().for_each(|world| world.allocate(buffer, offset, &content));
        self.model.buffers[buffer] = Some(content);
    }

    fn store(&mut self, buffer: usize, at: usize, bytes: &[u8]) {
        for memory in self.worlds.iter_mut().filter_map(|world| world.buffers[buffer].as_mut()) {
            memory[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.model.store(buffer, at, bytes);
    }

    /// The kernel stores into the buffers; where the program promised that it never does, the program does.
    fn kernel_read(&mut self, buffer: usize, at: usize, bytes: &[u8]) {
        if self.transport.setup().guard == Guard::Stores {
            return self.store(buffer, at, bytes);
        }
        for memory in self.worlds.iter_mut().filter_map(|world| world.buffers[buffer].as_mut()) {
            let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
            for (index, chunk) in bytes.chunks(PIPE).enumerate() {
                writer.write_all(chunk).expect("room in the pipe");
                let at = at + index * PIPE;
                reader.read_exact(&mut memory[at..at + chunk.len()]).expect("bytes from the pipe");
            }
        }
        self.model.store(buffer, at, bytes);
    }

    fn output(&mut self, buffer: usize, part: super::action::Part) {
        let Some(range) = self.range(buffer, part).filter(|_| self.model.outputs.len() < OUTPUTS) else {
            return;
        };
        self.worlds.iter_mut().for_each(|world| world.output(buffer, range.clone()));
        self.model.output(buffer, range);
    }

    fn timed_out(&mut self, buffer: usize, part: super::action::Part) {
        let Some(range) = self.range(buffer, part).filter(|_| self.model.outputs.len() < OUTPUTS) else {
            return;
        };
        for world in &mut self.worlds {
            let result = world.timed_out(buffer, range.clone());
            assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
        }
        self.model.output(buffer, range);
    }

    fn read(&self, output: usize) {
        let Some(expected) = self.model.outputs.get(output) else { return };
        for world in &self.worlds {
            same(&world.read(output), expected, format_args!("output {output}"));
        }
    }

    fn complete(&mut self, output: usize, end: End) {
        if output >= self.model.outputs.len() {
            return;
        }
        self.read(output);
        let results = self.worlds.each_mut().map(|world| world.complete(output, end));
        assert_eq!(results[0], results[1], "replies to output {output}");
        if let Some(result) = &results[0] {
            assert_eq!(result.is_ok(), end == End::Success, "{result:?}");
        }
        self.model.complete(output, end);
    }

    fn anticipate(&mut self, output: usize) {
        if output >= self.model.outputs.len() {
            return;
        }
        let results = self.worlds.each_mut().map(|world| world.anticipate(output));
        assert_eq!(results[0], results[1], "anticipated replies to output {output}");
        assert_ne!(results[0], Some(false), "the reply is anticipated");
    }

    fn input(&mut self, input: &InputAction<'_>) {
        let results = self.worlds.each_mut().map(|world| world.input(input));
        assert_eq!(results[0], results[1], "replies to the input");
        assert_eq!(results[0].is_ok(), input.end == End::Success, "{:?}", results[0]);
        if input.delivery == Delivery::Beside {
            self.model.beside(input.buffer, input.range.end);
        }
        (0..self.model.outputs.len()).for_each(|output| self.read(output));
        if input.end != End::Success {
            return;
        }
        let other = 1 - input.buffer;
        let reaches = self.model.len(other).is_some_and(|len| len >= input.range.end);
        let to = if input.delivery == Delivery::Redirected && reaches { other } else { input.buffer };
        self.model.store(to, input.range.start, &input.bytes[..input.actual]);
    }

    /// Ends what is left: nothing remains. The oracle's buffers are compared once, since that reads megabytes.
    fn finish(mut self) {
        self.compare(&self.worlds[1], |buffer| format!("at the end: the oracle's buffer {buffer}"));
        while !self.model.outputs.is_empty() {
            self.complete(0, End::Success);
        }
    }
}

/// What an empty pipe takes at once.
const PIPE: usize = 64 << 10;
