//! Judges the facts: which facility serves Genie, what each one lacks, and what to do about it.
//!
//! Invariants: pure; each facility gives exactly one finding, in the same order whatever the facts; a finding that is not
//! "ok" says what Genie loses by it, and has a remedy wherever a command can give one.

use genie_lab::placement::Placement;
use genie_sys::bpf::Mode;
use genie_sys::userfault::Way;

use super::facts::{Cpus, Facts, HugePages, MemoryLock, Networks, USERFAULTFD_DEVICE, Uncollapsed};
use super::finding::Finding;
use super::remedy::Remedy;
use crate::circumstances;

/// The huge pages that the longest buffers of `genie compare`, of its server and of the tests take, with room to spare: 800
/// MiB.
const HUGE_PAGES_WANTED: usize = 400;
/// The length of Genie's large granules.
const LARGE_GRANULE_KIB: usize = 2048;
/// The kernel's own default; below it, replaced granules soon reach the limit.
const MAPPINGS_WANTED: usize = 65_530;
/// Room for the longest buffer of `genie compare` on both sides, and to spare.
const LOCKED_WANTED: u64 = 64 << 20;

/// Room for the longest buffer of `genie compare` on both sides, with what stands between them.
const ROOM_WANTED: u64 = 128 << 20;

/// The load from which on other threads disturb what the doctor measures.
const BUSY: f64 = 1.0;

/// One finding for each facility.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![
        huge_pages(facts),
        collapsed_pages(facts),
        userfaultfd(facts),
        memory_lock(facts),
        memory_limit(facts),
        cpus(facts),
        mappings(facts),
        costs(facts),
        networks(facts),
    ]
}

/// A machine with little memory keeps three quarters of it for ordinary pages.
fn huge_pages_wanted(memory: u64) -> usize {
    let quarter = memory / 4 / ((LARGE_GRANULE_KIB as u64) << 10);
    usize::try_from(quarter).unwrap_or(usize::MAX).clamp(1, HUGE_PAGES_WANTED)
}

