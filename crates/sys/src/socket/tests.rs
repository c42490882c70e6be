#![allow(unsafe_code, reason = "forks a child that connects")]

use std::os::fd::AsRawFd;

use super::*;
use crate::child::{ExitOutcome, fork_child};
use crate::process::own_pid;
use crate::{GranuleKind, Object};

/// Where a test's server listens, in a directory of its own.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("server")
    }
}

#[test]
fn a_name_is_one_listeners_and_free_again_when_that_is_closed() {
    let name = format!("genie-sys-test/{}", own_pid());
    assert_eq!(Socket::connect_to_name(&name).unwrap_err().errno, Errno::CONNREFUSED);
    let listener = Listener::bind_name(&name).unwrap();
    assert_eq!(Listener::bind_name(&name).unwrap_err().errno, Errno::ADDRINUSE);
    let client = Socket::connect_to_name(&name).unwrap();
    let served = listener.accept().unwrap().unwrap();
    client.send(b"hello", &[]).unwrap();
    assert_eq!(received(&served).0, b"hello");
    drop(listener);
    Listener::bind_name(&name).unwrap();
    let long = "n".repeat(108);
    assert_eq!(Listener::bind_name(&long).unwrap_err().errno, Errno::NAMETOOLONG);
}

fn received(socket: &Socket) -> (Vec<u8>, Received) {
    let mut bytes = [0; 256];
    let received = socket.receive(&mut bytes).unwrap();
    (bytes[..received.len].to_vec(), received)
}

/// A message with more descriptors than `send` allows, as a hostile peer would send it.
fn send_many(socket: &Socket, count: usize) {
    let null = std::fs::File::open("/dev/null").unwrap();
    let many = vec![null.as_fd(); count];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(count))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    rustix::net::sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn a_client_connects_and_messages_keep_their_bounds() {
    let place = Place::new();
    let listener = Listener::bind(&place.path()).unwrap();
    assert!(listener.accept().unwrap().is_none(), "nobody waits");
    let client = Socket::connect(&place.path()).unwrap();
    client.send(b"one", &[]).unwrap();
    client.send(b"three", &[]).unwrap();
    let server = listener.accept().unwrap().expect("a client waits");
    assert_eq!((received(&server).0, received(&server).0), (b"one".to_vec(), b"three".to_vec()));
    server.send(b"answer", &[]).unwrap();
    assert_eq!(received(&client).0, b"answer");
}

#[test]
fn descriptors_arrive_in_order_and_closed_by_exec() {
    let (ours, theirs) = Socket::pair().unwrap();
    let objects: Vec<Object> =
        (1..=MAX_DESCRIPTORS).map(|pages| Object::create(GranuleKind::Base, pages * 4096).unwrap()).collect();
    let descriptors: Vec<BorrowedFd<'_>> = objects.iter().map(AsFd::as_fd).collect();
    ours.send(b"objects", &descriptors).unwrap();
    let (bytes, received) = received(&theirs);
    assert_eq!((bytes.as_slice(), received.truncated), (&b"objects"[..], false));
    assert_eq!(received.descriptors.len(), MAX_DESCRIPTORS);
    for (descriptor, object) in received.descriptors.into_iter().zip(&objects) {
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(Object::accept(descriptor).unwrap().len(), object.len());
    }
}

#[test]
fn a_message_too_long_for_the_buffer_is_told() {
    let (ours, theirs) = Socket::pair().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    ours.send(b"too long", &[null.as_fd()]).unwrap();
    ours.send(b"next", &[]).unwrap();
    let mut bytes = [0; 4];
    let cut = theirs.receive(&mut bytes).unwrap();
    assert_eq!((cut.len, cut.truncated, cut.descriptors.len()), (4, true, 1));
    assert_eq!((&bytes, received(&theirs).0), (b"too ", b"next".to_vec()), "the rest is gone");
}

#[test]
fn too_many_descriptors_are_told_and_none_is_lost() {
    let (ours, theirs) = Socket::pair().unwrap();
    // Other tests open and close files meanwhile, so many rounds are needed to see a leak.
    let before = crate::proc::open_descriptors();
    for count in [17, 18, 19, 64, 253].repeat(10) {
        send_many(&ours, count);
        let (bytes, received) = received(&theirs);
        assert_eq!(bytes, b"x");
        assert!(
            received.truncated && !received.is_short && received.descriptors.len() < 2 * MAX_DESCRIPTORS,
            "{count} descriptors"
        );
    }
    assert!(crate::proc::open_descriptors() < before + 250);
}

