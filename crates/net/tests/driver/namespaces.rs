//! The links on which drivers are tried: what they are, and that nothing is left of them.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

use genie_conformance::machine::skip;
use genie_net::driver::interfaces::{Interface, interface, interfaces};
use genie_net::namespaces::{End, Namespace, Pair};
use genie_sys::Errno;

/// A link, or SKIP.
fn pair(test: &str, mtu: u32) -> Option<Pair> {
    Pair::new(mtu).map_err(|unavailable| skip(test, &unavailable.to_string())).ok()
}

fn socket(end: &End, host: IpAddr) -> UdpSocket {
    end.namespace.enter(|| UdpSocket::bind((host, 0)).unwrap())
}

#[test]
fn the_ends_of_a_link_reach_each_other_over_both_kinds_of_hosts() {
    for mtu in [1500, 65_535] {
        let test = "the_ends_of_a_link_reach_each_other_over_both_kinds_of_hosts";
        let Some(Pair { ends: [a, b] }) = pair(test, mtu) else { return };
        for (from, to) in [(a.v4.into(), b.v4.into()), (IpAddr::from(a.v6), IpAddr::from(b.v6))] {
            let (from, to) = (socket(&a, from), socket(&b, to));
            let sent = vec![7; mtu as usize - 48];
            from.send_to(&sent, to.local_addr().unwrap()).unwrap();
            let mut received = vec![0; sent.len()];
            let (len, sender) = to.recv_from(&mut received).unwrap();
            assert_eq!((len, sender, received), (sent.len(), from.local_addr().unwrap(), sent));
        }
    }
}

#[test]
fn interfaces_are_told_with_all_facts() {
    let Some(pair) = pair("interfaces_are_told_with_all_facts", 9000) else { return };
    for (at, end) in pair.ends.iter().enumerate() {
        let Interface { index, name, station, mtu, kind, is_up, hosts } = &end.interface;
        assert_eq!((name.as_str(), *mtu, *is_up), (["genie0", "genie1"][at], 9000, true));
        assert_eq!((kind.as_deref(), station[5]), (Some("veth"), at as u8 + 1));
        assert!(hosts.contains(&end.v4.into()) && hosts.contains(&end.v6.into()), "{hosts:?}");
        let all = end.namespace.enter(|| interfaces().unwrap());
        let lo = all.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(lo.is_up && lo.index != *index && lo.station == [0; 6], "{lo:?}");
        let missing = end.namespace.enter(|| interface("nowhere").unwrap_err());
        assert!(missing.errno == Errno::NODEV && missing.to_string().contains("interface nowhere"));
    }
}

#[test]
fn the_thread_that_enters_a_namespace_stays_where_it_is() {
    let Some(pair) = pair("the_thread_that_enters_a_namespace_stays_where_it_is", 1500) else { return };
    let inode = |namespace: &Namespace| rustix::fs::fstat(namespace.as_fd()).unwrap().st_ino;
    let before = inode(&Namespace::current().unwrap());
    let [a, b] = &pair.ends;
    for end in [a, b] {
        let inside = end.namespace.enter(|| inode(&Namespace::current().unwrap()));
        let begun = end.namespace.spawn(|| Namespace::current().unwrap()).join().unwrap();
        assert_eq!((inside, inode(&begun)), (inode(&end.namespace), inode(&end.namespace)));
    }
    assert_ne!(inode(&a.namespace), inode(&b.namespace));
    assert_eq!(inode(&Namespace::current().unwrap()), before);
}

#[test]
fn nothing_is_left_of_a_link_when_the_last_process_that_has_its_namespace_is_killed() {
    let test = "nothing_is_left_of_a_link_when_the_last_process_that_has_its_namespace_is_killed";
    let Some(Pair { ends: [a, b] }) = pair(test, 1500) else { return };
    let mut process = b.namespace.enter(|| Command::new("sleep").arg("1000").spawn().unwrap());
    drop(b);
    let is_there = || a.namespace.enter(|| interface("genie0").is_ok());
    assert!(is_there());
    process.kill().unwrap();
    process.wait().unwrap();
    // The kernel removes namespaces in a thread of its own.
    while is_there() {
        std::thread::yield_now();
    }
}

#[test]
fn checksums_are_partial_only_where_the_kernel_may_leave_them_to_the_link() {
    let test = "checksums_are_partial_only_where_the_kernel_may_leave_them_to_the_link";
    let Some(Pair { ends: [a, b] }) = pair(test, 1500) else { return };
    let (from, to) = (socket(&a, a.v4.into()), socket(&b, b.v4.into()));
    let raw = b.namespace.enter(|| {
        let kind = (rustix::net::AddressFamily::INET, rustix::net::SocketType::RAW);
        rustix::net::socket(kind.0, kind.1, Some(rustix::net::ipproto::UDP)).unwrap()
    });
    let mut sums = [true, false].map(|is_offloaded| {
        a.offload_checksums(is_offloaded).unwrap();
        from.send_to(b"the same bytes", to.local_addr().unwrap()).unwrap();
        let mut packet = [0; 64];
        let (len, _) = rustix::net::recv(&raw, &mut packet[..], rustix::net::RecvFlags::empty()).unwrap();
        assert_eq!(len, 20 + 8 + 14);
        u16::from_be_bytes([packet[26], packet[27]])
    });
    sums.sort_unstable();
    assert_ne!(sums[0], sums[1], "one is that of the pseudo-header alone");
}
