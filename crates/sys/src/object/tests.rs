use std::io::Write;
use std::process::Command;

use rustix::process::{Rlimit, setrlimit};

use super::*;
use crate::Errno;

impl Object {
    /// An object that its holder can shrink, as only a hostile peer's could be.
    pub(crate) fn unsealed(kind: GranuleKind, len: usize) -> Self {
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let flags = if kind == GranuleKind::Huge { huge } else { MemfdFlags::empty() };
        let descriptor = memfd(flags, len, SealFlags::empty());
        let inode = Inode::of(&rustix::fs::fstat(&descriptor).unwrap());
        Self { descriptor, inode, kind, len, huge: 0, is_writable: true }
    }
}

fn memfd(flags: MemfdFlags, len: usize, seals: SealFlags) -> OwnedFd {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let descriptor = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&descriptor, len as u64).unwrap();
    rustix::fs::fcntl_add_seals(&descriptor, seals).unwrap();
    descriptor
}

/// The sentence with which a descriptor is refused.
fn refusal(descriptor: OwnedFd) -> (Errno, String) {
    let error = Object::accept(descriptor).unwrap_err();
    (error.errno, error.to_string())
}

#[test]
fn an_object_can_neither_shrink_nor_grow_nor_be_sealed_further() {
    let object = Object::create(GranuleKind::Base, 8192).unwrap();
    for len in [4096, 16384] {
        assert_eq!(rustix::fs::ftruncate(&object, len), Err(Errno::PERM));
    }
    assert_eq!(rustix::fs::fcntl_add_seals(&object, SealFlags::FUTURE_WRITE), Err(Errno::PERM));
    assert_eq!(rustix::fs::fstat(&object).unwrap().st_size, 8192);
}

#[test]
fn an_object_is_closed_by_exec_and_private_to_its_user() {
    let object = Object::create(GranuleKind::Base, 4096).unwrap();
    for descriptor in [object.duplicate().unwrap(), object.read_only().unwrap(), object.descriptor] {
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(rustix::fs::fstat(&descriptor).unwrap().st_mode & 0o777, 0o600);
    }
}

#[test]
fn what_an_object_sends_is_accepted_with_the_rights_sent() {
    for kind in [GranuleKind::Base, GranuleKind::Collapsed, GranuleKind::Huge] {
        let len = 2 * kind.size();
        let object = match Object::create(kind, len) {
            Ok(object) => object,
            Err(error) if kind == GranuleKind::Huge => {
                let test = "what_an_object_sends_is_accepted_with_the_rights_sent";
                crate::skip::skip(test, &format!("no huge pages: {error}"));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let expected = if kind == GranuleKind::Huge { kind } else { GranuleKind::Base };
        for (descriptor, is_writable) in
            [(object.duplicate().unwrap(), true), (object.read_only().unwrap(), false)]
        {
            let accepted = Object::accept(descriptor).unwrap();
            assert_eq!((accepted.kind(), accepted.len()), (expected, len));
            assert_eq!(accepted.is_writable(), is_writable);
        }
        assert!(object.is_writable());
    }
}

#[test]
fn a_read_only_descriptor_stays_read_only() {
    let object = Object::create(GranuleKind::Base, 4096).unwrap();
    let read_only = Object::accept(object.read_only().unwrap()).unwrap();
    let again = Object::accept(read_only.duplicate().unwrap()).unwrap();
    assert!(!again.is_writable());
    assert_eq!(rustix::io::pwrite(&again, b"x", 0), Err(Errno::BADF));
    let arena = Arena::reserve(2 << 20).unwrap();
    let error = arena.map(0, &again, 0, 4096).unwrap_err();
    assert_eq!(error.errno, Errno::ACCESS);
}

#[test]
fn what_is_no_memory_object_is_refused() {
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0; 4096]).unwrap();
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let (socket, _end) = crate::socket::Socket::pair().unwrap();
    let event = crate::event::Event::new().unwrap();
    let directory = std::fs::File::open("/proc/self").unwrap();
    let hostile: [OwnedFd; 6] =
        [pipe, file.into(), null.into(), socket.into(), event.into(), directory.into()];
    for descriptor in hostile {
        // A file of a tmpfs has seals, though none that help.
        let (errno, sentence) = refusal(descriptor);
        assert_eq!(errno, Errno::INVAL, "{sentence}");
        assert!(sentence.contains("memfds") || sentence.contains("seal"), "{sentence}");
    }
}

#[test]
fn a_file_of_a_tmpfs_is_refused_for_its_seals() {
    let Ok(mut file) = tempfile::tempfile_in("/dev/shm") else {
        return crate::skip::skip("a_file_of_a_tmpfs_is_refused_for_its_seals", "no /dev/shm to write in");
    };
    file.write_all(&[0; 4096]).unwrap();
    assert_eq!(refusal(file.into()).0, Errno::INVAL);
}

