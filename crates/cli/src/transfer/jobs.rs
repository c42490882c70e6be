//! Jobs: threads that share out the files of a directory.
//!
//! How: each job takes the next file that no job has taken. The first failure stops all jobs, once they are done with the
//! files under way.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use genie_sys::lock::Mutex;

use super::carrier::Carrier;
use super::client::Client;
use super::options::Options;
use super::summary::Tally;
use crate::bar::Bar;
use crate::failure::Failure;

/// Has `work` done for each item, which has `size` bytes, by as many threads as the options allow; a bar shows how many bytes
/// are done. Returns the tally of all.
pub(super) fn share_out<T: Sync>(
    client: &Client,
    options: &Options,
    items: &[T],
    size: impl Fn(&T) -> u64,
    work: impl Fn(&mut Carrier<'_>, &T, &Bar) -> Result<(), Failure> + Sync,
) -> Result<Tally, Failure> {
    let bytes = items.iter().map(size).fold(0, u64::saturating_add);
    let bar = Bar::new(bytes, "{wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}");
    let jobs = options.jobs.get().min(items.len()).max(1);
    let (next, total) = (AtomicUsize::new(0), Mutex::new(Ok(Tally::default())));
    let job = || {
        let mut carrier = Carrier::new(client, options.scheme, jobs);
        let done = loop {
            let Some(item) = items.get(next.fetch_add(1, Relaxed)) else { break Ok(()) };
            match work(&mut carrier, item, &bar) {
                Ok(()) => carrier.tally.files += 1,
                Err(failure) => break Err(failure),
            }
        };
        let mut total = total.lock();
        match (done, total.as_mut()) {
            (Ok(()), Ok(total)) => total.merge(carrier.tally),
            (Err(failure), Ok(_)) => {
                next.store(items.len(), Relaxed);
                *total = Err(failure);
            }
            (_, Err(_)) => {}
        }
    };
    std::thread::scope(|scope| {
        (1..jobs).for_each(|_| drop(scope.spawn(job)));
        job();
    });
    total.into_inner()
}
