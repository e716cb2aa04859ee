//! Namespaces: new, joined by path, joined by descriptor.

use std::fs::{self, File};

use oci::NamespaceType;
use rustix::fd::AsFd;

use crate::{
    Case, bundle,
    node::{Node, Output},
};

pub(crate) const CASES: &[Case] =
    testbed::cases![all_new, joined_by_path, joined_by_descriptor, pid_namespace_of_a_pod, host_pid_namespace, sysctls];

const KINDS: &str = "pid net ipc uts mnt cgroup";

fn callers(kind: &str) -> String {
    fs::read_link(format!("/proc/self/ns/{kind}")).expect("namespace").display().to_string()
}

fn all_new(node: &Node) {
    let out = node.shell(&format!("for k in {KINDS}; do readlink /proc/self/ns/$k; done; echo $$"), |_| ());
    let inside: Vec<&str> = out.stdout.lines().collect();
    for (kind, namespace) in KINDS.split(' ').zip(&inside) {
        assert!(namespace.starts_with(kind), "{out:?}");
        assert_ne!(callers(kind), *namespace);
    }
    assert_eq!(inside[6], "1", "init is pid 1");
}

fn joined_by_path(node: &Node) {
    let (pod, _) = node.create(bundle::spec(&["/bin/sleep", "9"]), node.inputs()).expect("a pod");
    let path = |kind: &str| format!("/proc/{}/ns/{kind}", pod.pid);
    let expected: Vec<String> =
        ["net", "uts"].map(|kind| fs::read_link(path(kind)).expect("namespace").display().to_string()).into();
    let out = node.shell("readlink /proc/self/ns/net; readlink /proc/self/ns/uts", |spec| {
        for namespace in &mut spec.linux.as_mut().expect("linux").namespaces {
            match namespace.kind {
                NamespaceType::Network => namespace.path = Some(path("net")),
                NamespaceType::Uts => namespace.path = Some(path("uts")),
                _ => {}
            }
        }
    });
    assert_eq!(out.stdout.lines().collect::<Vec<_>>(), expected);
    node.end(pod);
}

fn joined_by_descriptor(node: &Node) {
    let (pod, _) = node.create(bundle::spec(&["/bin/sleep", "9"]), node.inputs()).expect("a pod");
    let mut inputs = node.inputs();
    let expected = fs::read_link(format!("/proc/{}/ns/ipc", pod.pid)).expect("namespace").display().to_string();
    let ipc = File::open(format!("/proc/{}/ns/ipc", pod.pid)).expect("namespace");
    inputs.namespaces.insert(NamespaceType::Ipc, ipc.into());
    let out = node.run(bundle::spec(&["/bin/readlink", "/proc/self/ns/ipc"]), inputs).expect("runs");
    assert_eq!(out.stdout, expected);
    node.end(pod);
}

/// Two containers in one PID namespace see each other; later children of the caller are not cloned into it.
fn pid_namespace_of_a_pod(node: &Node) {
    let (mut pod, _) = node.create(bundle::spec(&["/bin/sleep", "99"]), node.inputs()).expect("a pod");
    pod.start().expect("started");
    crate::node::next(&mut pod).expect("executed");
    let mut inputs = node.inputs();
    let namespace = File::open(format!("/proc/{}/ns/pid", pod.pid)).expect("namespace");
    inputs.namespaces.insert(NamespaceType::Pid, namespace.into());
    let out = node.run(bundle::spec(&["/bin/sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '; echo; echo $$"]), inputs);
    let out = out.expect("runs");
    let lines: Vec<&str> = out.stdout.lines().collect();
    assert_eq!(lines[0], "/bin/sleep 99 ");
    assert_ne!(lines[1], "1");
    let out =
        node.exec(&pod, &bundle::process(&["/bin/sh", "-c", "ls -d /proc/1 /proc/$$; readlink /proc/self/ns/pid"]));
    assert!(out.expect("exec in the pod").stdout.starts_with("/proc/1\n"));
    node.end(pod);
    let out = node.shell("echo $$", |_| ());
    assert_eq!(out.stdout, "1", "a namespace of its own again");
}

fn host_pid_namespace(node: &Node) {
    let mut spec = bundle::spec(&["/bin/readlink", "/proc/self/ns/pid"]);
    spec.linux.as_mut().expect("linux").namespaces.retain(|namespace| namespace.kind != NamespaceType::Pid);
    let mut inputs = node.inputs();
    let output = Output::new(&mut inputs.stdio);
    let (mut setup, _) = node.create(spec, inputs).expect("created");
    setup.start().expect("started");
    crate::node::next(&mut setup).expect("executed");
    assert_eq!(output.collect(&setup).stdout, callers("pid"));
    assert!(rustix::process::pidfd_send_signal(setup.pidfd.as_fd(), rustix::process::Signal::KILL).is_err(), "reaped");
    setup.group.remove().expect("removed");
}

fn sysctls(node: &Node) {
    let host = fs::read_to_string("/proc/sys/kernel/shmmni").expect("sysctl");
    let script =
        "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shmmni /proc/sys/fs/mqueue/msg_max";
    let out = node.shell(script, |spec| {
        let sysctl = &mut spec.linux.as_mut().expect("linux").sysctl;
        sysctl.insert("net.ipv4.ip_unprivileged_port_start".into(), "80".into());
        sysctl.insert("kernel.shmmni".into(), "77".into());
        sysctl.insert("fs.mqueue.msg_max".into(), "33".into());
    });
    assert_eq!(out.stdout, "80\n77\n33", "{}", out.stderr);
    assert_eq!(fs::read_to_string("/proc/sys/kernel/shmmni").expect("sysctl"), host);
}
