//! Backings: which memory objects hold some data, and where.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use genie_memory::{
    Backing, Config, Data, Error, Extent, Faults, Granularity, GranuleKind, Mapping, Mirror, Quota, Space,
};
use genie_sys::{Inode, Object, View};

use crate::machine::proc::object_at;

const PAGE: usize = GranuleKind::Base.size();
const MIB: usize = 1 << 20;

fn space(limit: usize) -> Space {
    let granularity = Granularity::Only(GranuleKind::Base);
    let config = Config { granularity, limit, faults: Faults::Never, kernel_never_stores: false, pool: 0 };
    Space::new(&config).expect("a space")
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3 + at / PAGE) as u8).collect()
}

/// A part's length, and its (device, inode, offset) if it is in an object.
type Part = (usize, Option<(u64, u64, usize)>);

/// What data's backings say, which is what the kernel has mapped.
#[track_caller]
fn said(data: &Data<'_>) -> Vec<Part> {
    let part = |backing: Backing<'_>| {
        let object = backing.object().map(|(Inode { device, number }, offset)| (device, number, offset));
        assert_eq!(object, object_at(backing.addr()), "{:#x}", backing.addr());
        (backing.len(), object)
    };
    data.backings().map(part).collect()
}

#[test]
fn a_run_of_addresses_is_cut_where_an_object_ends() {
    let space = space(2 * MIB);
    // The first object is 1 MiB long, and the second one takes the rest.
    let (first, second) = (space.aligned_buffer(0, MIB).unwrap(), space.aligned_buffer(0, MIB).unwrap());
    drop((first, second));
    let buffer = space.aligned_buffer(100, MIB + MIB / 2).unwrap();
    let bytes = pattern(MIB + MIB / 2);
    buffer.data().copy_from(&bytes);
    let data = buffer.data();
    assert_eq!(data.segments().len(), 1, "one run of addresses");
    let parts = said(&data);
    let [(len, Some((_, one, 100))), (rest, Some((_, other, 0)))] = parts[..] else { panic!("{parts:?}") };
    assert_eq!((len, len + rest), (MIB - 100, bytes.len()));
    assert_ne!(one, other);
    let mut there = Vec::new();
    for backing in data.backings() {
        let file = File::from(backing.share().expect("a descriptor"));
        let (inode, offset) = backing.object().expect("an object");
        assert_eq!(
            (file.metadata().unwrap().dev(), file.metadata().unwrap().ino()),
            (inode.device, inode.number)
        );
        let mut part = vec![0; backing.len()];
        file.read_exact_at(&mut part, offset as u64).expect("its bytes");
        there.extend(part);
        assert!(file.write_at(b"!", offset as u64).is_err(), "it is for reading");
    }
    assert!(there == bytes, "the objects have other bytes");
    let middle = data.part(MIB - 200..MIB);
    assert_eq!(said(&middle), [(100, Some((parts[0].1.unwrap().0, one, MIB - 100))), (100, parts[1].1)]);
    assert!(said(&data.part(7..7)).is_empty());
}

#[test]
fn other_memory_is_in_no_object() {
    let space = space(2 * MIB);
    let bytes = pattern(3 * PAGE);
    let data = Data::from(&bytes[..]);
    assert_eq!((data.to_vec(), said(&data)), (bytes.clone(), vec![(3 * PAGE, None)]));
    assert_eq!(data.backings().next().unwrap().share().unwrap_err(), Error::NoObject);
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&pattern(PAGE), 0).unwrap();
    let view = View::open(&file, 0, PAGE).expect("a view");
    assert_eq!(said(&Data::of_view(&view, 0..PAGE)), [(PAGE, None)]);
    // Which granules a window shows can change.
    let buffer = space.allocate(PAGE).unwrap();
    let backing = Data::from(&buffer[..]).backings().next().unwrap().object();
    assert_eq!(backing, None);
}

#[test]
fn what_is_somebodys_alone_is_named_and_not_shown() {
    let space = space(2 * MIB);
    let buffer = space.aligned_buffer(0, 2 * PAGE).unwrap();
    let before = said(&buffer.data());
    let bytes = buffer.into_bytes().unwrap();
    let data = Data::from(&bytes[..]);
    assert_eq!(said(&data), before);
    assert_eq!(data.backings().next().unwrap().share().unwrap_err(), Error::NoObject);
}

/// As a server has it that a client elsewhere has announced objects to.
#[test]
fn of_a_peers_memory_is_said_what_is_mapped() {
    for mapping in [Mapping::Cached, Mapping::Transient] {
        let quota = Quota::new(64 * MIB, 64 * MIB);
        let lifeline = OwnedFd::from(tempfile::tempfile().unwrap());
        let mirror = Mirror::new(0, 8 * MIB, GranuleKind::Base, mapping, lifeline, &quota).expect("a mirror");
        let object = || {
            let object = Object::create(GranuleKind::Base, MIB).unwrap();
            let file = File::from(object.duplicate().unwrap());
            file.write_all_at(&pattern(MIB), 0).unwrap();
            let of_a_peer = Object::accept(object.read_only().unwrap()).expect("as a peer sends it");
            assert_eq!(of_a_peer.inode(), object.inode());
            of_a_peer
        };
        let (first, second, third) = (object(), object(), object());
        let inodes = [&first, &second, &third].map(|object| object.inode().number);
        mirror.announce(1, 2 * MIB, first).unwrap();
        mirror.announce(2, 3 * MIB, second).unwrap();
        let extent = Extent { offset: 3 * MIB - 100, len: 300 };
        let mapped = mirror.map(&[extent], false).expect("it is announced");
        let data = mapped.data();
        let parts = said(&data);
        let [(100, Some((_, one, offset))), (200, Some((_, other, 0)))] = parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(([one, other], offset), ([inodes[0], inodes[1]], MIB - 100), "{mapping:?}");
        let [held, _] = data.backings().collect::<Vec<_>>().try_into().expect("two");
        let mut byte = [0];
        File::from(held.share().unwrap()).read_exact_at(&mut byte, offset as u64).unwrap();
        assert_eq!(byte[0], pattern(MIB)[offset]);
        if mapping == Mapping::Transient {
            continue;
        }
        // Another object in its place is not what this request has, before it is mapped.
        assert!(mirror.withdraw(1).expect("it is cached"));
        mirror.announce(3, 2 * MIB, third).unwrap();
        let now: Vec<_> = data.backings().map(|backing| (backing.len(), backing.object())).collect();
        assert_eq!(now, [(300, None)], "nothing is said of what follows in the run");
        assert_eq!(said(&data.part(100..300)), parts[1..]);
        assert_eq!(held.share().unwrap_err(), Error::NoObject, "the peer has withdrawn it");
        assert_eq!(held.to_vec(), pattern(MIB)[MIB - 100..], "and it is still mapped");
        let later = mirror.map(&[extent], false).expect("it is announced");
        assert_eq!(said(&later.data())[0].1.expect("an object").1, inodes[2]);
        assert_eq!(held.share().unwrap_err(), Error::NoObject, "another object is there");
    }
}
