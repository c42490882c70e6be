//! All that a process can see, and what of other clients' data is in there.
//!
//! How: a client's data is its *mark*, eight bytes, again and again. The process that looks holds no other client's mark: it compares what
//! it finds by arithmetic. Every run of 15 bytes of a mark has eight at a place that is a multiple of eight.

use std::fs::{File, read_dir, read_link, read_to_string};
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use rustix::net::{AddressFamily, sockopt::socket_domain};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// What a mark is when its client's number was taken off.
const HIDDEN: u64 = 0x0b1d_2f43_5967_7183;

/// How far a client's mark is from that.
fn mask(client: u8) -> u64 {
    0x0101_0101_0101_0101 * u64::from(0x3c ^ client)
}

/// So many bytes of a client's.
pub(crate) fn marked(client: u8, len: usize) -> Vec<u8> {
    let mark = black_box(HIDDEN) ^ mask(client);
    mark.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// How often each of these clients' marks is in sight: in any memory that is mapped here, or could be, since there is a descriptor.
pub(crate) fn in_sight<const N: usize>(clients: [u8; N]) -> [usize; N] {
    let mut found = [0; N];
    let mut see = |bytes: &[u8]| {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        for word in words.filter(|word| *word != 0) {
            for (found, client) in found.iter_mut().zip(clients) {
                // The compiler must not make the mark of it.
                let bare = black_box(word ^ mask(client));
                *found += usize::from((0..8).any(|turn| bare.rotate_left(8 * turn) == HIDDEN));
            }
        }
    };
    let memory = File::open("/proc/self/mem").expect("the memory");
    for line in read_to_string("/proc/self/maps").expect("the maps").lines() {
        let (range, rest) = line.split_once(' ').expect("a mapping");
        // What is hidden could be shown, if it is an object's.
        if rest.starts_with('r') || rest.contains("/memfd:") {
            let at = range.split('-').map(|at| u64::from_str_radix(at, 16).unwrap_or(u64::MAX));
            let [start, end] = at.collect::<Vec<_>>()[..] else { panic!("no range: {line}") };
            look(&memory, start, end, &mut see);
        }
    }
    let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    for entry in read_dir("/proc/self/fd").expect("descriptors").flatten() {
        let number = entry.file_name().to_string_lossy().parse().expect("a number");
        // The same open file: opening it anew would give rights that the descriptor does not give.
        let Ok(descriptor) = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()) else { continue };
        let target = read_link(entry.path()).unwrap_or_default().to_string_lossy().into_owned();
        if target.starts_with("/memfd:") {
            look(&File::from(descriptor), 0, u64::MAX, &mut see);
        } else {
            let is_plain = socket_domain(&descriptor).is_ok_and(|domain| domain == AddressFamily::UNIX);
            assert!(!target.contains("bpf") && (is_plain || !target.starts_with("socket:")), "{target}");
        }
    }
    found
}

fn look(file: &File, start: u64, end: u64, see: &mut impl FnMut(&[u8])) {
    let (mut block, mut at) = (vec![0; 1 << 20], start);
    while at < end {
        let here = (end - at).min(block.len() as u64) as usize;
        let Ok(len @ 1..) = file.read_at(&mut block[..here], at) else { break };
        see(&block[..len]);
        block[..len].fill(0);
        at += len as u64;
    }
}
