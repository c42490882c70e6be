//! Counters, tested with events that every machine counts, and with events that only some machines count.
//!
//! How: one test runs at a time, since counters count events of the whole process.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use genie_lab::counter::{Counter, Counting, Event, Modes, Refusal};
use genie_sys::lock::{Mutex, MutexGuard};
use genie_sys::machine::thread_cpu_time;

const PAGE: usize = 4096;
/// Work that nothing else comes near.
const LONG: Duration = Duration::from_millis(40);
/// By how much the clocks of CPU time and of events may differ: they see a switch of threads at different moments.
const APART: Duration = Duration::from_millis(15);
/// How often it is tried: what a host takes away from a running thread is in its run time, not in its CPU time.
const TRIES: usize = 5;

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

fn work(time: Duration) {
    let start = thread_cpu_time();
    while thread_cpu_time() - start < time {
        std::hint::spin_loop();
    }
}

/// A thread that works whenever it is told to, and says when it has.
struct Worker {
    orders: Option<Sender<Duration>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start() -> Self {
        let ((orders, received), (say, done)) = (channel::<Duration>(), channel());
        let body = move || {
            for time in received {
                work(time);
                say.send(()).unwrap();
            }
        };
        let worker = Self { orders: Some(orders), done, thread: Some(std::thread::spawn(body)) };
        worker.work(Duration::ZERO);
        worker
    }

    fn work(&self, time: Duration) {
        self.orders.as_ref().unwrap().send(time).unwrap();
        self.done.recv().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Says that a test, or a part of it, was not run, and why.
fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}");
    eprintln!("{line}");
    let Some(path) = std::env::var_os("GENIE_SKIP_LOG").filter(|path| !path.is_empty()) else { return };
    let log = File::options().append(true).create(true).open(path);
    log.and_then(|mut log| writeln!(log, "{line}")).expect("the SKIP log can be written");
}

/// Counts running, in whatever modes that is allowed; none where nothing may be counted.
fn run_time(test: &str) -> Option<Counter> {
    let Counting { modes, lack } = Counting::of(Event::RunTime);
    let Some(modes) = modes else {
        skip(test, &lack.expect("a reason"));
        return None;
    };
    Some(Counter::open(Event::RunTime, modes).unwrap())
}

fn counted<T>(counter: &mut Counter, work: impl FnOnce() -> T) -> u64 {
    counter.around(work).1.unwrap().expect("the counters are the kernel's own")
}

/// Memory for so many pages, without any page in it: beyond 32 MiB, the allocator maps it anew each time.
fn unused(pages: usize) -> Vec<u8> {
    Vec::with_capacity(pages * PAGE)
}

#[test]
fn threads_count_that_were_there_and_that_come_later() {
    let _alone = alone();
    let before = Worker::start();
    let Some(mut counter) = run_time("threads_count_that_were_there_and_that_come_later") else { return };
    let tries = (0..TRIES).map(|_| {
        let count = counted(&mut counter, || {
            work(LONG);
            before.work(LONG);
            let later = Worker::start();
            later.work(LONG);
        });
        Duration::from_nanos(count)
    });
    let least = tries.min().unwrap();
    assert!(least.abs_diff(3 * LONG) < APART, "{least:?}");
}

#[test]
fn what_happens_between_two_pieces_of_work_does_not_count() {
    let _alone = alone();
    let worker = Worker::start();
    let Some(mut counter) = run_time("what_happens_between_two_pieces_of_work_does_not_count") else {
        return;
    };
    let tries = (0..TRIES).map(|_| {
        let mut both = counted(&mut counter, || worker.work(LONG));
        worker.work(LONG);
        work(LONG);
        both += counted(&mut counter, || worker.work(LONG));
        Duration::from_nanos(both)
    });
    let least = tries.min().unwrap();
    assert!(least.abs_diff(2 * LONG) < APART, "{least:?}");
}

#[test]
fn other_processes_do_not_count() {
    let _alone = alone();
    let Some(mut counter) = run_time("other_processes_do_not_count") else { return };
    let busy = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let count = counted(&mut counter, || Command::new("sh").args(["-c", busy]).status().unwrap());
    let spent = of_children();
    assert!(spent > LONG, "the other process was to be busy for longer than {spent:?}");
    assert!(Duration::from_nanos(count) < spent / 2, "{count} ns of {spent:?}");
}

/// The CPU time of the processes that were waited for.
fn of_children() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = [13, 14].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

#[test]
fn reading_the_counters_does_not_count() {
    let _alone = alone();
    let Some(mut counter) = run_time("reading_the_counters_does_not_count") else { return };
    let mut counts: Vec<_> = (0..101).map(|_| counted(&mut counter, || ())).collect();
    counts.sort_unstable();
    // Two readings of some threads' counters take microseconds.
    assert!(counts[50] < 500, "{} ns", counts[50]);
}

#[test]
fn page_faults_count_in_the_modes_that_were_asked_for() {
    const PAGES: usize = 9000;
    let _alone = alone();
    let faults = |modes| {
        let mut counter = Counter::open(Event::PageFaults, modes).unwrap();
        let mut memory = unused(PAGES);
        let stored = counted(&mut counter, || memory.resize(PAGES * PAGE, 1));
        let memory = unused(PAGES);
        // The kernel stores into it, and so the faults are the kernel's.
        let zeros = |memory: Vec<u8>| {
            let mut memory = memory;
            let mut source = File::open("/dev/zero").unwrap().take((PAGES * PAGE) as u64);
            source.read_to_end(&mut memory).unwrap();
            memory.len()
        };
        let read = counted(&mut counter, || zeros(memory));
        (stored as usize, read as usize)
    };
    if let Some(lack) = Counting::of(Event::PageFaults).lack {
        return skip("page_faults_count_in_the_modes_that_were_asked_for", &lack);
    }
    // Some pages may be huge; then there are fewer faults, but of those there are some.
    let (stored, read) = faults(Modes::UserAndKernel);
    assert!(stored > 0 && read > 0, "{stored} by stores, {read} by reading");
    let (stored_by_user, read_by_user) = faults(Modes::User);
    assert!(stored_by_user.abs_diff(stored) <= stored / 10 + 8, "{stored_by_user} of {stored}");
    assert!(read_by_user < read.div_ceil(2), "{read_by_user} of {read} faults were the program's");
}

#[test]
fn instructions_are_counted_or_the_reason_is_told() {
    const ROUNDS: u64 = 1_000_000;
    let _alone = alone();
    let counting = Counting::of(Event::Instructions);
    let Some(modes) = counting.modes else {
        let lack = counting.lack.expect("a reason");
        let refusal = Counter::open(Event::Instructions, Modes::User).unwrap_err();
        assert_eq!(refusal.to_string(), lack);
        assert!(matches!(
            refusal,
            Refusal::Absent { .. } | Refusal::Forbidden { .. } | Refusal::NoCall { .. }
        ));
        assert!(lack.contains("(os error ") && lack.contains(';'), "{lack}");
        return;
    };
    assert_eq!(counting.lack.is_some(), modes == Modes::User);
    let mut counter = Counter::open(Event::Instructions, modes).unwrap();
    let (_, count) = counter.around(|| (0..ROUNDS).fold(0, |sum, one| std::hint::black_box(sum ^ one)));
    if let Some(count) = count.unwrap() {
        assert!((2 * ROUNDS..100 * ROUNDS).contains(&count), "{count} instructions in {ROUNDS} rounds");
    }
}