#[test]
fn a_hang_up_comes_after_the_last_message() {
    let (ours, theirs) = Socket::pair().unwrap();
    assert!(!ours.is_hung_up());
    theirs.send(b"last", &[]).unwrap();
    drop(theirs);
    assert!(ours.is_hung_up());
    assert_eq!(received(&ours).0, b"last");
    assert_eq!((received(&ours).1.len, received(&ours).1.len), (0, 0));
    let error = ours.send(b"hello?", &[]).unwrap_err();
    assert_eq!(error.errno, Errno::PIPE);
    assert!(error.to_string().contains("hung up"), "{error}");
}

#[test]
fn a_peer_that_goes_with_messages_unread_is_a_hang_up() {
    let (ours, theirs) = Socket::pair().unwrap();
    ours.send(b"unread", &[]).unwrap();
    drop(theirs);
    assert_eq!(received(&ours).1.len, 0);
}

#[test]
fn hanging_up_ends_it_for_both_sides_though_all_hold_their_ends() {
    let (ours, theirs) = Socket::pair().unwrap();
    ours.send(b"last", &[]).unwrap();
    ours.hang_up();
    assert!(ours.is_hung_up() && theirs.is_hung_up());
    assert_eq!((received(&theirs).0, received(&theirs).1.len), (b"last".to_vec(), 0));
    assert_eq!(received(&ours).1.len, 0);
    assert_eq!(theirs.try_send(b"more", &[]).unwrap_err().errno, Errno::PIPE);
}

#[test]
fn nothing_to_receive_is_told_at_once_or_when_the_time_is_over() {
    let (ours, theirs) = Socket::pair().unwrap();
    let mut bytes = [0; 8];
    assert!(ours.try_receive(&mut bytes).unwrap().is_none());
    assert!(ours.receive_timeout(&mut bytes, Duration::from_millis(1)).unwrap().is_none());
    theirs.send(b"now", &[]).unwrap();
    let got = ours.receive_timeout(&mut bytes, Duration::from_secs(10)).unwrap().expect("it is there");
    assert_eq!(&bytes[..got.len], b"now");
    theirs.send(b"ever", &[]).unwrap();
    assert_eq!(ours.receive_timeout(&mut bytes, Duration::MAX).unwrap().map(|got| got.len), Some(4));
}

#[test]
fn a_peer_that_does_not_receive_stops_no_sender() {
    let (ours, _theirs) = Socket::pair().unwrap();
    let mut sent = 0;
    while ours.try_send(&[7; 1024], &[]).unwrap() {
        sent += 1;
        assert!(sent < 1_000_000, "the send buffer has an end");
    }
    assert!(sent > 0);
}

#[test]
fn a_message_longer_than_the_send_buffer_is_refused_whole() {
    let (ours, theirs) = Socket::pair().unwrap();
    let error = ours.send(&vec![0; 64 << 20], &[]).unwrap_err();
    assert_eq!(error.errno, Errno::MSGSIZE);
    assert!(theirs.try_receive(&mut [0; 8]).unwrap().is_none());
}

#[test]
#[should_panic(expected = "taken for a hang-up")]
fn an_empty_message_is_a_mistake() {
    let _ = Socket::pair().unwrap().0.send(&[], &[]);
}

#[test]
fn connecting_tells_why_it_is_refused() {
    let place = Place::new();
    let refusal = |path: &Path| {
        let error = Socket::connect(path).unwrap_err();
        (error.errno, error.to_string())
    };
    let (errno, sentence) = refusal(&place.path());
    assert!(errno == Errno::NOENT && sentence.contains("nobody listens there"), "{sentence}");
    drop(Listener::bind(&place.path()).unwrap());
    let (errno, sentence) = refusal(&place.path());
    assert!(errno == Errno::CONNREFUSED && sentence.contains("has gone"), "{sentence}");
    std::fs::remove_file(place.path()).unwrap();
    let _stream = std::os::unix::net::UnixListener::bind(place.path()).unwrap();
    let (errno, sentence) = refusal(&place.path());
    assert!(errno == Errno::PROTOTYPE && sentence.contains("no Genie server"), "{sentence}");
    let (errno, sentence) = refusal(Path::new(&"long/".repeat(30)));
    assert!(errno == Errno::NAMETOOLONG && sentence.contains("107 bytes"), "{sentence}");
}

