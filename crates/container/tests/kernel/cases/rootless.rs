//! Containers of an unprivileged user: every step uses only the privileges that a user namespace gives.

use std::{fs, os::unix::fs::lchown, path::Path};

use oci::{IdMapping, Namespace, NamespaceType};
use rustix::{
    fd::AsFd,
    fs::{Gid, Uid},
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{WaitId, WaitIdOptions, waitid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use syscall::clone::Clone3;

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] =
    testbed::cases![a_users_container, locked_flags_stay, operations_that_need_privileges];

const USER: u32 = 1234;

/// Runs a closure as an unprivileged user, and checks that it completes.
fn as_user(run: impl FnOnce()) {
    let child = Clone3::default().fork(|| {
        let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
        let became = set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(gid, gid, gid))
            .and_then(|()| set_thread_res_uid(uid, uid, uid));
        became.expect("become a user");
        // A process that was root is not dumpable, until it changes that or calls execve.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).expect("dumpable");
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(()) => 0,
            Err(_) => 1,
        }
    });
    let child = child.expect("a process");
    let status = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED).expect("waitid").expect("a status");
    assert_eq!(status.exit_status(), Some(0), "the closure failed");
}

fn chown_tree(path: &Path) {
    lchown(path, Some(USER), Some(USER)).expect("chown");
    if path.symlink_metadata().expect("stat").is_dir() {
        fs::read_dir(path).expect("directory").for_each(|entry| chown_tree(&entry.expect("entry").path()));
    }
}

/// Returns a spec like that of `spec --rootless`: the user's own ids, no network namespace, the host's sysfs, no
/// limits.
fn spec(args: &[&str]) -> oci::Spec {
    let mut spec = bundle::spec(args);
    let linux = spec.linux.as_mut().expect("linux");
    linux.namespaces.retain(|namespace| namespace.kind != NamespaceType::Network);
    linux.namespaces.push(Namespace { kind: NamespaceType::User, path: None });
    let map = |host_id| vec![IdMapping { container_id: 0, host_id, size: 1 }];
    (linux.uid_mappings, linux.gid_mappings) = (map(USER), map(USER));
    linux.resources = None;
    spec.process.as_mut().expect("process").user.additional_gids.clear();
    spec
}

fn a_users_container(node: &Node) {
    let image = node.image();
    chown_tree(&image);
    // The test's namespace has no /dev, and a user binds the host's nodes.
    fs::create_dir_all("/dev").expect("directory");
    for (name, number) in [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)] {
        node_at(&format!("/dev/{name}"), 1, number);
    }
    node_at("/dev/tty", 5, 0);
    as_user(|| {
        let script =
            "id -u; cat /proc/self/uid_map; echo x > /dev/null; touch /sys/x; ls /sys/class >/dev/null && echo sys";
        let out = node.run(spec(&["/bin/sh", "-c", script]), node.inputs_of(&image)).expect("runs");
        let words: Vec<&str> = out.stdout.split_whitespace().collect();
        assert_eq!(words, ["0", "0", "1234", "1", "sys"], "{out:?}");
        assert!(out.stderr.contains("Read-only file system"), "{out:?}");
        // Execute a process in it.
        let (mut target, _) = node.create(spec(&["/bin/sleep", "99"]), node.inputs_of(&image)).expect("created");
        target.start().expect("started");
        crate::node::next(&mut target).expect("executed");
        let exec_target = container::Target { user_namespace: true, ..target.pidfd.as_fd().into() };
        let mut process = bundle::process(&["/bin/sh", "-c", "id -u; readlink /proc/self/ns/user"]);
        let error = node.exec_in(&target, exec_target, &process).expect_err("has groups");
        assert!(error.message().contains("maps only its own group"), "{error}");
        process.user.additional_gids.clear();
        let out = node.exec_in(&target, exec_target, &process).expect("exec");
        let name = fs::read_link(format!("/proc/{}/ns/user", target.pid)).expect("namespace").display().to_string();
        assert_eq!(out.stdout, format!("0\n{name}"), "{out:?}");
        rustix::process::pidfd_send_signal(&target.pidfd, rustix::process::Signal::KILL).expect("kill");
        crate::node::reap(&target);
    });
}

fn node_at(path: &str, major: u32, minor: u32) {
    use rustix::fs::{CWD, FileType, Mode, chmod, makedev, mknodat};
    let mode = Mode::from_raw_mode(0o666);
    match mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => chmod(path, mode).expect("chmod"),
        Err(errno) => panic!("{path}: {errno}"),
    }
}

/// A process in a user namespace may not clear mount flags that were set in another one: they stay, and options that
/// clear them are refused.
fn locked_flags_stay(node: &Node) {
    let image = node.image();
    chown_tree(&image);
    let directory = format!("/volume-{}", node.number());
    fs::create_dir(&directory).expect("directory");
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    mount(c"tmpfs", directory.as_str(), c"tmpfs", flags, None).expect("tmpfs");
    as_user(|| {
        let run = |options: &[&str]| {
            let mut spec = spec(&["/bin/grep", " /v ", "/proc/self/mountinfo"]);
            spec.mounts.push(oci::Mount {
                destination: "/v".into(),
                source: Some(directory.clone()),
                options: options.iter().map(|word| (*word).to_owned()).collect(),
                ..oci::Mount::default()
            });
            node.run(spec, node.inputs_of(&image))
        };
        for options in [&["rbind"][..], &["rbind", "nosuid"], &["rbind", "ro", "noexec"]] {
            let out = run(options).expect("runs");
            assert!(out.stdout.contains(" /v ro,nosuid,nodev"), "{options:?}: {out:?}");
        }
        for (option, word) in [("rw", "rw"), ("suid", "suid"), ("dev", "dev"), ("rrw", "rw"), ("rdev", "dev")] {
            let error = run(&["rbind", option]).expect_err("the kernel has locked it");
            let expected = format!("option \"{word}\" is not permitted in a user namespace");
            assert!(error.message().contains(&expected), "{option}: {error}");
        }
        let error = run(&["rbind", "strictatime"]).expect_err("the kernel has locked it");
        assert!(error.message().contains("access times may be locked"), "{error}");
    });
    unmount(directory.as_str(), UnmountFlags::empty()).expect("umount");
}

fn operations_that_need_privileges(node: &Node) {
    let image = node.image();
    chown_tree(&image);
    as_user(|| {
        let fails = |spec| node.run(spec, node.inputs_of(&image)).expect_err("refused").message().to_owned();
        let mut without = spec(&["true"]);
        let linux = without.linux.as_mut().expect("linux");
        linux.namespaces.retain(|namespace| namespace.kind != NamespaceType::User);
        (linux.uid_mappings, linux.gid_mappings) = (vec![], vec![]);
        let message = fails(without);
        assert!(message.contains("user namespace in linux.namespaces"), "{message}");
        let mut limited = spec(&["true"]);
        limited.linux.as_mut().expect("linux").resources =
            Some(serde_json::from_value(serde_json::json!({"pids": {"limit": 5}})).expect("resources"));
        let message = fails(limited);
        assert!(message.contains("pids.limit needs the pids controller"), "{message}");
        let mut foreign = spec(&["true"]);
        foreign.linux.as_mut().expect("linux").uid_mappings[0].host_id = 0;
        let message = fails(foreign);
        assert!(message.contains("linux.uidMappings"), "{message}");
    });
}
