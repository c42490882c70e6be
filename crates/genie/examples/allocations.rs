//! What allocating costs with Genie's allocator and with the system's, measured in turns.
//!
//!     cargo run --release -p genie --features allocator --example allocations
#![allow(unsafe_code, reason = "calls two allocators by hand")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::time::Instant;

#[global_allocator]
static GENIE: genie::Allocator = genie::Allocator::new();

/// Short cycles timed together.
const SHORT: u32 = 10_000;

/// The medians, in nanoseconds, of what `genie` and `system` take, run in turns.
fn medians(rounds: usize, mut genie: impl FnMut(), mut system: impl FnMut()) -> [u128; 2] {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos()
    };
    let mut times: [Vec<u128>; 2] = Default::default();
    for _ in 0..rounds {
        times[0].push(time(&mut genie));
        times[1].push(time(&mut system));
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

/// Allocates, stores into every `step`th byte, and frees.
fn cycle(allocator: &impl GlobalAlloc, layout: Layout, step: usize) {
    // SAFETY: the layout is not empty, and the stores are within it.
    unsafe {
        let memory = black_box(allocator.alloc(layout));
        assert!(!memory.is_null());
        (0..layout.size()).step_by(step).for_each(|at| memory.add(at).write_volatile(1));
        allocator.dealloc(memory, layout);
    }
}

/// Runs `once` often enough to be timed.
fn many(mut once: impl FnMut()) {
    (0..SHORT).for_each(|_| once());
}

fn main() {
    println!("allocate, touch and free; ns             Genie       system");
    for len in [16, 256, 4096, 64 << 10] {
        let layout = Layout::from_size_align(len, 16).expect("a layout");
        let (genie, system) = (|| cycle(&GENIE, layout, len), || cycle(&System, layout, len));
        let each = medians(401, || many(genie), || many(system)).map(|all| all as f64 / f64::from(SHORT));
        println!("{len:>10} bytes, a byte          {:>10.2} {:>12.2}", each[0], each[1]);
    }
    for len in [256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20, 300 << 20] {
        let layout = Layout::from_size_align(len, 16).expect("a layout");
        for (step, what) in [(4096, "each page"), (64, "each line")] {
            let [genie, system] =
                medians(15, || cycle(&GENIE, layout, step), || cycle(&System, layout, step));
            println!("{:>10} KiB, {what:<20} {genie:>10} {system:>12}", len >> 10);
        }
    }
}
