//! Containers in user namespaces: new ones, joined ones, and the resources that they own.

use std::{fs, os::unix::fs::MetadataExt};

use container::Target;
use oci::{IdMapping, Namespace, NamespaceType};

use rustix::fd::AsFd;

use crate::{
    Case, bundle,
    node::{Node, next, set_mode},
};

pub(crate) const CASES: &[Case] = testbed::cases![
    root_inside_is_a_user_outside,
    every_mount_of_an_engine,
    execs_inside,
    a_pod_with_a_user_namespace,
    with_namespaces_of_the_host,
    bad_maps,
];

/// First mapped id on the host.
const FIRST: u32 = 300_000;

/// Adds a user namespace of 65536 ids to a spec.
pub(crate) fn map(spec: &mut oci::Spec) {
    let linux = spec.linux.get_or_insert_default();
    linux.namespaces.push(Namespace { kind: NamespaceType::User, path: None });
    let line = IdMapping { container_id: 0, host_id: FIRST, size: 65536 };
    linux.uid_mappings = vec![line];
    linux.gid_mappings = vec![line];
}

/// Makes an image that belongs to the container's root, below a directory that the root may not traverse.
pub(crate) fn image(node: &Node) -> std::path::PathBuf {
    let image = node.image();
    let closed = std::path::PathBuf::from(format!("/closed-{}", node.number()));
    fs::create_dir(&closed).expect("directory");
    set_mode(&closed, 0o700);
    let root = closed.join("root");
    fs::rename(&image, &root).expect("rename");
    chown_tree(&root);
    root
}

fn chown_tree(path: &std::path::Path) {
    std::os::unix::fs::lchown(path, Some(FIRST), Some(FIRST)).expect("chown");
    if path.symlink_metadata().expect("stat").is_dir() {
        for entry in fs::read_dir(path).expect("directory") {
            chown_tree(&entry.expect("entry").path());
        }
    }
}

fn shell(node: &Node, script: &str, change: impl FnOnce(&mut oci::Spec)) -> crate::node::Outcome {
    let mut spec = bundle::spec(&["/bin/sh", "-c", script]);
    map(&mut spec);
    change(&mut spec);
    node.run(spec, node.inputs_of(&image(node))).expect("the container runs")
}

fn root_inside_is_a_user_outside(node: &Node) {
    let script =
        "id -u; cat /proc/self/uid_map /proc/self/gid_map; readlink /proc/self/ns/user; echo $$; touch /tmp/new";
    let mut spec = bundle::spec(&["/bin/sh", "-c", script]);
    map(&mut spec);
    spec.root.as_mut().expect("root").readonly = false;
    let image = image(node);
    let out = node.run(spec, node.inputs_of(&image)).expect("runs");
    let words: Vec<&str> = out.stdout.split_whitespace().collect();
    assert_eq!(words[..7], ["0", "0", "300000", "65536", "0", "300000", "65536"], "{out:?}");
    let callers = fs::read_link("/proc/self/ns/user").expect("namespace").display().to_string();
    assert_ne!(words[7], callers);
    assert_eq!(words[8], "1");
    assert_eq!(fs::metadata(image.join("tmp/new")).expect("the new file").uid(), FIRST);
}

fn every_mount_of_an_engine(node: &Node) {
    let script = "cut -d' ' -f5 /proc/self/mountinfo; echo x > /dev/null; head -c1 /dev/zero | wc -c; ls -ln /dev/null";
    let out = shell(node, script, |_| ());
    let (mounts, rest) = out.stdout.split_once("\n1\n").expect("a byte");
    for path in ["/proc", "/dev/null", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/proc/keys"] {
        assert!(mounts.lines().any(|line| line == path), "{path}: {out:?}");
    }
    assert!(rest.starts_with("crw-rw-rw-    1 0        0           1,   3 "), "{out:?}");
}

fn exec(node: &Node, target: &container::ContainerSetup, script: &str) -> crate::node::Outcome {
    let exec_target = Target { user_namespace: true, ..target.pidfd.as_fd().into() };
    node.exec_in(target, exec_target, &bundle::process(&["/bin/sh", "-c", script])).expect("exec")
}

const NAMES: &str = "for k in user pid net ipc uts mnt cgroup; do readlink /proc/self/ns/$k; done";

fn names_of(pid: rustix::process::Pid) -> Vec<String> {
    let name = |kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("namespace").display().to_string();
    ["user", "pid", "net", "ipc", "uts", "mnt", "cgroup"].map(name).into()
}

