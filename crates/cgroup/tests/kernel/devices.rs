use cgroup::Limits;
use oci::{DeviceRule, Resources};
use rustix::{fs::OFlags, io::Errno};

use crate::fixture::{Fixture, open_in, without_trees};

fn rule(allow: bool, kind: &str, major: i64, minor: i64, access: &str) -> DeviceRule {
    let number = |n: i64| Some(n).filter(|n| *n >= 0);
    let access = Some(access.to_owned());
    DeviceRule { allow, kind: Some(kind.to_owned()), major: number(major), minor: number(minor), access }
}

fn assert_rules_are_applied(fixture: &Fixture) {
    let denied = Errno::PERM.raw_os_error();
    let devices = vec![rule(false, "a", -1, -1, "rwm"), rule(true, "c", 1, 11, "r")];
    let group = fixture.group(&Resources { devices, ..Resources::default() });
    assert_eq!(open_in(&group, "/dev/null", OFlags::RDWR), 0, "/dev/null is always allowed");
    assert_eq!(open_in(&group, "/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK), 0);
    assert_eq!(open_in(&group, "/dev/kmsg", OFlags::WRONLY), denied);
    let update =
        |devices| group.update(&Limits::from_spec(&Resources { devices, ..Resources::default() }).unwrap()).unwrap();
    update(vec![rule(false, "a", -1, -1, "rwm")]);
    assert_eq!(open_in(&group, "/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK), denied);
    update(vec![rule(true, "a", -1, -1, "rwm"), rule(false, "c", 1, 5, "w")]);
    assert_eq!(open_in(&group, "/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK), 0);
    assert_eq!(open_in(&group, "/dev/zero", OFlags::RDONLY), 0);
    assert_eq!(open_in(&group, "/dev/zero", OFlags::RDWR), denied);
}

/// Device rules through v1 files, or on v2 through a BPF program.
pub(crate) fn devices() {
    assert_rules_are_applied(&Fixture::new("devices"));
}

/// Device rules through a BPF program on the v2 group if no v1 tree has the devices controller.
pub(crate) fn devices_bpf() {
    without_trees(|point| point.ends_with("/devices"), || assert_rules_are_applied(&Fixture::new("devices-bpf")));
}