#[test]
fn a_path_in_use_is_not_bound_again() {
    let place = Place::new();
    let _listener = Listener::bind(&place.path()).unwrap();
    assert_eq!(Listener::bind(&place.path()).unwrap_err().errno, Errno::ADDRINUSE);
}

#[test]
fn a_server_that_accepts_nobody_does_not_hang_its_clients() {
    let place = Place::new();
    let listener = Listener::bind(&place.path()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match Socket::connect(&place.path()) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100);
    };
    assert_eq!(error.errno, Errno::AGAIN);
    assert!(error.to_string().contains("does not accept"), "{error}");
}

#[test]
fn the_kernel_says_who_connected() {
    let place = Place::new();
    let listener = Listener::bind(&place.path()).unwrap();
    let path = place.path();
    // SAFETY: the child allocates, which is safe where no other thread holds the allocator's lock for ever: glibc takes care
    // of that across forks.
    let child = unsafe {
        fork_child(move || {
            let Ok(socket) = Socket::connect(&path) else { return 1 };
            let Ok(peer) = socket.peer() else { return 2 };
            let mut bytes = [0; 4];
            let Ok(_) = socket.receive(&mut bytes) else { return 3 };
            u8::from(peer.pid != rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())) * 4
        })
    }
    .unwrap();
    assert!(readable(&listener, Some(Duration::from_secs(10))).unwrap());
    let server = listener.accept().unwrap().expect("the child connects");
    let peer = server.peer().unwrap();
    let expected = Peer {
        pid: child.pid().as_raw_nonzero().get(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    assert_eq!(peer, expected);
    let process = server.peer_process().unwrap();
    assert_eq!((process.pid(), process.has_exited()), (child.pid(), false));
    server.send(b"go", &[]).unwrap();
    assert_eq!(child.wait().unwrap(), ExitOutcome::Code(0));
    assert!(process.has_exited() && server.is_hung_up());
}

#[test]
fn the_peer_of_a_pair_is_its_maker() {
    let (ours, _theirs) = Socket::pair().unwrap();
    assert_eq!(ours.peer().unwrap().pid, own_pid().as_raw_nonzero().get());
    assert_eq!(ours.peer_process().unwrap().pid(), own_pid());
    let by_number = ours.peer_process_by_number(own_pid()).unwrap();
    assert!(!by_number.has_exited());
}

#[test]
fn a_number_is_no_name_for_a_peer_that_has_hung_up() {
    let (ours, theirs) = Socket::pair().unwrap();
    drop(theirs);
    assert_eq!(ours.peer_process_by_number(own_pid()).unwrap_err().errno, Errno::SRCH);
}

#[test]
fn only_sockets_of_this_kind_are_taken_from_descriptors() {
    let (ours, theirs) = Socket::pair().unwrap();
    let again = Socket::try_from_descriptor(theirs.into()).unwrap();
    again.send(b"still", &[]).unwrap();
    assert_eq!(received(&ours).0, b"still");
    let stream = std::os::unix::net::UnixStream::pair().unwrap().0;
    let null = std::fs::File::open("/dev/null").unwrap();
    for hostile in [OwnedFd::from(stream), null.into()] {
        assert_eq!(Socket::try_from_descriptor(hostile).unwrap_err().errno, Errno::INVAL);
    }
}

#[test]
fn a_socket_that_a_holder_made_non_blocking_still_waits() {
    let (ours, theirs) = Socket::pair().unwrap();
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| received(&ours).0);
        theirs.send(b"late", &[]).unwrap();
        assert_eq!(waiting.join().unwrap(), b"late");
    });
}

#[test]
fn sockets_are_closed_by_exec() {
    let place = Place::new();
    let listener = Listener::bind(&place.path()).unwrap();
    let client = Socket::connect(&place.path()).unwrap();
    let server = listener.accept().unwrap().expect("a client waits");
    let (one, other) = Socket::pair().unwrap();
    for socket in [listener.as_fd(), client.as_fd(), server.as_fd(), one.as_fd(), other.as_fd()] {
        let flags = rustix::io::fcntl_getfd(socket).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "descriptor {}", socket.as_raw_fd());
    }
}
