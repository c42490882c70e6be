use std::sync::atomic::Ordering;

use super::*;

fn config() -> Config {
    Config { limit: 4 << 20, ..Config::default() }
}

/// A name that no other test has.
fn name(what: &str) -> String {
    format!("test-{what}-{}", std::process::id())
}

#[test]
fn a_name_stands_for_one_pool_as_long_as_it_has_members() {
    let name = name("one");
    let [first, second] = [(); 2].map(|()| Group::join(&name, config()).unwrap());
    assert!(first.pool().is_same_group(second.pool()));
    // The keeper goes, and the other one takes its place.
    let pool = first.pool().clone();
    drop(first);
    let third = Group::join(&name, config()).unwrap();
    assert!(third.pool().is_same_group(second.pool()));
    drop((second, third));
    let anew = Group::join(&name, config()).unwrap();
    assert!(!anew.pool().is_same_group(&pool), "nobody was left");
}

#[test]
fn many_that_join_and_leave_at_once_are_never_in_two_pools() {
    let name = name("many");
    let anchor = Group::join(&name, config()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let group = Group::join(&name, config()).unwrap();
                    assert!(group.pool().is_same_group(anchor.pool()));
                }
            });
        }
    });
}

#[test]
fn names_and_directories_that_cannot_be_used_are_refused() {
    for name in ["", ".hidden", "a/b", "a b", &"n".repeat(65)] {
        let error = Group::join(name, config()).unwrap_err();
        assert!(matches!(error, Error::Group { .. }) && error.to_string().contains("names are"), "{error}");
    }
}

#[test]
fn a_hostile_member_spoils_its_own_group_alone() {
    let (spoilt, sound) = (name("spoilt"), name("sound"));
    let hostile = Group::join(&spoilt, config()).unwrap();
    let [victim, bystander] = [&spoilt, &sound].map(|name| Group::join(name, config()).unwrap());
    let kept = bystander.pool().allocate(10_000).unwrap();
    let words = hostile.pool().0.words.shared.words();
    for seed in 1..20u64 {
        let noise =
            |at: usize| (at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(seed as u32);
        // Behind the token, which the victim would miss.
        words.iter().enumerate().skip(4).for_each(|(at, word)| word.store(noise(at), Ordering::Relaxed));
        // Each may fail; none may do harm.
        let buffers: Vec<_> = (0..20).filter_map(|turn| victim.pool().allocate(turn * 3000).ok()).collect();
        let places: std::collections::BTreeSet<_> = buffers.iter().map(|fbuf| fbuf.offset()).collect();
        assert_eq!(places.len(), buffers.len(), "no page is given twice in a process");
        let _ = (victim.pool().sweep(), victim.pool().members());
        if let Ok((channel, offer)) = victim.pool().channel() {
            let _ = victim.pool().take(offer).map(|other| other.try_read(10));
            let _ = victim.pool().allocate(100).map(|fbuf| channel.try_write(fbuf));
        }
    }
    assert_eq!(bystander.pool().check().unwrap(), (4 << 20) - 3 * 4096);
    drop(kept);
    assert_eq!(bystander.pool().check().unwrap(), 4 << 20);
}
