//! Time namespaces.

use std::{fs, time::Duration};

use oci::{Namespace, NamespaceType, TimeOffset};
use rustix::{
    fd::AsFd,
    time::{ClockId, clock_gettime},
};

use crate::{
    Case, bundle,
    cases::user_namespaces::{image, map},
    node::{Node, next},
};

pub(crate) const CASES: &[Case] = testbed::cases![clocks_are_shifted, execs_see_them_too, joined_by_path, bad_offsets];

const DAY: i64 = 86400;

fn shift(spec: &mut oci::Spec, days: i64) {
    let linux = spec.linux.as_mut().expect("linux");
    linux.namespaces.push(Namespace { kind: NamespaceType::Time, path: None });
    let offset = TimeOffset { secs: days * DAY, nanosecs: 5 };
    linux.time_offsets = [("boottime".to_owned(), offset), ("monotonic".to_owned(), offset)].into();
}

fn days_up(text: &str) -> i64 {
    let seconds: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("seconds");
    let host = Duration::from_secs(clock_gettime(ClockId::Boottime).tv_sec as u64);
    (seconds - host.as_secs_f64()).round() as i64 / DAY
}

fn clocks_are_shifted(node: &Node) {
    for user in [false, true] {
        let mut spec = bundle::spec(&["/bin/cat", "/proc/uptime"]);
        shift(&mut spec, 100);
        if user {
            map(&mut spec);
        }
        let inputs = if user { node.inputs_of(&image(node)) } else { node.inputs() };
        let out = node.run(spec, inputs).expect("runs");
        assert_eq!(days_up(&out.stdout), 100, "{out:?}");
    }
}

fn execs_see_them_too(node: &Node) {
    let mut spec = bundle::spec(&["/bin/sleep", "99"]);
    shift(&mut spec, 7);
    let (mut target, _) = node.create(spec, node.inputs()).expect("created");
    target.start().expect("started");
    next(&mut target).expect("executed");
    let out = node.exec(&target, &bundle::process(&["/bin/cat", "/proc/uptime"])).expect("exec");
    assert_eq!(days_up(&out.stdout), 7, "{out:?}");
    node.end(target);
}

fn joined_by_path(node: &Node) {
    let mut spec = bundle::spec(&["/bin/sleep", "99"]);
    shift(&mut spec, 3);
    let (mut pod, _) = node.create(spec, node.inputs()).expect("created");
    pod.start().expect("started");
    next(&mut pod).expect("executed");
    let path = format!("/proc/{}/ns/time", pod.pid);
    let expected = fs::read_link(&path).expect("namespace").display().to_string();
    let out = node.shell("readlink /proc/self/ns/time; cat /proc/uptime", |spec| {
        let namespaces = &mut spec.linux.as_mut().expect("linux").namespaces;
        namespaces.push(Namespace { kind: NamespaceType::Time, path: Some(path) });
    });
    let (name, uptime) = out.stdout.split_once('\n').expect("two lines");
    assert_eq!((name, days_up(uptime)), (expected.as_str(), 3));
    assert!(pod.pidfd.as_fd().try_clone_to_owned().is_ok());
    node.end(pod);
}

fn bad_offsets(node: &Node) {
    let fails = |change: &dyn Fn(&mut oci::Linux)| {
        let mut spec = bundle::spec(&["true"]);
        shift(&mut spec, 1);
        change(spec.linux.as_mut().expect("linux"));
        node.run(spec, node.inputs()).expect_err("refused").to_string()
    };
    let one = TimeOffset { secs: 1, nanosecs: 0 };
    let message = fails(&|linux| {
        linux.time_offsets.insert("realtime".into(), one);
    });
    assert!(message.contains("linux.timeOffsets: \"realtime\" cannot have an offset"), "{message}");
    let too_large = TimeOffset { secs: 1, nanosecs: 1_000_000_000 };
    let message = fails(&|linux| {
        linux.time_offsets.insert("monotonic".into(), too_large);
    });
    assert!(message.contains("linux.timeOffsets.monotonic.nanosecs"), "{message}");
    let message = fails(&|linux| linux.namespaces.retain(|namespace| namespace.kind != NamespaceType::Time));
    assert!(message.contains("linux.timeOffsets: needs a new time namespace"), "{message}");
    let past = TimeOffset { secs: -400 * 365 * DAY, nanosecs: 0 };
    let message = fails(&|linux| {
        linux.time_offsets.insert("monotonic".into(), past);
    });
    assert!(message.contains("a clock would be negative"), "{message}");
}
