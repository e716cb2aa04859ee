//! Known attacks on runtimes.

use std::{fs, os::unix::fs::symlink};

use container::ErrorKind;
use rustix::fd::AsRawFd;
use serde_json::json;

use crate::{
    Case, bundle,
    node::{Node, next},
};

pub(crate) const CASES: &[Case] = testbed::cases![
    working_directory_through_a_descriptor,
    proc_as_a_symlink,
    dev_symlinks_of_the_image,
    replaced_dev_null,
    covered_procfs,
    hidden_while_it_waits,
    replaced_ptmx,
];

/// CVE-2024-21626: a descriptor of a host directory as working directory, in create and in exec.
fn working_directory_through_a_descriptor(node: &Node) {
    let host = fs::File::open("/").expect("the host's root");
    rustix::io::fcntl_setfd(&host, rustix::io::FdFlags::empty()).expect("clear close-on-exec");
    let (mut target, _) = node.create(bundle::spec(&["/bin/sleep", "99"]), node.inputs()).expect("created");
    target.start().expect("started");
    next(&mut target).expect("executed");
    for number in (3..40).chain([host.as_raw_fd()]) {
        let cwd = format!("/proc/self/fd/{number}");
        let mut spec = bundle::spec(&["/bin/ls", "-d", "image-1"]);
        spec.process.as_mut().expect("process").cwd = cwd.clone();
        if let Ok(out) = node.run(spec, node.inputs()) {
            assert_ne!(out.code, 0, "{cwd} led to the host: {out:?}");
        }
        let mut process = bundle::process(&["/bin/ls", "-d", "image-1"]);
        process.cwd = cwd.clone();
        if let Ok(out) = node.exec(&target, &process) {
            assert_ne!(out.code, 0, "{cwd} led to the host: {out:?}");
        }
    }
    node.end(target);
}

/// CVE-2019-19921: `/proc` of the image is a symlink, so that procfs would be mounted elsewhere.
fn proc_as_a_symlink(node: &Node) {
    let image = node.image();
    fs::remove_dir(image.join("proc")).expect("directory");
    symlink("/tmp", image.join("proc")).expect("symlink");
    let error = node.run(bundle::spec(&["true"]), node.inputs_of(&image)).expect_err("refused");
    assert!(error.message().contains("\"/proc\"") && error.message().contains("not a symlink"), "{error}");
}

/// `/dev` of the image is a symlink to a path that exists on the host: devices are still made inside, and the host's
/// directory is not touched.
fn dev_symlinks_of_the_image(node: &Node) {
    let image = node.image();
    fs::create_dir_all("/host-dev").expect("a directory of the host");
    fs::remove_dir(image.join("dev")).expect("directory");
    symlink("/host-dev", image.join("dev")).expect("symlink");
    let mut spec = bundle::spec(&["/bin/ls", "/host-dev/null"]);
    spec.mounts.retain(|mount| !mount.destination.starts_with("/dev"));
    assert_eq!(node.run(spec, node.inputs_of(&image)).expect("runs").stdout, "/host-dev/null");
    assert_eq!(fs::read_dir("/host-dev").expect("directory").count(), 0);
    fs::remove_dir("/host-dev").expect("clean");
}

/// CVE-2025-31133: `/dev/null` of the image is a symlink, in a container without a mount on /dev.
fn replaced_dev_null(node: &Node) {
    let image = node.image();
    symlink("/etc/passwd", image.join("dev/null")).expect("symlink");
    let mut spec = bundle::spec(&["true"]);
    spec.mounts.retain(|mount| !mount.destination.starts_with("/dev"));
    let error = node.run(spec, node.inputs_of(&image)).expect_err("refused");
    assert!(error.message().contains("/dev/null"), "{error}");
}

/// CVE-2025-52881: writes for the container do not go through its /proc. Here its /proc is a directory of the host with
/// the files that such a write would change.
fn covered_procfs(node: &Node) {
    let fake = node.image();
    fs::create_dir_all(fake.join("self")).expect("directory");
    fs::create_dir_all(fake.join("sys/net/ipv4")).expect("directory");
    for file in ["self/oom_score_adj", "sys/net/ipv4/ip_unprivileged_port_start"] {
        fs::write(fake.join(file), "untouched").expect("file");
    }
    let mut spec = bundle::spec(&["true"]);
    spec.mounts[0] = serde_json::from_value(json!(
        {"destination": "/proc", "type": "bind", "source": fake.display().to_string(), "options": ["rbind"]}
    ))
    .expect("a mount");
    let linux = spec.linux.as_mut().expect("linux");
    linux.sysctl.insert("net.ipv4.ip_unprivileged_port_start".into(), "80".into());
    assert_eq!(node.run(spec, node.inputs()).expect("runs").code, 0);
    for file in ["self/oom_score_adj", "sys/net/ipv4/ip_unprivileged_port_start"] {
        assert_eq!(fs::read_to_string(fake.join(file)).expect("file"), "untouched");
    }
}

/// CVE-2016-9962, CVE-2019-5736: while the child waits, other containers in its PID namespace cannot access its files.
fn hidden_while_it_waits(node: &Node) {
    let (mut pod, _) = node.create(bundle::spec(&["/bin/sleep", "99"]), node.inputs()).expect("created");
    pod.start().expect("started");
    next(&mut pod).expect("executed");
    let mut inputs = node.inputs();
    let namespace = fs::File::open(format!("/proc/{}/ns/pid", pod.pid)).expect("namespace");
    inputs.namespaces.insert(oci::NamespaceType::Pid, namespace.into());
    let (waiting, _) = node.create(bundle::spec(&["true"]), inputs).expect("created");
    let script =
        "for f in exe cwd root fd/0 fd/1 fd/2; do readlink /proc/2/$f; done; cat /proc/2/environ; cat /proc/2/comm";
    let out = node.exec(&pod, &bundle::process(&["sh", "-c", script])).expect("exec");
    assert_eq!(out.stdout.lines().count(), 1, "only its name must be visible: {out:?}");
    node.end(waiting);
    node.end(pod);
}

/// A container replaces ptmx by another device: no terminal is opened on it.
fn replaced_ptmx(node: &Node) {
    let script = "mount -t tmpfs x /dev/pts; mknod /dev/pts/ptmx c 1 5; echo up; sleep 99";
    let mut spec = bundle::spec(&["sh", "-c", script]);
    let sets = spec.process.as_mut().expect("process").capabilities.as_mut().expect("capabilities");
    for set in [&mut sets.bounding, &mut sets.effective, &mut sets.permitted] {
        set.push("CAP_SYS_ADMIN".into());
    }
    let mut inputs = node.inputs();
    let (up, out) = rustix::pipe::pipe().expect("pipe");
    inputs.stdio.stdout = Some(out);
    let (mut target, _) = node.create(spec, inputs).expect("created");
    target.start().expect("started");
    next(&mut target).expect("executed");
    assert_eq!(rustix::io::read(&up, &mut [0; 3]), Ok(3), "the container is ready");
    let mut process = bundle::process(&["true"]);
    process.terminal = true;
    let error = node.exec(&target, &process).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::System);
    assert!(error.message().contains("/dev/pts/ptmx"), "{error}");
    node.end(target);
}
