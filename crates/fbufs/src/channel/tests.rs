use genie_sys::Errno;
use genie_sys::shared::PAGE;

use super::*;
use crate::Config;
use crate::layout::CHANNELS;

/// Two members of one group, with a channel between them.
fn joined() -> (Channel, Channel) {
    let config = Config { limit: 8 << 20, ..Config::default() };
    let one = Pool::new(config).unwrap();
    let other = Pool::join(one.descriptor().unwrap(), config).unwrap();
    let (channel, offer) = one.channel().unwrap();
    (channel, other.take(offer).unwrap())
}

fn filled(pool: &Pool, len: usize, byte: u8) -> Fbuf {
    let mut fbuf = pool.allocate(len).unwrap();
    fbuf.fill(byte);
    fbuf
}

/// How many channels a pool has places for; takes them. As many channels with their descriptors may be more than a process can have:
/// once, that limit was taken for the end of the table.
fn free_places(pool: &Pool) -> usize {
    let take = || match channels::make(&pool.0.words) {
        Ok(place) => Some(place),
        Err(Error::Full { what: "channels", most: CHANNELS }) => None,
        Err(error) => panic!("{error}"),
    };
    std::iter::from_fn(take).count()
}

#[test]
fn a_buffer_changes_hands_and_stays_where_it_is() {
    let (one, other) = joined();
    for len in [1, PAGE, 70_000, 1 << 20] {
        let fbuf = filled(one.pool(), len, 7);
        let offset = fbuf.offset();
        assert_eq!(one.write(fbuf).unwrap(), len);
        assert_eq!((one.pool().held(), other.pool().held()), (0, 0));
        let read = other.read(usize::MAX).unwrap().unwrap();
        assert_eq!((read.offset(), read.len()), (offset, len));
        assert!(read.iter().all(|byte| *byte == 7));
        other.write(read).unwrap();
        assert_eq!(one.read(usize::MAX).unwrap().unwrap().offset(), offset);
    }
    assert_eq!(one.pool().free(), one.pool().limit());
}

#[test]
fn what_is_longer_than_asked_for_is_read_in_parts() {
    let (one, other) = joined();
    let mut fbuf = one.pool().allocate(10_000).unwrap();
    fbuf.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 100) as u8);
    let expected = fbuf.to_vec();
    one.write(fbuf).unwrap();
    one.write(filled(one.pool(), 5, 200)).unwrap();
    let mut found = Vec::new();
    for len in [1, 4096, 3_000, 5_000] {
        let part = other.read(len).unwrap().unwrap();
        assert!(part.len() <= len);
        found.extend_from_slice(&part);
    }
    assert_eq!(found, expected);
    assert_eq!(other.read(100).unwrap().unwrap().to_vec(), [200; 5]);
}

#[test]
fn an_end_that_closes_frees_what_went_there_and_leaves_what_came_from_there() {
    let (one, other) = joined();
    let pool = one.pool().clone();
    other.write(filled(other.pool(), 8000, 3)).unwrap();
    one.write(filled(&pool, 100_000, 1)).unwrap();
    drop(other);
    assert!(one.is_hung_up());
    let unwritten = one.write(filled(&pool, 9, 9)).unwrap_err();
    assert!(matches!(unwritten.error, Error::Closed));
    assert_eq!((unwritten.fbuf.to_vec(), unwritten.written), (vec![9; 9], 0));
    drop(unwritten);
    assert_eq!(one.read(usize::MAX).unwrap().unwrap().to_vec(), [3; 8000]);
    assert!(one.read(usize::MAX).unwrap().is_none());
    assert_eq!(pool.free(), pool.limit());
    drop(one);
    assert_eq!(free_places(&pool), CHANNELS, "its place in the table is free again");
}

#[test]
fn calls_that_would_wait_say_so() {
    let (one, other) = joined();
    assert!(matches!(other.try_read(1), Err(Error::WouldBlock)));
    let mut written = 0;
    let unwritten = loop {
        match one.try_write(filled(one.pool(), 1, 1)) {
            Ok(_) => written += 1,
            Err(unwritten) => break unwritten,
        }
    };
    assert!(matches!(unwritten.error, Error::WouldBlock) && written == ON_THEIR_WAY);
    assert_eq!(other.try_read(1).unwrap().unwrap().to_vec(), [1]);
    assert!(one.try_write(unwritten.fbuf).is_ok());
    assert_eq!(one.write(one.pool().allocate(0).unwrap()).unwrap(), 0, "nothing is nothing to be read");
}

