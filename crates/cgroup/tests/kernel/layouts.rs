use cgroup::{Error, Group, GroupPath, Hierarchies, Layout, Limits};
use oci::{Memory, Resources};

use crate::{
    fixture::{Fixture, without_trees},
    processes,
};

/// Descriptors are sufficient in a mount namespace without cgroup mounts, such as the monitor's.
pub(crate) fn trees_are_used_by_descriptor() {
    let trees = Hierarchies::open().unwrap();
    let path = GroupPath::parse(&format!("/pinion-test-{}/blind/group", std::process::id())).unwrap();
    without_trees(
        |_| true,
        || {
            assert!(matches!(Hierarchies::open(), Err(Error::NoTree)), "no tree is mounted here");
            let memory = Memory { limit: Some(64 << 20), ..Memory::default() };
            let limits = Limits::from_spec(&Resources { memory: Some(memory), ..Resources::default() }).unwrap();
            let group = Group::create(&trees, &path, &limits).unwrap();
            let joiner = group.joiner().unwrap();
            let process = crate::fixture::run_in(&joiner, crate::fixture::pause);
            assert_eq!(group.pids().unwrap(), [process.pid]);
            assert_eq!(group.stats().unwrap().memory_limit, Some(64 << 20));
            let command = group.exec_group("exec").unwrap();
            command.remove().unwrap();
            group.freeze().unwrap();
            group.thaw().unwrap();
            group.kill().unwrap();
            assert_eq!(process.wait(), 128 + 9);
            group.remove().unwrap();
            trees.remove_empty_parents(&path, None);
        },
    );
    assert!(!trees.contains(&path.parent().unwrap()));
}

/// Only the v2 tree is mounted. It does not have the usual controllers here, so limits must be refused by name.
pub(crate) fn pure_v2() {
    without_trees(
        |point| !point.ends_with("/unified"),
        || {
            assert_eq!(Hierarchies::open().unwrap().layout(), Layout::V2);
            processes::join_v2();
            processes::kill_all();
            processes::kill_while_frozen();
            processes::exec_group();
            let fixture = Fixture::new("v2");
            let memory = Memory { limit: Some(64 << 20), ..Memory::default() };
            let limits = Limits::from_spec(&Resources { memory: Some(memory), ..Resources::default() }).unwrap();
            let error = Group::create(&fixture.trees, &fixture.path, &limits).unwrap_err();
            assert!(matches!(error, Error::Unavailable { controller: "memory", .. }), "{error}");
            assert!(!fixture.trees.contains(&fixture.path.parent().unwrap()));
        },
    );
}

/// Without a v2 tree the v1 freezer freezes and kills.
pub(crate) fn pure_v1() {
    without_trees(
        |point| point.ends_with("/unified"),
        || {
            assert_eq!(Hierarchies::open().unwrap().layout(), Layout::V1);
            processes::kill_all();
            processes::kill_while_frozen();
            processes::freeze_and_thaw();
            processes::exec_group();
            processes::oom_kill_is_counted();
            crate::lifecycle::remove_waits_for_killed_processes();
        },
    );
}
