//! Counters of requests and bytes.
//!
//! How: the recorder is asked for a counter each time, since a program may install its recorder late. What names a counter is
//! made once for each thread, since making it allocates. A thread uses few of them: it finds one by comparing sooner than by a hash.

use std::cell::RefCell;
use std::sync::Arc;

use genie_memory::Direction;
use genie_passing::{Reason, Receipt};
use metrics::{Key, Label, Level, Metadata, counter};

/// A counter's name, and its labels.
type Name = (&'static str, [(&'static str, &'static str); 2]);

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

thread_local! {
    static KEYS: RefCell<Vec<(Name, Arc<Key>)>> = const { RefCell::new(Vec::new()) };
}

/// Counts a request, and how its elements were passed.
pub(super) fn replied(elements: impl Iterator<Item = (Direction, Receipt, usize)>) {
    counter!("genie_requests_total").increment(1);
    for (direction, receipt, len) in elements {
        let direction = if direction == Direction::Out { "out" } else { "in" };
        add("genie_bytes_total", [("scheme", receipt.effective.name()), ("direction", direction)], len);
        if receipt.copied > 0 {
            let reason = receipt.reason.map_or("none", Reason::phrase);
            let labels = [("scheme", receipt.asked.name()), ("reason", reason)];
            add("genie_copied_bytes_total", labels, receipt.copied);
        }
        if receipt.faults > 0 {
            counter!("genie_faults_total").increment(receipt.faults.into());
        }
    }
}

fn add(name: &'static str, labels: [(&'static str, &'static str); 2], count: usize) {
    if count == 0 {
        return;
    }
    let make = || {
        let labels = labels.map(|(name, value)| Label::from_static_parts(name, value));
        Arc::new(Key::from_parts(name, labels.to_vec()))
    };
    let known = |keys: &RefCell<Vec<(Name, Arc<Key>)>>| {
        let mut keys = keys.borrow_mut();
        let found = keys.iter().position(|(known, _)| *known == (name, labels)).unwrap_or_else(|| {
            keys.push(((name, labels), make()));
            keys.len() - 1
        });
        Arc::clone(&keys[found].1)
    };
    // A thread that ends has let go of its keys. The recorder is called without the borrow: it may make requests.
    let key = KEYS.try_with(known).unwrap_or_else(|_| make());
    metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA)).increment(count as u64);
}
