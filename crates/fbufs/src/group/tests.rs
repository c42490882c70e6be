use std::sync::atomic::Ordering;

use super::*;

fn config() -> Config {
    Config { limit: 4 << 20, ..Config::default() }
}

/// A directory for names.
fn directory() -> tempfile::TempDir {
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(rights).tempdir().unwrap()
}

#[test]
fn a_name_stands_for_one_pool_as_long_as_it_has_members() {
    let directory = directory();
    let join = || Group::join_in(directory.path(), "one", config()).unwrap();
    let [first, second] = [(); 2].map(|()| join());
    assert!(first.pool().is_same_group(second.pool()));
    // The keeper goes, and the other one takes its place.
    let pool = first.pool().clone();
    drop(first);
    let third = join();
    assert!(third.pool().is_same_group(second.pool()));
    drop((second, third));
    let anew = join();
    assert!(!anew.pool().is_same_group(&pool), "nobody was left");
}

#[test]
fn many_that_join_and_leave_at_once_are_never_in_two_pools() {
    let directory = directory();
    let living: genie_sys::lock::Mutex<Vec<Pool>> = genie_sys::lock::Mutex::default();
    let mut found = [0; 4];
    std::thread::scope(|scope| {
        for found in &mut found {
            scope.spawn(|| {
                for _ in 0..50 {
                    let group = Group::join_in(directory.path(), "many", config()).unwrap();
                    let mut all = living.lock();
                    assert!(all.iter().all(|pool| pool.is_same_group(group.pool())));
                    *found += usize::from(all.is_empty());
                    all.push(group.pool().clone());
                    drop(all);
                    std::thread::yield_now();
                    // Before the name is given up.
                    living.lock().retain(|pool| !pool.is_handle_of(group.pool()));
                }
            });
        }
    });
    println!("members that found no other one: {found:?}");
}

#[test]
fn names_and_directories_that_cannot_be_used_are_refused() {
    let directory = directory();
    let refused = |name: &str, path: &Path, why: &str| {
        let error = Group::join_in(path, name, config()).unwrap_err();
        assert!(matches!(error, Error::Group { .. }) && error.to_string().contains(why), "{error}");
    };
    for name in ["", ".hidden", "a/b", "a b", &"n".repeat(65)] {
        refused(name, directory.path(), "names are");
    }
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    refused("name", &link, "not a directory of this user's alone");
    let open = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o770)).unwrap();
    refused("name", &open, "chmod it to 700");
    refused("name", Path::new("/proc/nothing"), "cannot be used");
    // The file of a name that another user could have made is refused by the kernel.
    std::fs::create_dir(directory.path().join(".taken.lock")).unwrap();
    refused("taken", directory.path(), "lock file cannot be opened");
    std::fs::write(directory.path().join("file"), "somebody's").unwrap();
    refused("file", directory.path(), "is no socket");
    assert_eq!(std::fs::read(directory.path().join("file")).unwrap(), b"somebody's");
}

#[test]
fn groups_of_all_names_are_apart() {
    let directory = directory();
    let join = |name| Group::join_in(directory.path(), name, config()).unwrap();
    let names = ["a", "a.lock", "a.lock.lock", "lock"];
    let groups = names.map(join);
    for (name, group) in names.iter().zip(&groups) {
        assert!(join(name).pool().is_same_group(group.pool()), "{name}");
    }
    drop(groups);
    let _again = names.map(join);
}

#[test]
fn a_hostile_member_spoils_its_own_group_alone() {
    let directory = directory();
    let join = |name| Group::join_in(directory.path(), name, config()).unwrap();
    let [hostile, victim, bystander] = ["spoilt", "spoilt", "sound"].map(join);
    let kept = bystander.pool().allocate(10_000).unwrap();
    let words = hostile.pool().0.words.shared.words();
    for seed in 1..6u64 {
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
