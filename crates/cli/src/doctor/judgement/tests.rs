//! Made-up machines, and what the doctor must say of them.

use std::time::Duration;

use super::super::facts::Faults;
use super::super::finding::State;
use super::*;
use genie_passing::calibration::Circumstances;
use genie_sys::cgroup::MemoryCgroup;

/// A machine on which nothing is amiss, seen by an ordinary user.
fn sound() -> Facts {
    Facts {
        kernel: "6.18.0".to_owned(),
        load: 0.1,
        root: false,
        memory: 24 << 30,
        memory_cgroup: None,
        huge_pages: Ok(HugePages { total: 400, available: 400, size_kib: 2048 }),
        collapse: Ok(()),
        faults: Faults { way: Ok(Way::Device), open_to_all: true, device_mode: Some(0o666) },
        memory_lock: Ok(MemoryLock { soft: None, hard: None, exempt: false }),
        cpus: Ok(Cpus { count: 2, allowed: vec![0, 1], round_trip: Some(Ok(Duration::from_nanos(120))) }),
        max_map_count: Ok(65_530),
        costs: Ok(Some(Circumstances { load: 0.1, optimized: true })),
        networks: Networks {
            lacking: Vec::new(),
            packets: Some(Ok(())),
            xdp: Some(Ok(Mode::Native)),
            front: Some(Ok(Mode::Native)),
        },
    }
}

fn about(subject: &str, facts: &Facts) -> Finding {
    let found = findings(facts).into_iter().find(|finding| finding.subject.starts_with(subject));
    found.unwrap_or_else(|| panic!("no finding about {subject}"))
}

fn command(subject: &str, facts: &Facts) -> String {
    about(subject, facts).remedy.expect("a remedy").command(facts.root)
}

#[test]
fn a_sound_machine_is_ok_throughout_and_needs_no_command() {
    for finding in findings(&sound()) {
        assert_eq!(finding.state, State::Ok, "{finding:?}");
        assert_eq!(finding.remedy, None, "{finding:?}");
    }
}

#[test]
fn a_machine_that_answers_nothing_still_gets_every_finding() {
    let mut facts = sound();
    let no = || "the kernel does not say".to_owned();
    facts.huge_pages = Err(no());
    facts.collapse = Err(Uncollapsed { reason: no(), in_pieces: true });
    facts.faults = Faults { way: Err(no()), open_to_all: false, device_mode: None };
    facts.memory_lock = Err(no());
    facts.cpus = Err(no());
    facts.max_map_count = Err(no());
    facts.costs = Err(no());
    facts.networks.packets = Some(Err(no()));
    facts.memory_cgroup =
        Some(MemoryCgroup { limit_file: format!("{}/memory.max", no()).into(), limit: 0, used: 0 });
    let all = findings(&facts);
    assert_eq!(all.len(), findings(&sound()).len());
    for finding in all {
        assert_ne!(finding.state, State::Ok, "{finding:?}");
        assert!(finding.found.contains("the kernel does not say"), "{finding:?}");
    }
}

#[test]
fn without_huge_pages_the_recommended_count_is_reserved() {
    let mut facts = sound();
    facts.huge_pages = Ok(HugePages { total: 0, available: 0, size_kib: 2048 });
    let finding = about("huge pages", &facts);
    assert_eq!(finding.state, State::Degraded);
    assert!(finding.meaning.contains("granules have 2 MiB all the same"), "{finding:?}");
    assert_eq!(command("huge pages", &facts), "sudo sysctl vm.nr_hugepages=400");
    facts.collapse = Err(Uncollapsed { reason: "ENOMEM".to_owned(), in_pieces: true });
    let finding = about("huge pages", &facts);
    assert_eq!(finding.state, State::Missing);
    assert!(finding.meaning.contains("with 4 KiB granules"), "{finding:?}");
}

#[test]
fn huge_pages_in_use_are_kept_when_more_are_reserved() {
    let mut facts = sound();
    facts.huge_pages = Ok(HugePages { total: 400, available: 50, size_kib: 2048 });
    assert_eq!(about("huge pages", &facts).state, State::Degraded);
    assert_eq!(command("huge pages", &facts), "sudo sysctl vm.nr_hugepages=750");
}

#[test]
fn a_small_machine_keeps_three_quarters_of_its_memory() {
    let mut facts = sound();
    facts.memory = 512 << 20;
    facts.huge_pages = Ok(HugePages { total: 0, available: 0, size_kib: 2048 });
    assert_eq!(command("huge pages", &facts), "sudo sysctl vm.nr_hugepages=64");
    facts.huge_pages = Ok(HugePages { total: 64, available: 64, size_kib: 2048 });
    assert_eq!(about("huge pages", &facts).state, State::Ok);
}