#[test]
fn an_object_that_could_change_its_size_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW, SealFlags::WRITE] {
        let (errno, sentence) = refusal(memfd(MemfdFlags::empty(), 4096, seals));
        assert_eq!(errno, Errno::INVAL);
        assert!(sentence.contains("against shrinking and growing"), "{sentence}");
    }
}

#[test]
fn an_object_without_whole_granules_is_refused() {
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    for len in [0, 1, 4095, 4097] {
        let (errno, sentence) = refusal(memfd(MemfdFlags::empty(), len, sealed));
        assert_eq!(errno, Errno::INVAL);
        assert!(sentence.contains(&format!("{len} bytes")), "{sentence}");
    }
}

#[test]
fn an_object_of_other_huge_pages_is_refused() {
    let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB | MemfdFlags::ALLOW_SEALING;
    let Ok(descriptor) = rustix::fs::memfd_create("test", flags) else {
        let reason = "the kernel has no huge pages of 1 GiB";
        return crate::skip::skip("an_object_of_other_huge_pages_is_refused", reason);
    };
    rustix::fs::ftruncate(&descriptor, 1 << 30).unwrap();
    rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    let (errno, sentence) = refusal(descriptor);
    assert_eq!(errno, Errno::INVAL);
    assert!(sentence.contains("1073741824 bytes"), "{sentence}");
}

#[test]
fn a_descriptor_that_cannot_be_read_is_refused() {
    let object = Object::create(GranuleKind::Base, 4096).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&object.as_fd()));
    use rustix::fs::OFlags;
    for flags in [OFlags::WRONLY, OFlags::PATH] {
        let opened = rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(refusal(opened).0, Errno::BADF);
    }
}

#[test]
fn a_refused_descriptor_is_closed() {
    // Other tests open and close files meanwhile, so a leak shows only after many rounds.
    let before = crate::proc::open_descriptors();
    for _ in 0..500 {
        Object::accept(memfd(MemfdFlags::empty(), 4096, SealFlags::empty())).unwrap_err();
    }
    assert!(crate::proc::open_descriptors() < before + 250);
}

/// Once, the kernel ended the process by SIGXFSZ, without a word to its user.
#[test]
fn an_object_longer_than_files_may_be_is_refused_and_the_process_goes_on() {
    const TEST: &str = "an_object_longer_than_files_may_be_is_refused_and_the_process_goes_on";
    if std::env::var_os(TEST).is_some() {
        let limit = Rlimit { current: Some(8192), maximum: Some(8192) };
        setrlimit(Resource::Fsize, limit).unwrap();
        let error = Object::create(GranuleKind::Base, 12288).unwrap_err();
        assert_eq!(error.errno, Errno::FBIG);
        assert!(error.to_string().contains("`ulimit -f`"), "{error}");
        assert_eq!(Object::create(GranuleKind::Base, 8192).unwrap().len(), 8192);
        return;
    }
    // The limit is for a whole process.
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let name = format!("object::tests::{TEST}");
    let output = alone.args(["--exact", &name]).env(TEST, "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{:?}: {said}", output.status);
}

#[test]
fn an_object_tells_what_was_touched_until_it_is_emptied() {
    let object = Object::create(GranuleKind::Base, 16 * 4096).unwrap();
    assert_eq!(object.touched(0, object.len()), None);
    for page in [3, 4, 9] {
        rustix::io::pwrite(&object, &[7; 8], page * 4096).unwrap();
    }
    assert_eq!(object.touched(0, object.len()), Some(3 * 4096..5 * 4096));
    assert_eq!(object.touched(5 * 4096, object.len()), Some(9 * 4096..10 * 4096));
    assert_eq!(object.touched(4 * 4096 + 5, 4 * 4096 + 9), Some(4 * 4096 + 5..4 * 4096 + 9));
    assert_eq!(object.touched(10 * 4096, object.len()), None);
    object.discard().unwrap();
    let mut bytes = [1; 8];
    rustix::io::pread(&object, &mut bytes, 3 * 4096).unwrap();
    assert_eq!(bytes, [0; 8]);
}

/// Once, a refused memfd_create of 4 KiB pages advised to have huge pages.
#[test]
fn an_object_that_cannot_be_made_says_what_is_in_the_way() {
    for errno in [Errno::PERM, Errno::NOSYS] {
        for kind in [GranuleKind::Base, GranuleKind::Huge] {
            assert!(unmade(kind, errno).is_some_and(|remedy| remedy.contains("seccomp")), "{errno}");
        }
    }
    assert_eq!(unmade(GranuleKind::Base, Errno::NOMEM), None);
    assert!(
        unmade(GranuleKind::Huge, Errno::NODEV).is_some_and(|remedy| remedy.contains("CONFIG_HUGETLBFS"))
    );
}
