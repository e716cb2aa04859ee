//! Unprivileged users.

use std::os::unix::fs::chown;

use cgroup::{Error, Group, GroupPath, Hierarchies, Limits};
use oci::{Pids, Resources};

use crate::fixture::{Fixture, pause, run_in, run_outside};

/// A uid that is not in use.
const USER: u32 = 54_321;

/// Runs a test as an unprivileged user.
fn as_user(test: impl FnOnce()) {
    let process = run_outside(|| {
        rustix::thread::set_thread_res_gid(gid(), gid(), gid()).expect("setresgid");
        rustix::thread::set_thread_groups(&[]).expect("setgroups");
        let user = rustix::fs::Uid::from_raw(USER);
        rustix::thread::set_thread_res_uid(user, user, user).expect("setresuid");
        test();
        0
    });
    assert_eq!(process.wait(), 0, "the test as another user failed");
}

fn gid() -> rustix::fs::Gid {
    rustix::fs::Gid::from_raw(USER)
}

fn limited() -> Limits {
    Limits::from_spec(&Resources { pids: Some(Pids { limit: Some(9) }), ..Resources::default() }).unwrap()
}

/// A container without limits does not need a cgroup; a limit is refused with an error that names its controller.
pub(crate) fn user_without_delegation() {
    let path = Fixture::new("user").path.clone();
    as_user(|| {
        let trees = Hierarchies::open().unwrap();
        let group = Group::create(&trees, &path, &Limits::default()).unwrap();
        assert!(!group.has_directory() && !trees.contains(&path));
        let process = run_in(&group.joiner().unwrap(), pause);
        for error in [group.pids().unwrap_err(), group.freeze().unwrap_err(), group.kill().unwrap_err()] {
            assert!(matches!(error, Error::NoGroup { .. }), "{error}");
        }
        assert!(!group.exec_group("exec").unwrap().has_directory());
        drop(process);
        group.remove().unwrap();
        let error = Group::create(&trees, &path, &limited()).unwrap_err();
        assert!(matches!(&error, Error::Unavailable { controller: "pids", .. }), "{error}");
    });
}

/// A cgroup that is delegated to the user, as systemd does with `Delegate=`.
pub(crate) fn user_with_delegation() {
    let fixture = Fixture::new("delegated");
    let group = fixture.group(&Resources::default());
    let files = ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"];
    for file in files {
        chown(fixture.file("", file), Some(USER), Some(USER)).expect("chown");
    }
    let below: GroupPath = fixture.path.join("inner").unwrap();
    let init = fixture.path.join("shell").unwrap();
    // Only a process that is already in the delegated cgroup may migrate processes within it.
    let shell = Group::create(&fixture.trees, &init, &Limits::default()).unwrap();
    chown(fixture.file("", "shell/cgroup.procs"), Some(USER), Some(USER)).expect("chown");
    let process = run_in(&shell.joiner().unwrap(), || {
        as_user(|| {
            let trees = Hierarchies::open().unwrap();
            let group = Group::create(&trees, &below, &limited()).unwrap();
            let process = run_in(&group.joiner().unwrap(), pause);
            assert_eq!(group.pids().unwrap(), [process.pid]);
            assert_eq!(group.stats().unwrap().pids_limit, Some(9));
            group.freeze().unwrap();
            group.kill().unwrap();
            assert_eq!(process.wait(), 128 + 9);
            group.remove().unwrap();
            trees.remove_empty_parents(&below, None);
        });
        0
    });
    assert_eq!(process.wait(), 0);
    shell.remove().unwrap();
    group.remove().unwrap();
}
