//! A space with lenders, and a look at its memory through another mapping.
#![allow(
    unsafe_code,
    reason = "stands for the floor above, whose types keep clients and lenders from what is not theirs"
)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use genie_memory::{Config, Faults, Granularity, GranuleKind, LenderId, Protection, Space, Span};
use genie_passing::{Costs, Input, Parties, Passing, Scheme, Target, Thresholds};
use genie_sys::{Object, inspect};

use crate::skip::skip;

/// The byte that fills memory which was somebody else's before.
pub(crate) const DIRT: u8 = 0xdd;
/// Bytes that each test's space may take, besides what is lent.
const LIMIT: usize = 32 << 20;
/// Huge pages that a test takes: two objects at the most.
const HUGE_PAGES: usize = 2 * LIMIT / (2 << 20);

/// A client's space, which avoids copying wherever it can.
pub(crate) struct Fixture {
    pub(crate) space: Space,
    pub(crate) passing: Passing,
}

/// What a server sees if it maps all of the granules that some data is in.
pub(crate) struct Seen {
    /// Who lent them; none for the client's own.
    pub(crate) lender: Option<LenderId>,
    pub(crate) data: Vec<u8>,
    /// The rest of the granules, in order.
    pub(crate) around: Vec<u8>,
}

/// Makes a test of each granule kind.
#[macro_export]
macro_rules! on_both_kinds {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[test]
            #[cfg_attr(miri, ignore = "memfd")]
            fn huge() {
                $crate::parties::fixture::run(concat!(stringify!($test), "::huge"), genie_memory::GranuleKind::Huge, super::$test);
            }

            #[test]
            #[cfg_attr(miri, ignore = "memfd")]
            fn base() {
                $crate::parties::fixture::run(concat!(stringify!($test), "::base"), genie_memory::GranuleKind::Base, super::$test);
            }
        }
    )*};
}

/// Runs a test and checks the tables, if the machine has such granules and output can be protected.
pub(crate) fn run(name: &str, kind: GranuleKind, test: fn(&Fixture)) {
    let pages = inspect::huge_pages().expect("/proc/meminfo is readable");
    let available = pages.free.saturating_sub(pages.reserved);
    if kind == GranuleKind::Huge && (pages.size_kib != 2048 || available < HUGE_PAGES) {
        return skip(name, &format!("{available} huge pages are available, {HUGE_PAGES} are needed"));
    }
    let fixture = Fixture::new(kind);
    if fixture.space.protection() != Protection::Full {
        return skip(name, "output cannot be protected");
    }
    test(&fixture);
    fixture.check();
}

impl Fixture {
    fn new(kind: GranuleKind) -> Self {
        let config = Config {
            granularity: Granularity::Only(kind),
            limit: LIMIT,
            faults: Faults::Best,
            kernel_never_stores: false,
            pool: LIMIT,
        };
        let space = Space::new(&config).expect("a space");
        let passing = Passing::new(space.clone(), Costs::default()).with_thresholds(Thresholds::ALWAYS);
        Self { space, passing }
    }

    pub(crate) fn granule(&self) -> usize {
        self.space.granule()
    }

    /// A server in another process that lends so many granules.
    pub(crate) fn lender(&self, granules: usize) -> LenderId {
        let lender = self.space.add_lender();
        let kind = self.space.granule_kind();
        let object = Object::create(kind, granules * kind.size()).expect("memory for an object");
        // SAFETY: nobody else has the object.
        unsafe { self.space.lend(lender, object) }.expect("room for a lent object");
        lender
    }

    /// Leaves data of somebody else in two free granules of a pool.
    pub(crate) fn soil(&self, lender: LenderId) {
        let buffer = self.space.aligned_buffer_from(lender, 0, 2 * self.granule()).expect("two granules");
        buffer.data().fill(DIRT);
        drop(buffer);
        let each = [(); 2].map(|()| self.space.aligned_buffer_from(lender, 0, self.granule()));
        for buffer in each {
            buffer.expect("a granule").data().fill(DIRT);
        }
    }

    /// Looks at data through the descriptors that a server would get.
    pub(crate) fn seen(&self, segments: &[Span]) -> Seen {
        let granule = self.granule();
        let mut seen = Seen { lender: None, data: Vec::new(), around: Vec::new() };
        for segment in segments {
            let start = segment.addr() - self.space.aliases_base();
            let end = start + segment.len();
            let object = self.space.object_at(start).expect("an object");
            let file = File::from(self.space.share(object.id).expect("a descriptor"));
            let first = start & !(granule - 1);
            let mut bytes = vec![0; end.next_multiple_of(granule) - first];
            file.read_exact_at(&mut bytes, (first - object.start) as u64).expect("readable memory");
            seen.lender = object.lender;
            seen.data.extend_from_slice(&bytes[start - first..end - first]);
            seen.around.extend_from_slice(&bytes[..start - first]);
            seen.around.extend_from_slice(&bytes[end - first..]);
        }
        seen
    }

    /// Verifies the tables.
    pub(crate) fn check(&self) {
        self.space.check().expect("the tables agree");
    }
}

/// An input into memory that the test does not touch before it is delivered.
pub(crate) fn begin(
    passing: &Passing,
    scheme: Scheme,
    target: Target,
    parties: impl Into<Parties>,
) -> Box<Input> {
    // SAFETY: as said above.
    unsafe { passing.input_from(scheme, target, parties) }.expect("an input")
}

/// Bytes that are all different from zero and from dirt, and mostly from their neighbours.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 199) as u8 + 1).collect()
}