fn execs_inside(node: &Node) {
    let mut spec = bundle::spec(&["/bin/sleep", "99"]);
    map(&mut spec);
    let (mut target, _) = node.create(spec, node.inputs_of(&image(node))).expect("created");
    target.start().expect("started");
    next(&mut target).expect("executed");
    let out = exec(node, &target, &format!("id -u; {NAMES}; cat /proc/1/cmdline; touch /dev/shm/x"));
    assert_eq!(out.code, 0, "{out:?}");
    let lines: Vec<&str> = out.stdout.lines().collect();
    assert_eq!(lines[0], "0");
    assert_eq!(lines[1..8], names_of(target.pid), "{out:?}");
    let mut process = bundle::process(&["/bin/sh", "-c", "id -u; id -g; id -G; grep CapEff /proc/self/status"]);
    (process.user.uid, process.user.gid, process.user.additional_gids) = (33, 34, vec![35]);
    let exec_target = Target { user_namespace: true, ..target.pidfd.as_fd().into() };
    let out = node.exec_in(&target, exec_target, &process).expect("exec");
    assert!(out.stdout.starts_with("33\n34\n34 35\n"), "{out:?}");
    process.user.uid = 70000;
    let error = node.exec_in(&target, exec_target, &process).expect_err("unmapped");
    assert!(error.message().contains("user 70000") && error.message().contains("mapped"), "{error}");
    node.end(target);
}

/// Like engines: the first container makes the namespaces, and the others join all of them, in any order.
fn a_pod_with_a_user_namespace(node: &Node) {
    let mut spec = bundle::spec(&["/bin/sleep", "99"]);
    map(&mut spec);
    let image = image(node);
    let (mut pod, _) = node.create(spec, node.inputs_of(&image)).expect("created");
    pod.start().expect("started");
    next(&mut pod).expect("executed");
    for order in [false, true] {
        let mut spec = bundle::spec(&["/bin/sh", "-c", &format!("{NAMES}; id -u; cat /proc/sys/net/ipv4/ip_forward")]);
        map(&mut spec);
        let linux = spec.linux.as_mut().expect("linux");
        for namespace in &mut linux.namespaces {
            let file = match namespace.kind {
                NamespaceType::User => "user",
                NamespaceType::Pid => "pid",
                NamespaceType::Network => "net",
                NamespaceType::Ipc => "ipc",
                NamespaceType::Uts => "uts",
                _ => continue,
            };
            namespace.path = Some(format!("/proc/{}/ns/{file}", pod.pid));
        }
        if order {
            linux.namespaces.reverse();
        }
        let out = node.run(spec, node.inputs_of(&image)).expect("runs");
        let lines: Vec<&str> = out.stdout.lines().collect();
        assert_eq!(lines[..5], names_of(pod.pid)[..5], "{out:?}");
        assert_ne!(lines[5], names_of(pod.pid)[5]);
        assert_eq!(lines[7], "0");
    }
    node.end(pod);
}

/// Namespaces of the host can be joined by path, or are used if the spec does not list them. sysfs is then a read-only
/// bind mount of the host's.
fn with_namespaces_of_the_host(node: &Node) {
    let out = shell(node, &format!("{NAMES}; touch /sys/x; ls /sys/class | head -1"), |spec| {
        let namespaces = &mut spec.linux.as_mut().expect("linux").namespaces;
        namespaces.retain(|namespace| namespace.kind != NamespaceType::Network);
        let uts = namespaces.iter_mut().find(|namespace| namespace.kind == NamespaceType::Uts).expect("uts");
        uts.path = Some("/proc/self/ns/uts".to_owned());
        spec.hostname = None;
    });
    let callers = names_of(rustix::process::getpid());
    let lines: Vec<&str> = out.stdout.lines().collect();
    assert_eq!((lines[2], lines[4]), (callers[2].as_str(), callers[4].as_str()), "{out:?}");
    assert!(out.stderr.contains("Read-only file system"), "{out:?}");
    assert_eq!(lines.len(), 8, "{out:?}");
}

fn bad_maps(node: &Node) {
    let line = |container_id, host_id, size| IdMapping { container_id, host_id, size };
    let try_with = |uids: Vec<IdMapping>, gids: Vec<IdMapping>, uid| {
        let mut spec = bundle::spec(&["true"]);
        map(&mut spec);
        let linux = spec.linux.as_mut().expect("linux");
        (linux.uid_mappings, linux.gid_mappings) = (uids, gids);
        spec.process.as_mut().expect("process").user.uid = uid;
        node.run(spec, node.inputs()).expect_err("refused").to_string()
    };
    let good = vec![line(0, FIRST, 10)];
    for (uids, gids, uid, expected) in [
        (vec![], vec![], 0, "linux.uidMappings: is missing"),
        (good.clone(), vec![], 0, "linux.gidMappings: is missing"),
        (
            vec![line(0, FIRST, 10), line(9, 1, 1)],
            good.clone(),
            0,
            "linux.uidMappings: the ids from 0 and from 9 inside",
        ),
        (good.clone(), good.clone(), 10, "process.user.uid: 10 is not mapped by linux.uidMappings"),
        (vec![line(1, FIRST, 10)], good.clone(), 1, "linux.uidMappings: 0 is not mapped"),
    ] {
        let message = try_with(uids, gids, uid);
        assert!(message.contains(expected), "{message}");
    }
}
