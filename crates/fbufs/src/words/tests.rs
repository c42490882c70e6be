use genie_sys::{GranuleKind, Object};

use super::*;
use crate::layout::SEGMENT;

/// Two members' views of one pool.
fn words() -> [Words; 2] {
    let layout = Layout::for_limit(2 * SEGMENT).unwrap();
    let object = Object::create(GranuleKind::Base, layout.object_bytes()).unwrap();
    let shared = Arc::new(Shared::map(object, layout.control_bytes(), false).unwrap());
    layout.begin(shared.words(), [1, 2]);
    [0, 1].map(|index| Words { shared: Arc::clone(&shared), layout, me: Holder::member(index) })
}

/// Checks that each page is free or in one run; returns the free pages of the word.
fn check(words: &Words, word: usize) -> u64 {
    words.check(word).unwrap();
    words.bits(word)
}

#[test]
fn pages_are_taken_once_and_are_free_again() {
    let [one, other] = words();
    let run = one.lock(3, 1).unwrap().take(60).unwrap();
    assert_eq!(other.lock(3, 1).unwrap().take(5), None);
    let rest = other.lock(3, 1).unwrap().take(4).unwrap();
    assert_eq!((run.mask() | rest.mask(), check(&one, 3)), (!0, 0));
    assert_eq!(other.lock(3, 1).unwrap().give(run, other.me), None, "it is not the other's");
    assert_eq!(one.lock(3, 1).unwrap().give(run, one.me), Some(run.mask()));
    assert_eq!(one.lock(3, 1).unwrap().give(run, one.me), None, "it is free");
    assert_eq!(check(&one, 3), run.mask());
}

#[test]
fn a_run_that_is_passed_on_is_the_next_holders() {
    let [one, other] = words();
    let run = one.lock(0, 1).unwrap().take(2).unwrap();
    assert!(!one.pass(run, other.me, one.me));
    assert!(one.pass(run, one.me, other.me) && !one.pass(run, one.me, other.me));
    assert_eq!(one.lock(0, 1).unwrap().give_all_of(|holder| holder == one.me), 0);
    assert_eq!(one.lock(0, 1).unwrap().give_all_of(|holder| holder == other.me), 2);
    assert_eq!(check(&one, 0), !0);
}

#[test]
fn a_locked_word_is_passed_over_and_no_other_word_is_locked() {
    let [one, other] = words();
    let locked = one.lock(0, 1).unwrap();
    assert!(other.lock(0, 5).is_none() && one.lock(0, 5).is_none(), "not even by the same member");
    assert_eq!((other.locked_by(0), other.locked_by(1)), (Some(one.me), None));
    assert!(other.lock(1, 1).is_some());
    drop(locked);
    assert!(other.lock(0, 1).is_some());
}

/// What a member has stored when it dies after `steps` stores of taking or freeing a run.
fn die(words: &Words, run: Run, is_taking: bool, steps: usize) {
    let place = words.layout.word(run.word);
    let bits = words.at(place + BITS).load(Ordering::Relaxed);
    let head = Head { holder: words.me, count: run.count }.word();
    let (head, bits) = if is_taking { (head, bits & !run.mask()) } else { (0, bits | run.mask()) };
    let stores = [
        (place, words.me.word()),
        (place + INTENT, run.mask()),
        (words.layout.head(run.page()), head),
        (place + BITS, bits),
        (place + INTENT, 0),
    ];
    stores.iter().take(steps).for_each(|(at, value)| words.at(*at).store(*value, Ordering::Relaxed));
}

#[test]
fn wherever_a_member_dies_the_word_is_repaired_and_nothing_is_lost() {
    for is_taking in [true, false] {
        for steps in 1..=5 {
            let [one, dead] = words();
            let kept = one.lock(7, 1).unwrap().take(3).unwrap();
            let run = Run { word: 7, first: 10, count: 20 };
            if !is_taking {
                dead.lock(7, 1).unwrap().take_at(10, 20).unwrap();
            }
            die(&dead, run, is_taking, steps);
            one.repair(7, one.me);
            assert!(one.lock(7, 3).is_none(), "only the holder's death takes a lock away");
            one.repair(7, dead.me);
            // What is whole is the dead one's or free; then all that was the dead one's is freed.
            check(&one, 7);
            one.lock(7, 1).unwrap().give_all_of(|holder| holder == dead.me);
            assert_eq!(check(&one, 7), !kept.mask(), "taking: {is_taking}, {steps} stores");
        }
    }
}

#[test]
fn segments_come_into_use_up_to_the_limit() {
    let [one, other] = words();
    assert_eq!(one.in_use(), 0);
    assert!(one.use_more(1));
    assert!(!other.use_more(WORDS_PER_SEGMENT), "they are in use");
    assert!(other.use_more(WORDS_PER_SEGMENT + 1));
    assert_eq!(one.in_use(), 2 * WORDS_PER_SEGMENT);
    assert!(!one.use_more(2 * WORDS_PER_SEGMENT + 1), "that is all");
    segments_in_use(one.shared.words()).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(one.in_use(), 2 * WORDS_PER_SEGMENT, "whatever another member says");
}
