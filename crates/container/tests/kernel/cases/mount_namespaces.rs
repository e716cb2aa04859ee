//! Mount namespaces that are not new: the caller's, and one joined by path.

use std::{fs, path::PathBuf};

use oci::NamespaceType;
use rustix::fd::AsFd;

use crate::{
    Case, bundle,
    node::{Node, mount_count},
};

pub(crate) const CASES: &[Case] = testbed::cases![the_callers, joined_by_path];

fn the_callers(node: &Node) {
    let image = node.image();
    let before = mount_count();
    let mut spec = bundle::spec(&["/bin/sh", "-c", "readlink /proc/self/ns/mnt; ls /; echo x > /dev/null; pwd"]);
    let linux = spec.linux.as_mut().expect("linux");
    linux.namespaces.retain(|namespace| namespace.kind != NamespaceType::Mount);
    let out = node.run(spec, node.inputs_of(&image)).expect("runs");
    let callers = fs::read_link("/proc/self/ns/mnt").expect("namespace").display().to_string();
    assert_eq!(
        out.stdout.lines().collect::<Vec<_>>(),
        [&callers, "bin", "dev", "etc", "proc", "sys", "tmp", "/"],
        "{out:?}"
    );
    assert!(mount_count() > before, "the mounts are in the caller's namespace");
    container::detach_root(&image).expect("umount");
    let mut spec = bundle::spec(&["/bin/sleep", "99"]);
    spec.linux.as_mut().expect("linux").namespaces.retain(|namespace| namespace.kind != NamespaceType::Mount);
    let (mut target, _) = node.create(spec, node.inputs_of(&image)).expect("created");
    target.start().expect("started");
    crate::node::next(&mut target).expect("executed");
    let exec_target = container::Target { callers_mount_namespace: true, ..target.pidfd.as_fd().into() };
    let out = node.exec_in(&target, exec_target, &bundle::process(&["/bin/sh", "-c", "ls /; cat /proc/1/cmdline"]));
    assert_eq!(out.expect("exec").stdout, "bin\ndev\netc\nproc\nsys\ntmp\nsleep\099\0".replace("sleep", "/bin/sleep"));
    node.end(target);
    container::detach_root(&image).expect("umount");
    assert_eq!(mount_count(), before);
    assert!(container::detach_root(&PathBuf::from("/none")).is_ok());
}

fn joined_by_path(node: &Node) {
    // A process in its own mount namespace.
    let (stop, other) = node.with_mount_namespace();
    let path = format!("/proc/{}/ns/mnt", other.pid);
    let expected = fs::read_link(&path).expect("namespace").display().to_string();
    let before = mount_count();
    let out = node.shell("readlink /proc/self/ns/mnt; ls / | head -1", |spec| {
        let namespaces = &mut spec.linux.as_mut().expect("linux").namespaces;
        let mount = namespaces.iter_mut().find(|namespace| namespace.kind == NamespaceType::Mount).expect("mount");
        mount.path = Some(path);
    });
    assert_eq!(out.stdout.lines().collect::<Vec<_>>(), [expected.as_str(), "bin"], "{out:?}");
    assert_eq!(mount_count(), before);
    drop(stop);
    let status = rustix::process::waitid(
        rustix::process::WaitId::PidFd(other.pidfd.as_fd()),
        rustix::process::WaitIdOptions::EXITED,
    );
    assert!(status.is_ok());
}