#[test]
fn pages_that_are_not_collapsed_have_a_remedy_only_where_memory_is_in_pieces() {
    let mut facts = sound();
    facts.collapse = Err(Uncollapsed { reason: "ENOMEM".to_owned(), in_pieces: true });
    assert_eq!(about("collapsed", &facts).state, State::Degraded);
    assert_eq!(command("collapsed", &facts), "sudo sysctl vm.compact_memory=1");
    facts.collapse = Err(Uncollapsed { reason: "EINVAL".to_owned(), in_pieces: false });
    assert_eq!(about("collapsed", &facts).remedy, None);
}

#[test]
fn user_mode_faults_lose_kernel_writes_and_the_device_gives_them_back() {
    let mut facts = sound();
    facts.faults = Faults { way: Ok(Way::UserModeOnly), open_to_all: false, device_mode: Some(0o600) };
    let finding = about("userfaultfd", &facts);
    assert_eq!(finding.state, State::Degraded);
    assert!(finding.meaning.contains("is copied") && finding.meaning.contains("Out::owned"), "{finding:?}");
    assert!(finding.found.contains("for you"), "{finding:?}");
    assert_eq!(command("userfaultfd", &facts), "sudo chmod 0666 /dev/userfaultfd");
}

#[test]
fn without_the_device_the_sysctl_opens_userfaultfd() {
    let mut facts = sound();
    facts.faults = Faults { way: Ok(Way::UserModeOnly), open_to_all: false, device_mode: None };
    assert_eq!(command("userfaultfd", &facts), "sudo sysctl vm.unprivileged_userfaultfd=1");
}

#[test]
fn root_is_told_what_other_users_lack() {
    let mut facts = sound();
    facts.root = true;
    facts.faults = Faults { way: Ok(Way::SystemCall), open_to_all: false, device_mode: Some(0o600) };
    let finding = about("userfaultfd", &facts);
    assert_eq!(finding.state, State::Degraded);
    assert!(finding.meaning.starts_with("you, as root, lose nothing; for other users"), "{finding:?}");
    assert_eq!(command("userfaultfd", &facts), "chmod 0666 /dev/userfaultfd");
    facts.faults.open_to_all = true;
    assert_eq!(about("userfaultfd", &facts).state, State::Ok);
}

#[test]
fn a_low_memory_lock_limit_is_raised_by_the_shell_where_it_may() {
    let mut facts = sound();
    facts.memory_lock = Ok(MemoryLock { soft: Some(8 << 20), hard: None, exempt: false });
    assert_eq!(about("memory lock", &facts).state, State::Degraded);
    assert_eq!(command("memory lock", &facts), "ulimit -l 65536");
    facts.memory_lock = Ok(MemoryLock { soft: Some(8 << 20), hard: Some(8 << 20), exempt: false });
    assert_eq!(command("memory lock", &facts), "sudo prlimit --memlock=67108864 --pid $$");
    facts.memory_lock = Ok(MemoryLock { soft: Some(8 << 20), hard: Some(8 << 20), exempt: true });
    assert_eq!(about("memory lock", &facts).state, State::Ok);
}

#[test]
fn a_cgroup_that_leaves_little_memory_is_named_with_its_limit_and_where_to_raise_it() {
    let mut facts = sound();
    let cgroup =
        |limit| MemoryCgroup { limit_file: "/sys/fs/cgroup/job/memory.max".into(), limit, used: 20 << 20 };
    facts.memory_cgroup = Some(cgroup(32 << 20));
    let finding = about("memory limit", &facts);
    assert_eq!(finding.state, State::Degraded);
    assert_eq!(finding.found, "32 MiB by the cgroup /sys/fs/cgroup/job, 20 in use");
    assert_eq!(command("memory limit", &facts), "echo 289406976 | sudo tee /sys/fs/cgroup/job/memory.max");
    facts.memory_cgroup = Some(cgroup(1 << 30));
    assert_eq!(about("memory limit", &facts).state, State::Ok);
}

#[test]
fn one_cpu_of_several_is_too_few_and_one_of_one_has_no_remedy() {
    let mut facts = sound();
    facts.cpus = Ok(Cpus { count: 4, allowed: vec![2], round_trip: None });
    assert_eq!(about("CPUs", &facts).state, State::Degraded);
    assert_eq!(command("CPUs", &facts), "taskset -cp 0-3 $$");
    facts.cpus = Ok(Cpus { count: 1, allowed: vec![0], round_trip: None });
    assert_eq!(about("CPUs", &facts).remedy, None);
}