/// Once, a writer that slept was woken for each message that was read. On the reader's CPU it took that each time, to write one
/// more: a buffer then cost a switch of processes.
#[test]
fn a_writer_that_sleeps_is_woken_for_many_messages_at_once() {
    let (one, other) = joined();
    (0..ON_THEIR_WAY).for_each(|_| assert_eq!(one.write(filled(one.pool(), 1, 1)).unwrap(), 1));
    assert!(one.try_write(filled(one.pool(), 1, 1)).is_err(), "now it wants room");
    for _ in 0..PUBLISHED {
        assert!(!poll(&one.room, PollFlags::IN, false).unwrap());
        other.read(1).unwrap();
    }
    assert!(poll(&one.room, PollFlags::IN, false).unwrap());
}

#[test]
fn ends_know_whether_they_wait_on_one_cpu() {
    let (one, other) = joined();
    let cpus = genie_sys::machine::allowed_cpus().unwrap();
    let on = |cpu: usize, end: &Channel| {
        let _pinned = genie_sys::machine::pin_thread(cpu).unwrap();
        end.shares_cpu()
    };
    assert!(!on(cpus[0], &one), "the other end has not waited yet");
    assert!(on(cpus[0], &other) && on(cpus[0], &one));
    if let [first, second, ..] = cpus[..] {
        assert!(!on(second, &one) && !on(first, &other) && on(second, &other));
    }
}