fn huge_pages(facts: &Facts) -> Finding {
    const SUBJECT: &str = "huge pages";
    const NONE: &str = "every scheme works, but with 4 KiB granules: write protection and page swapping cost about as \
                        much as the copy they avoid";
    const COLLAPSED: &str = "granules have 2 MiB all the same, of pages that the kernel collapses: only making them takes \
                             longer, and protecting output that is pending when its request returns";
    let without = if facts.collapse.is_ok() { COLLAPSED } else { NONE };
    let pages = match &facts.huge_pages {
        Ok(pages) => *pages,
        Err(reason) => return Finding::missing(SUBJECT, reason, without),
    };
    let wanted = huge_pages_wanted(facts.memory);
    if pages.size_kib != LARGE_GRANULE_KIB {
        let command =
            format!("echo {wanted} | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
        let found = format!("the default huge page is {} KiB long, Genie's 2048 KiB", pages.size_kib);
        return Finding::degraded(SUBJECT, found, without).with(Remedy::by_hand(command));
    }
    let found = format!("{} of 2 MiB, {} free; {wanted} recommended", pages.total, pages.available);
    if pages.total == 0 {
        let finding = if facts.collapse.is_ok() { Finding::degraded } else { Finding::missing };
        finding(SUBJECT, found, without).with(reserve(wanted))
    } else if pages.total < wanted || pages.available < wanted / 4 {
        const SOME: &str = "when few are free, memory is made of collapsed pages, where the kernel has those, and else an \
                            interface that is opened then has 4 KiB granules, with which avoiding a copy saves little";
        Finding::degraded(SUBJECT, found, SOME).with(reserve(in_use(pages) + wanted))
    } else {
        const ALL: &str = "every user's buffers have 2 MiB granules: protecting or swapping one costs a small part of copying it";
        Finding::ok(SUBJECT, found, ALL)
    }
}

fn in_use(pages: HugePages) -> usize {
    pages.total.saturating_sub(pages.available)
}

fn reserve(pages: usize) -> Remedy {
    Remedy::setting("/proc/sys/vm/nr_hugepages", pages)
}

fn collapsed_pages(facts: &Facts) -> Finding {
    const SUBJECT: &str = "collapsed pages";
    match &facts.collapse {
        Ok(()) => Finding::ok(
            SUBJECT,
            "available",
            "where no huge pages are reserved, every user's buffers still have granules of 2 MiB",
        ),
        Err(Uncollapsed { reason, in_pieces }) => {
            const LOST: &str = "an interface that is opened when few huge pages are free has 4 KiB granules: write \
                                protection and page swapping cost about as much as the copy they avoid";
            let finding = Finding::degraded(SUBJECT, reason, LOST);
            if !in_pieces {
                return finding;
            }
            finding.with(Remedy::by_hand("sudo sysctl vm.compact_memory=1"))
        }
    }
}

fn userfaultfd(facts: &Facts) -> Finding {
    const SUBJECT: &str = "userfaultfd";
    const FULL: &str =
        "output by emulated copy protects memory against stores and against writes by the kernel";
    const STORES: &str = "output by `submit` of a borrowed buffer is copied, since writes by the kernel into it (read, recv) could not be \
                          caught. Give the buffer by value (Out::owned), and nothing is; or promise by \
                          Config::kernel_never_stores that there are no such writes. The remedy lets any program delay \
                          the kernel in a page fault: on a shared machine, give the device to a group (chgrp, mode 0660)";
    const OTHERS: &str = "you, as root, lose nothing; for other users output by `submit` of a borrowed buffer is copied, unless their \
                          program gives the buffer by value (Out::owned), or promises that the kernel writes into no \
                          buffer under output. The remedy lets any program delay the kernel in a page fault: on a \
                          shared machine, give the device to a group (chgrp, mode 0660)";
    match &facts.faults.way {
        Err(reason) => {
            const NONE: &str = "output by `submit` of a borrowed buffer is copied; give it by value (Out::owned), and nothing is";
            Finding::missing(SUBJECT, reason, NONE).with(open_userfaultfd(facts))
        }
        Ok(Way::UserModeOnly) => {
            let found = if facts.root { "user mode only" } else { "user mode only for you, full for root" };
            Finding::degraded(SUBJECT, found, STORES).with(open_userfaultfd(facts))
        }
        Ok(_) if facts.root && !facts.faults.open_to_all => {
            Finding::degraded(SUBJECT, "full for root, user mode only for others", OTHERS)
                .with(open_userfaultfd(facts))
        }
        Ok(way) => {
            let whom = if facts.faults.open_to_all { "every user" } else { "you, by your rights" };
            let by = if *way == Way::Device { USERFAULTFD_DEVICE } else { "system call" };
            Finding::ok(SUBJECT, format!("full for {whom}, by {by}"), FULL)
        }
    }
}

/// The device is preferred, since it can later be given to some users alone; the system call cannot.
fn open_userfaultfd(facts: &Facts) -> Remedy {
    match facts.faults.device_mode {
        Some(mode) => Remedy::Permission { path: USERFAULTFD_DEVICE, mode: mode | 0o666 },
        None => Remedy::setting("/proc/sys/vm/unprivileged_userfaultfd", 1),
    }
}

fn memory_lock(facts: &Facts) -> Finding {
    const SUBJECT: &str = "memory lock";
    const FREE: &str =
        "share, move and weak move can wire any buffer of yours; each user has a limit of their own";
    const BOUND: &str = "share, move and weak move wire their buffers where this suffices, and do without elsewhere; the \
                         other five schemes lock nothing";
    let lock = match &facts.memory_lock {
        Ok(lock) => *lock,
        Err(reason) => return Finding::missing(SUBJECT, reason, BOUND),
    };
    match lock.soft {
        _ if lock.exempt => {
            let whom = if facts.root { "root" } else { "you" };
            Finding::ok(SUBJECT, format!("no limit for {whom} (CAP_IPC_LOCK)"), FREE)
        }
        None => Finding::ok(SUBJECT, "no limit for you", FREE),
        Some(bytes) if bytes >= LOCKED_WANTED => {
            Finding::ok(SUBJECT, format!("{} KiB for you", bytes >> 10), FREE)
        }
        Some(bytes) => {
            let found = format!("{} KiB for you; {} KiB recommended", bytes >> 10, LOCKED_WANTED >> 10);
            Finding::degraded(SUBJECT, found, BOUND).with(raise_memory_lock(lock))
        }
    }
}

/// A shell can raise its own limit up to the hard limit; beyond that, only root can.
fn raise_memory_lock(lock: MemoryLock) -> Remedy {
    let command = if lock.hard.is_none_or(|hard| hard >= LOCKED_WANTED) {
        format!("ulimit -l {}", LOCKED_WANTED >> 10)
    } else {
        format!("sudo prlimit --memlock={LOCKED_WANTED} --pid $$")
    };
    let limits = format!("* - memlock {}", LOCKED_WANTED >> 10);
    let lasting = format!("echo '{limits}' | sudo tee /etc/security/limits.d/60-genie.conf");
    Remedy::ByHand { command, lasting: Some(lasting) }
}

fn memory_limit(facts: &Facts) -> Finding {
    const SUBJECT: &str = "memory limit";
    const REFUSED: &str = "an interface begins with some 3 MiB and grows to at most three quarters of the limit; what the \
                           cgroup has no room for is refused by an error";
    const TIGHT: &str = "what the cgroup has no room for is refused by an error: short data passes, long buffers are few, and \
                         servers lend each client little";
    let Some(cgroup) = &facts.memory_cgroup else {
        return Finding::ok(
            SUBJECT,
            "none by a cgroup",
            "an interface takes at most half of the machine's memory",
        );
    };
    let [limit, used] = [cgroup.limit, cgroup.used].map(|bytes| bytes >> 20);
    let found = format!("{limit} MiB by the cgroup {}, {used} in use", cgroup.path().display());
    if cgroup.left() >= ROOM_WANTED {
        return Finding::ok(SUBJECT, found, REFUSED);
    }
    let (wanted, file) = (cgroup.used + 2 * ROOM_WANTED, cgroup.limit_file.display());
    Finding::degraded(SUBJECT, found, TIGHT).with(Remedy::by_hand(format!("echo {wanted} | sudo tee {file}")))
}

fn cpus(facts: &Facts) -> Finding {
    const SUBJECT: &str = "CPUs";
    const ALONE: &str = "clients, servers and the fault thread take turns: each write fault and each request to another \
                         thread costs a switch";
    match &facts.cpus {
        Err(reason) => Finding::degraded(SUBJECT, reason, ALONE),
        Ok(Cpus { count, allowed, round_trip: None }) => {
            let finding = Finding::degraded(SUBJECT, format!("{} of {count} allowed", allowed.len()), ALONE);
            if *count == 1 {
                return finding;
            }
            finding.with(Remedy::by_hand(format!("taskset -cp 0-{} $$", count - 1)))
        }
        Ok(Cpus { allowed, round_trip: Some(Err(reason)), .. }) => {
            let found = format!("{} allowed; their distance is unknown: {reason}", allowed.len());
            Finding::ok(SUBJECT, found, "clients, servers and the fault thread run side by side")
        }
        Ok(Cpus { allowed, round_trip: Some(Ok(time)), .. }) => {
            let placement = Placement::of(*time);
            let pair = format!("CPUs {} and {}", allowed[0], allowed[1]);
            let nanoseconds = time.as_nanos();
            let found = format!(
                "{} allowed; {pair} {}: {nanoseconds} ns there and back",
                allowed.len(),
                placement.name()
            );
            if placement == Placement::Far && facts.load >= BUSY {
                const UNSURE: &str = "clients, servers and the fault thread run side by side; how far apart shows when \
                                      nothing else runs";
                return Finding::ok(
                    SUBJECT,
                    format!("{found}, measured under load ({:.1})", facts.load),
                    UNSURE,
                );
            }
            distance(SUBJECT, found, placement, allowed.len())
        }
    }
}

fn distance(subject: &'static str, found: String, placement: Placement, allowed: usize) -> Finding {
    match placement {
        Placement::Near => Finding::ok(
            subject,
            found,
            "clients, servers and the fault thread run side by side and share a cache",
        ),
        Placement::Far => {
            const FAR: &str = "handing a buffer from CPU to CPU costs several times as much as between near ones: \
                               compare only with runs of the same placement";
            let finding = Finding::degraded(subject, found, FAR);
            // With two CPUs there is no other pair to choose.
            if allowed > 2 {
                finding.with(Remedy::by_hand("lscpu --extended=CPU,CORE,CACHE"))
            } else {
                finding
            }
        }
    }
}

fn mappings(facts: &Facts) -> Finding {
    const SUBJECT: &str = "mappings for each process";
    match facts.max_map_count {
        Ok(count) if count >= MAPPINGS_WANTED => Finding::ok(
            SUBJECT,
            format!("{count} for every user"),
            "enough: a process that stores into data under output needs one for each granule",
        ),
        ref count => {
            let found = match count {
                Ok(count) => format!("{count}; {MAPPINGS_WANTED} recommended"),
                Err(reason) => reason.clone(),
            };
            const FEW: &str = "each granule replaced under output may take one; when none is left, a store waits for \
                               the output instead";
            Finding::degraded(SUBJECT, found, FEW)
                .with(Remedy::setting("/proc/sys/vm/max_map_count", MAPPINGS_WANTED))
        }
    }
}

fn costs(facts: &Facts) -> Finding {
    const SUBJECT: &str = "costs";
    const USE: &str = "from which length on copying is avoided follows from these costs";
    let measured = match &facts.costs {
        Err(reason) => {
            const NONE: &str = "no interface can be opened, and nothing can be passed";
            return Finding::missing(SUBJECT, reason, NONE);
        }
        Ok(None) => {
            const LATER: &str = "the first interface that is opened measures them, for about a second: let nothing else run then, or \
                                 repeat it by `genie calibrate`";
            return Finding::ok(SUBJECT, "not measured yet by such a build", LATER);
        }
        Ok(Some(measured)) => *measured,
    };
    match circumstances::doubt(measured) {
        None => Finding::ok(SUBJECT, "measured and stored", USE),
        Some(doubt) => {
            let meaning = format!("{USE}, and may be wrong: {}", circumstances::remedy(measured));
            let finding = Finding::degraded(SUBJECT, doubt, &meaning);
            if measured.optimized { finding.with(Remedy::by_hand("genie calibrate")) } else { finding }
        }
    }
}

fn networks(facts: &Facts) -> Finding {
    const SUBJECT: &str = "networks";
    const NONE: &str = "no datagrams on real interfaces by `genie net --interface`, nor by `genie net serve`, whose clients \
                        need no capabilities";
    const PACKETS: &str = "interfaces are driven by packet sockets, for which the kernel copies every frame";
    const ALL: &str = "datagrams come into pages that change places with a client's where that takes less time than a copy; pooled \
                       buffering, and header/data splitting if asked for, are the kernel's work, other levels of support software's";
    const GENERIC: &str =
        "the kernel makes a packet of its own of each frame, and copies it to the interface's memory";
    let Networks { lacking, packets, xdp, front } = &facts.networks;
    let program = std::env::current_exe().map_or("genie".to_owned(), |path| path.display().to_string());
    let grant = format!("sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep {program}");
    let lacks = format!("{} lacking", lacking.join(", "));
    if let Some(Err(reason)) = packets {
        return Finding::missing(SUBJECT, reason, NONE);
    }
    match xdp {
        _ if lacking.contains(&"CAP_NET_RAW") => {
            Finding::missing(SUBJECT, lacks, NONE).with(Remedy::by_hand(grant))
        }
        _ if !lacking.is_empty() => {
            let found = format!("packet sockets, no AF_XDP: {lacks}");
            Finding::degraded(SUBJECT, found, PACKETS).with(Remedy::by_hand(grant))
        }
        Some(Err(reason)) => {
            Finding::degraded(SUBJECT, format!("packet sockets, no AF_XDP: {reason}"), PACKETS)
        }
        Some(Ok(Mode::Native)) => {
            let front = match front {
                Some(Ok(Mode::Native)) => "natively, by `genie net front`".to_owned(),
                Some(Ok(Mode::Generic)) => "by `genie net front` in generic mode".to_owned(),
                Some(Err(reason)) => format!("in software alone: {reason}"),
                None => "not tried".to_owned(),
            };
            let found = format!("packet sockets, and AF_XDP in native mode; early demultiplexing {front}");
            Finding::ok(SUBJECT, found, ALL)
        }
        Some(Ok(Mode::Generic)) => {
            Finding::degraded(SUBJECT, "packet sockets, and AF_XDP in generic mode alone", GENERIC)
        }
        None => Finding::ok(
            SUBJECT,
            "rights for packet sockets and AF_XDP; not tried, since there is no virtual link",
            ALL,
        ),
    }
}

#[cfg(test)]
mod tests;