#[test]
fn far_cpus_are_named_far_with_the_time_measured() {
    let mut facts = sound();
    facts.cpus = Ok(Cpus { count: 2, allowed: vec![0, 1], round_trip: Some(Ok(Duration::from_nanos(390))) });
    let finding = about("CPUs", &facts);
    assert_eq!(finding.state, State::Degraded);
    assert!(finding.found.contains("far: 390 ns"), "{finding:?}");
    assert_eq!(finding.remedy, None);
}

/// Other programs' threads between the two CPUs' turns were taken for a long way between the CPUs.
#[test]
fn a_distance_that_was_measured_under_load_is_told_as_such_and_not_judged() {
    let mut facts = sound();
    facts.cpus = Ok(Cpus { count: 2, allowed: vec![0, 1], round_trip: Some(Ok(Duration::from_nanos(390))) });
    facts.load = 8.3;
    let finding = about("CPUs", &facts);
    assert_eq!(finding.state, State::Ok);
    assert!(finding.found.ends_with("390 ns there and back, measured under load (8.3)"), "{finding:?}");
}

#[test]
fn few_mappings_are_raised_to_the_kernels_default() {
    let mut facts = sound();
    facts.max_map_count = Ok(4096);
    assert_eq!(about("mappings", &facts).state, State::Degraded);
    assert_eq!(command("mappings", &facts), "sudo sysctl vm.max_map_count=65530");
}

#[test]
fn what_depends_on_rights_says_for_whom_it_holds() {
    let mut facts = sound();
    facts.faults.open_to_all = false;
    facts.memory_lock = Ok(MemoryLock { soft: None, hard: None, exempt: true });
    let found = |subject: &str, facts: &Facts| about(subject, facts).found;
    for subject in ["userfaultfd", "memory lock"] {
        assert!(found(subject, &facts).contains("you"), "{}", found(subject, &facts));
    }
    facts.root = true;
    for subject in ["userfaultfd", "memory lock"] {
        assert!(found(subject, &facts).contains("for root"), "{}", found(subject, &facts));
    }
    facts.faults.open_to_all = true;
    assert!(found("userfaultfd", &facts).contains("for every user"));
}

/// Thresholds that made no sense rested on costs that had been measured beside a compiler, and nothing said so.
#[test]
fn costs_that_were_measured_under_load_or_by_a_debug_build_are_told_as_such() {
    let mut facts = sound();
    facts.costs = Ok(Some(Circumstances { load: 0.8, optimized: true }));
    let finding = about("costs", &facts);
    assert_eq!(finding.state, State::Degraded);
    assert_eq!(finding.found, "measured under load (other programs had 80 % of the CPUs)");
    assert_eq!(command("costs", &facts), "genie calibrate");
    facts.costs = Ok(Some(Circumstances { load: 0.0, optimized: false }));
    let finding = about("costs", &facts);
    assert_eq!((finding.state, finding.remedy), (State::Degraded, None));
    assert!(finding.meaning.contains("use a release build"), "{}", finding.meaning);
    facts.costs = Ok(None);
    assert_eq!(about("costs", &facts).state, State::Ok, "the first interface measures them");
}

#[test]
fn networks_say_which_capabilities_are_lacking_and_what_is_left() {
    let with = |lacking: &[&'static str], xdp| {
        let networks = Networks { lacking: lacking.to_vec(), packets: None, xdp, front: None };
        about("networks", &Facts { networks, ..sound() })
    };
    let none = with(&["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"], None);
    assert_eq!(none.state, State::Missing);
    assert_eq!(none.found, "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF lacking");
    assert!(none.remedy.expect("a remedy").command(false).starts_with("sudo setcap cap_net_raw,"));
    let packets = with(&["CAP_BPF"], None);
    assert_eq!(packets.state, State::Degraded);
    assert!(packets.found.contains("packet sockets") && packets.found.contains("CAP_BPF"), "{packets:?}");
    let refused = with(&[], Some(Err("the kernel has no XDP".to_owned())));
    assert_eq!(refused.state, State::Degraded);
    assert!(refused.found.contains("the kernel has no XDP"), "{refused:?}");
    assert!(about("networks", &sound()).found.contains("early demultiplexing natively"));
    let mut facts = sound();
    facts.networks.front = Some(Err("the kernel has no exits".to_owned()));
    let software = about("networks", &facts);
    assert!(software.found.contains("in software alone: the kernel has no exits"), "{software:?}");
}
