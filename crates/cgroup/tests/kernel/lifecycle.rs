use std::fs;

use cgroup::{Error, Group, GroupPath, Limits, Nesting, RemovalStatus};
use oci::Resources;

use crate::fixture::{Fixture, pause, run_in};

pub(crate) fn occupied_group_error_names_the_process() {
    let fixture = Fixture::new("occupied");
    let group = fixture.group(&Resources::default());
    let process = run_in(&group.joiner().unwrap(), pause);
    let error = Group::create(&fixture.trees, &fixture.path, &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
    assert!(error.to_string().contains(&format!("process {};", process.pid)), "{error}");
    assert_eq!(group.pids().unwrap(), [process.pid], "the group was changed");

    let parent = fixture.path.parent().unwrap();
    let error = Group::create(&fixture.trees, &parent, &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
}

pub(crate) fn unused_group_is_created_again() {
    let fixture = Fixture::new("again");
    drop(fixture.group(&Resources { pids: Some(oci::Pids { limit: Some(5) }), ..Resources::default() }));
    assert_eq!(fixture.read("pids", "pids.max"), "5");
    drop(fixture.group(&Resources::default()));
    assert_eq!(fixture.read("pids", "pids.max"), "max", "the limit of the previous group is still in effect");
}

pub(crate) fn remove_nested() {
    let fixture = Fixture::new("nested");
    let group = fixture.group(&Resources::default());
    let v2 = fixture.trees.layout() == cgroup::Layout::V2;
    let (one, other) = if v2 { ("", "") } else { ("unified", "memory") };
    let mut path = fixture.file(one, "a");
    for _ in 0..20 {
        fs::create_dir(&path).unwrap();
        path.push("b");
    }
    for name in ["x", "y", "z"] {
        fs::create_dir_all(fixture.file(other, name).join("deep")).unwrap();
    }
    group.remove().unwrap();
    assert!(!fixture.trees.contains(&fixture.path));
    Group::open(&fixture.trees, &fixture.path).unwrap_err();
}

/// Groups as a container could create them: each below the previous one, and each with a sibling.
pub(crate) fn removal_is_one_pass_in_bounded_steps() {
    const DEEP: u64 = 750;
    const STEP: u64 = 20;
    let fixture = Fixture::new("pass");
    let group = fixture.group(&Resources::default());
    let v2 = fixture.trees.layout() == cgroup::Layout::V2;
    let mut at = std::fs::File::open(fixture.file(if v2 { "" } else { "unified" }, "")).unwrap();
    for _ in 0..DEEP {
        for name in ["a", "b"] {
            rustix::fs::mkdirat(&at, name, rustix::fs::Mode::RWXU).unwrap();
        }
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "b", flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    drop(at);
    let mut removal = group.removal().unwrap();
    let (mut steps, mut before) = (0, 0);
    loop {
        let step = removal.step(STEP as usize).unwrap();
        assert!(removal.removed() - before <= STEP, "a step removed too many groups");
        before = removal.removed();
        steps += 1;
        match step {
            RemovalStatus::Done => break,
            RemovalStatus::Pending => {}
            RemovalStatus::Busy => panic!("the group contains no process"),
        }
    }
    // Each group is listed, entered, left and removed a fixed number of times, however many groups there are.
    assert!(steps * STEP < 12 * DEEP, "{steps} steps for {DEEP} levels");
    assert!(!fixture.trees.contains(&fixture.path));
}

/// Deep and wide groups, and names with equal hashes, among which a directory position is ambiguous: kernfs orders
/// names by `name_hash`, in which "b`" and "ak" have the same value.
pub(crate) fn thaw_descendants_is_one_pass_in_bounded_steps() {
    const DEEP: usize = 300;
    const WIDE: usize = 300;
    const STEP: usize = 20;
    let fixture = Fixture::new("thaw-pass");
    let group = fixture.group(&Resources::default());
    let top = std::path::PathBuf::from(format!("/sys/fs/cgroup/freezer{}", fixture.path));
    let mut groups = Vec::new();
    let mut at = top.clone();
    for _ in 0..DEEP {
        groups.extend([at.join("a"), at.join("b")]);
        at.push("b");
    }
    groups.extend((0..WIDE).flat_map(|n| [top.join(format!("w{n}")), top.join(format!("w{n}/x"))]));
    for n in 0..64 {
        let name: String = (0..6).map(|bit| if n >> bit & 1 == 1 { "b`" } else { "ak" }).collect();
        groups.extend([top.join(&name), top.join(&name).join("x")]);
    }
    for path in &groups {
        fs::create_dir(path).unwrap();
        fs::write(path.join("freezer.state"), "FROZEN").unwrap();
    }
    let mut pass = group.thaw_descendants().unwrap();
    let mut steps = 1;
    while !pass.step(STEP).unwrap() {
        steps += 1;
    }
    assert!(steps * STEP < 8 * groups.len(), "{steps} steps for {} groups", groups.len());
    for path in &groups {
        let frozen = fs::read_to_string(path.join("freezer.self_freezing")).unwrap();
        assert_eq!(frozen.trim(), "0", "{}", path.display());
    }
    group.remove().unwrap();
}

pub(crate) fn nesting_is_limited() {
    let fixture = Fixture::new("nesting");
    let limits = Limits::default().with_nesting(Nesting { depth: 3, descendants: 5 });
    let group = Group::create(&fixture.trees, &fixture.path, &limits).unwrap();
    let v2 = fixture.trees.layout() == cgroup::Layout::V2;
    let mut path = fixture.file(if v2 { "" } else { "unified" }, "a");
    for _ in 0..3 {
        fs::create_dir(&path).unwrap();
        path.push("b");
    }
    assert_eq!(
        fs::create_dir(&path).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock,
        "EAGAIN for a depth of more than 3"
    );
    for name in ["exec", "more"] {
        group.exec_group(name).unwrap();
    }
    let error = group.exec_group("another").unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::AGAIN), "EAGAIN for more than 5 descendants: {error}");
    group.remove().unwrap();
}

pub(crate) fn remove_waits_for_killed_processes() {
    let fixture = Fixture::new("wait");
    for _ in 0..20 {
        let group = fixture.group(&Resources::default());
        let again = Group::open(&fixture.trees, &fixture.path).unwrap();
        let joiner = group.joiner().unwrap();
        let processes: Vec<_> = (0..3).map(|_| run_in(&joiner, pause)).collect();
        group.kill().unwrap();
        group.remove().unwrap();
        again.kill().expect("kill a group that does not exist");
        again.remove().expect("remove a group that does not exist");
        drop(processes);
    }
}

pub(crate) fn remove_empty_parents() {
    let fixture = Fixture::new("parent");
    let base = fixture.path.parent().unwrap();
    let create = |path: &str| {
        let path = GroupPath::parse(&format!("{}/{path}", fixture.path)).unwrap();
        (Group::create(&fixture.trees, &path, &Limits::default()).unwrap(), path)
    };
    let ((one, first), (two, second)) = (create("pod/one"), create("pod/two"));
    one.remove().unwrap();
    fixture.trees.remove_empty_parents(&first, None);
    assert!(fixture.trees.contains(&second), "a parent with a child was removed");
    two.remove().unwrap();
    fixture.trees.remove_empty_parents(&second, Some(&fixture.path));
    assert!(fixture.trees.contains(&fixture.path) && !fixture.trees.contains(&second.parent().unwrap()));
    fixture.trees.remove_empty_parents(&second, None);
    assert!(!fixture.trees.contains(&base));
}

pub(crate) fn missing_group_is_reported() {
    let fixture = Fixture::new("missing");
    let error = Group::open(&fixture.trees, &fixture.path).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}
