use super::*;
use crate::layout::SEGMENT;

const KIB: usize = 1 << 10;

fn small() -> Config {
    Config { limit: SEGMENT, ..Config::default() }
}

fn member_of(pool: &Pool) -> Pool {
    Pool::join(pool.descriptor().unwrap(), small()).unwrap()
}

#[test]
fn buffers_of_all_lengths_are_apart_and_their_pages_come_back() {
    let pool = Pool::new(Config { limit: 4 * SEGMENT, ..Config::default() }).unwrap();
    for _ in 0..2 {
        let lens = [0, 1, 4096, 4097, 64 * KIB, 256 * KIB, 256 * KIB + 1, 5 << 20, 3];
        let mut buffers: Vec<Fbuf> = lens.iter().map(|len| pool.allocate(*len).unwrap()).collect();
        for (index, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!((buffer.len(), buffer.headroom()), (lens[index], 0));
            buffer.fill(index as u8);
        }
        for (index, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == index as u8), "{} bytes", lens[index]);
        }
        let pages: usize = lens.iter().map(|len| len.div_ceil(PAGE).max(1)).sum();
        assert_eq!((pool.held(), pool.limit() - pool.free()), (pages * PAGE, pages * PAGE));
        drop(buffers);
        assert_eq!((pool.held(), pool.free()), (0, pool.limit()));
    }
}

#[test]
fn a_pool_that_is_used_up_says_so_and_serves_again() {
    let pool = Pool::new(small()).unwrap();
    let buffers: Vec<Fbuf> = std::iter::from_fn(|| pool.allocate(64 * KIB).ok()).collect();
    assert_eq!((buffers.len(), pool.free()), (64, 0));
    let error = pool.allocate(1).unwrap_err();
    assert!(
        error.to_string().contains("a higher limit") && error.errno() == genie_sys::Errno::NOMEM,
        "{error}"
    );
    drop(buffers);
    assert_eq!(pool.allocate(SEGMENT).unwrap().len(), SEGMENT);
    for len in [SEGMENT + 1, usize::MAX / 2, usize::MAX] {
        let error = pool.allocate(len).unwrap_err();
        assert!(matches!(error, Error::Exhausted { asked, .. } if asked >= len), "{error}");
    }
}

#[test]
fn a_quota_bounds_one_member_alone() {
    let config = Config { quota: 8 * KIB, ..small() };
    let pool = Pool::new(config).unwrap();
    let held = pool.allocate(8 * KIB).unwrap();
    assert!(matches!(pool.allocate(1), Err(Error::Quota { held: 8192, .. })));
    assert!(member_of(&pool).allocate(SEGMENT / 2).is_ok());
    drop(held);
    assert!(pool.allocate(1).is_ok());
}

#[test]
fn members_share_one_bit_string_and_leave_nothing_behind() {
    let one = Pool::new(small()).unwrap();
    let other = member_of(&one);
    assert!(one.is_same_group(&other) && !one.is_same_group(&Pool::new(small()).unwrap()));
    assert_eq!(one.members().len(), 2);
    let (a, b) = (one.allocate(SEGMENT / 2).unwrap(), other.allocate(SEGMENT / 2).unwrap());
    assert_ne!(a.offset(), b.offset());
    assert!(one.allocate(1).is_err() && other.allocate(1).is_err());
    drop((b, other));
    assert_eq!(one.members().len(), 1);
    assert!(one.allocate(SEGMENT / 2).is_ok());
}

#[test]
fn what_is_no_pool_is_not_joined_and_places_are_bounded() {
    let object = Object::create(GranuleKind::Base, 8 * PAGE).unwrap();
    assert!(matches!(Pool::join(object.duplicate().unwrap(), small()), Err(Error::NoPool { len: 32768 })));
    let layout = Layout::for_limit(SEGMENT).unwrap();
    let object = Object::create(GranuleKind::Base, layout.object_bytes()).unwrap();
    assert!(matches!(Pool::join(object.duplicate().unwrap(), small()), Err(Error::NoPool { .. })));
    assert!(matches!(Pool::new(Config { limit: 0, ..small() }), Err(Error::PoolSize { .. })));
}

#[test]
fn memory_beyond_what_is_kept_goes_back_to_the_kernel() {
    let keeps = |keep| {
        let pool = Pool::new(Config { keep, ..small() }).unwrap();
        pool.allocate(SEGMENT).unwrap().fill(1);
        let shared = &pool.0.words.shared;
        let start = pool.0.words.layout.control_bytes();
        let mut at = start;
        let mut bytes = 0;
        while let Some(found) = shared.object().touched(at, start + SEGMENT) {
            (at, bytes) = (found.end, bytes + found.len());
        }
        (bytes, pool.0.trim(), shared.object().touched(start, start + SEGMENT))
    };
    assert_eq!(keeps(SEGMENT), (SEGMENT, SEGMENT, None));
    assert_eq!(keeps(SEGMENT / 4), (SEGMENT / 4, SEGMENT, None));
}

#[test]
fn a_run_whose_word_is_locked_is_freed_later() {
    let pool = Pool::new(small()).unwrap();
    let other = member_of(&pool);
    let (buffer, first) = (pool.allocate(1).unwrap(), pool.allocate(1).unwrap());
    let locked = other.0.words.lock(0, 1).unwrap();
    drop(buffer);
    assert_eq!((pool.0.deferrals.load(Ordering::Relaxed), pool.free()), (1, SEGMENT - 2 * PAGE));
    let elsewhere = pool.allocate(1).unwrap();
    assert!(elsewhere.offset() >= Some(64 * PAGE), "a locked word is passed over");
    drop(locked);
    drop(pool.allocate(1).unwrap());
    assert_eq!((pool.0.deferrals.load(Ordering::Relaxed), pool.free()), (0, SEGMENT - 2 * PAGE));
    drop(first);
}

#[test]
fn pages_that_the_bit_string_hands_out_twice_are_handed_out_once_in_a_process() {
    let pool = Pool::new(small()).unwrap();
    let buffer = pool.allocate(1).unwrap();
    // A hostile member stores what it likes.
    let words = &pool.0.words;
    for word in 0..words.layout.words() {
        words.at(words.layout.word(word) + 1).store(!0, Ordering::Relaxed);
    }
    let next = pool.allocate(1).unwrap();
    assert_ne!(buffer.offset(), next.offset());
}

#[test]
fn threads_allocate_and_free_at_once() {
    let pool = Pool::new(small()).unwrap();
    let other = member_of(&pool);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let pool = if thread % 2 == 0 { &pool } else { &other };
            scope.spawn(move || {
                for turn in 0..3_000 {
                    let Ok(mut buffer) = pool.allocate((turn * 7919 + thread) % (300 * KIB)) else {
                        continue;
                    };
                    let mark = (turn * 4 + thread) as u8;
                    let len = buffer.len();
                    buffer.iter_mut().step_by(PAGE).for_each(|byte| *byte = mark);
                    assert!(buffer.iter().step_by(PAGE).all(|byte| *byte == mark), "{len} bytes");
                }
            });
        }
    });
    [&pool, &other].iter().for_each(|pool| drop(pool.allocate(1).unwrap()));
    assert_eq!(pool.free(), SEGMENT);
}