#[test]
fn thousands_of_buffers_arrive_in_order_while_both_sides_sleep_now_and_then() {
    let (one, other) = joined();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..5_000u32 {
                let mut fbuf = one.pool().allocate(4 + (turn as usize * 37) % 9_000).unwrap();
                fbuf[..4].copy_from_slice(&turn.to_le_bytes());
                one.write(fbuf).unwrap();
                if turn % 1_000 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for turn in 0..5_000u32 {
            let fbuf = other.read(usize::MAX).unwrap().unwrap();
            assert_eq!((fbuf.len(), &fbuf[..4]), (4 + (turn as usize * 37) % 9_000, &turn.to_le_bytes()[..]));
            if turn % 1_700 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    // What could not be freed at once, since the other end had its word locked, is freed with the next allocation.
    for end in [&one, &other] {
        drop(end.pool().allocate(1).unwrap());
    }
    assert_eq!(one.pool().free(), one.pool().limit());
}

#[test]
fn places_that_are_not_on_their_way_are_refused() {
    let places: [[u64; 4]; 6] = [
        [0, 1, 0, 1],
        [5, 2, 0, 8192],
        [1 << 40, 1, 0, 1],
        [0, u64::MAX, 0, 1],
        [0, 1, 4096, 1],
        [0, 1, 0, 0],
    ];
    for place in places {
        let (one, other) = joined();
        let kept = filled(one.pool(), 4096, 1);
        assert_eq!(kept.offset(), Some(0));
        let bytes: Vec<u8> = place.iter().flat_map(|number| number.to_le_bytes()).collect();
        one.sender.lock().producer.push(Place::KIND, &bytes).unwrap();
        assert!(matches!(other.read(1), Err(Error::Spoilt { .. })), "{place:?}");
        assert!(matches!(other.read(1), Err(Error::Spoilt { .. })), "it stays so");
        assert_eq!(kept.to_vec(), [1; 4096]);
    }
}

#[test]
fn an_offer_goes_to_another_process_once() {
    let config = Config { limit: 4 << 20, ..Config::default() };
    let one = Pool::new(config).unwrap();
    let other = Pool::join(one.descriptor().unwrap(), config).unwrap();
    let (here, there) = genie_sys::socket::Socket::pair().unwrap();
    let (channel, offer) = one.channel().unwrap();
    offer.send(&here).unwrap();
    let theirs = other.take(Offer::receive(&there).unwrap()).unwrap();
    channel.write(filled(&one, 10, 4)).unwrap();
    assert_eq!(theirs.read(100).unwrap().unwrap().to_vec(), [4; 10]);
    // One of another group is refused.
    let stranger = Pool::new(config).unwrap();
    let (_kept, offer) = stranger.channel().unwrap();
    assert!(matches!(one.take(offer), Err(Error::OtherGroup)));
}

/// Once, a server that wrote a greeting and closed at once ended the channel before its client had it.
#[test]
fn an_end_that_is_on_its_way_survives_its_senders_close_and_death() {
    let config = Config { limit: 4 << 20, ..Config::default() };
    let other = Pool::new(config).unwrap();
    let one = Pool::join(other.descriptor().unwrap(), config).unwrap();
    let (here, there) = genie_sys::socket::Socket::pair().unwrap();
    let greet = |pool: Pool| {
        let (channel, offer) = pool.channel().unwrap();
        offer.send(&here).unwrap();
        channel.write(filled(&pool, 10, 4)).unwrap();
    };
    let is_greeted = || {
        let late = other.take(Offer::receive(&there).unwrap()).unwrap();
        assert_eq!(late.read(100).unwrap().unwrap().to_vec(), [4; 10]);
        assert!(late.read(100).unwrap().is_none() && late.is_hung_up());
    };
    greet(one.clone());
    other.sweep().unwrap();
    is_greeted();
    // The last handle of the membership.
    greet(one);
    other.sweep().unwrap();
    is_greeted();
    assert_eq!(other.free(), other.limit());
    assert_eq!(free_places(&other), CHANNELS, "their places are free again");
}

#[test]
fn an_end_that_nobody_can_take_any_more_leaves_nothing() {
    let config = Config { limit: 4 << 20, ..Config::default() };
    let pool = Pool::new(config).unwrap();
    for _ in 0..CHANNELS + 5 {
        let (here, there) = genie_sys::socket::Socket::pair().unwrap();
        let (channel, offer) = pool.channel().unwrap();
        offer.send(&here).unwrap();
        channel.write(filled(&pool, 5000, 4)).unwrap();
        // Lost with the socket, or by whoever has received it.
        drop((channel, Offer::receive(&there).unwrap(), there));
    }
    pool.sweep().unwrap();
    assert_eq!(pool.free(), pool.limit());
}

/// Once, such a write said that the channel was spoilt, and its end read nothing more.
#[test]
fn a_write_that_meets_a_close_comes_back_or_was_made() {
    for len in [100, 300_000] {
        let (one, other) = joined();
        let words = &other.pool().0.words;
        other.write(filled(other.pool(), 10, 3)).unwrap();
        let fbuf = filled(one.pool(), len, 1);
        let (place, direction) = (Place::of(&fbuf), Holder::direction(one.index, 1 - one.end));
        // A write that has put the buffer on its way, and has not looked yet, when the other end is closed.
        fbuf.give_up();
        assert!(place.runs().all(|run| one.pool().0.words.pass(run, one.pool().0.words.me, direction)));
        assert!(channels::close(words, other.index, other.end, words.me));
        assert_eq!(one.taken_back(place).unwrap(), len);
        assert_eq!(one.pool().free(), one.pool().limit() - PAGE);
        let unwritten = one.write(filled(one.pool(), len, 2)).unwrap_err();
        assert!(matches!(unwritten.error, Error::Closed) && *unwritten.fbuf == vec![2; len]);
        assert_eq!(one.read(usize::MAX).unwrap().unwrap().to_vec(), [3; 10]);
    }
}

#[test]
fn a_client_waits_for_a_listener_and_until_it_accepts_but_no_longer_than_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let (path, pool) = (directory.path().join("late"), Pool::new(Config::default()).unwrap());
    let errno = |timeout| pool.connect_timeout(&path, Duration::from_millis(timeout)).unwrap_err().errno();
    assert_eq!((errno(0), errno(30)), (Errno::NOENT, Errno::NOENT));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| pool.connect_timeout(&path, Duration::MAX).unwrap());
        std::thread::sleep(Duration::from_millis(30));
        // The path of a process that is gone is waited at, too.
        drop(genie_sys::socket::Listener::bind(&path).unwrap());
        let claim = genie_channel::directory::Claim::at(&path).unwrap();
        genie_sys::poll::readable(claim.listener(), None).unwrap();
        let channel = pool.accept(claim.listener()).unwrap().unwrap();
        let client = client.join().unwrap();
        client.write(filled(&pool, 10, 1)).unwrap();
        assert_eq!(channel.read(10).unwrap().unwrap().to_vec(), [1; 10]);
        assert_eq!(errno(30), Errno::TIMEDOUT, "it listens, and does not accept");
    });
    assert_eq!(errno(0), Errno::NOENT, "a claim that is dropped removes its path");
}

#[test]
fn clients_that_have_gone_are_passed_over() {
    let path = std::env::temp_dir().join(format!("fbufs-gone-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = genie_sys::socket::Listener::bind(&path).unwrap();
    let pool = Pool::new(Config { limit: 4 << 20, ..Config::default() }).unwrap();
    (0..3).for_each(|_| drop(genie_sys::socket::Socket::connect(&path).unwrap()));
    assert!(pool.accept(&listener).unwrap().is_none());
    drop(genie_sys::socket::Socket::connect(&path).unwrap());
    let client = genie_sys::socket::Socket::connect(&path).unwrap();
    let channel = pool.accept(&listener).unwrap().unwrap();
    let theirs = pool.take(Offer::receive(&client).unwrap()).unwrap();
    theirs.write(filled(&pool, 1, 1)).unwrap();
    assert!(channel.read(1).unwrap().is_some());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn descriptors_are_readable_when_what_failed_for_now_can_be_done() {
    let (one, other) = joined();
    let is_readable = |descriptor: BorrowedFd<'_>| poll(descriptor, PollFlags::IN, false).unwrap();
    for turn in 0..3 {
        assert!(matches!(other.try_read(10), Err(Error::WouldBlock)));
        assert!(!is_readable(other.as_fd()), "nothing has come");
        one.write(filled(one.pool(), 10, turn)).unwrap();
        one.write(filled(one.pool(), 10, turn)).unwrap();
        assert!(is_readable(other.as_fd()));
        assert_eq!(other.try_read(10).unwrap().unwrap().len(), 10);
        assert_eq!(other.try_read(10).unwrap().unwrap().len(), 10);
    }
    assert!(matches!(other.try_read(10), Err(Error::WouldBlock)));
    for _ in 0..3 {
        while one.try_write(filled(one.pool(), 1, 1)).is_ok() {}
        assert!(!is_readable(one.room()), "it is full");
        (0..PUBLISHED).for_each(|_| assert!(other.try_read(10).unwrap().is_some()));
        assert!(is_readable(one.room()));
    }
    while other.try_read(10).is_ok() {}
    drop(one);
    assert!(is_readable(other.as_fd()) && is_readable(other.room()), "closed");
    assert!(other.try_read(10).unwrap().is_none());
}

/// Once, with other work on both CPUs, a round trip took milliseconds: each wait gave the other work its whole slice of time.
#[test]
fn an_end_whose_cpu_is_wanted_by_others_stops_offering_it() {
    use std::time::Instant;

    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

    let (one, other) = joined();
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    let (is_over, end) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(60));
    let goes_on = || !is_over.load(Ordering::Relaxed);
    let is_without_offers = std::thread::scope(|scope| {
        scope.spawn(|| {
            sched_setaffinity(None, &here).unwrap();
            while goes_on() {
                std::hint::spin_loop();
            }
        });
        scope.spawn(|| {
            while goes_on() && one.write(filled(one.pool(), 1, 1)).is_ok() {
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let read = || {
            let _ = sched_setaffinity(None, &here);
            let is_read = matches!(other.read(1), Ok(Some(_)));
            (is_read, other.receiver.lock().without_offers > 0)
        };
        let found = std::iter::repeat_with(read)
            .take_while(|(is_read, _)| *is_read && Instant::now() < end)
            .any(|(_, is_without_offers)| is_without_offers);
        is_over.store(true, Ordering::Relaxed);
        found
    });
    assert!(is_without_offers);
}

/// A closer that was still freeing what was on its way freed what was on its way through the next channel with that place.
#[test]
fn a_place_is_used_again_when_both_ends_are_closed_and_freed() {
    let pool = Pool::new(Config { limit: 4 << 20, ..Config::default() }).unwrap();
    let words = &pool.0.words;
    let channel = channels::make(words).unwrap();
    assert_eq!(channels::make(words).unwrap(), channel + 1);
    // Somebody has the lock of a word in which there are pages: then the end stays its member's, and takes nothing more.
    let _held = filled(&pool, 1, 1);
    let locked = words.lock(0, 1).unwrap();
    assert!(!channels::close(words, channel, 1, words.me) && channels::is_closed(words, channel, 1));
    drop(locked);
    assert!(channels::close(words, channel, 0, words.me));
    assert_eq!(channels::make(words).unwrap(), channel + 2);
    assert!(channels::close(words, channel, 1, words.me));
    assert_eq!(channels::make(words).unwrap(), channel);
}

/// An end that could not be closed just then stayed open for as long as its process lived.
#[test]
fn an_end_that_cannot_be_closed_now_is_closed_later() {
    let pool = Pool::new(Config { limit: 4 << 20, ..Config::default() }).unwrap();
    let (one, offer) = pool.channel().unwrap();
    let other = pool.take(offer).unwrap();
    one.write(filled(&pool, 5000, 1)).unwrap();
    let (index, locked) = (one.index, pool.0.words.lock(0, 1).unwrap());
    drop((one, other));
    drop(locked);
    assert_ne!(channels::make(&pool.0.words).unwrap(), index);
    pool.sweep().unwrap();
    assert_eq!(pool.free(), pool.limit());
    assert_eq!(channels::make(&pool.0.words).unwrap(), index);
}
