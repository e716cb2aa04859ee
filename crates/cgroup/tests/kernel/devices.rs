use cgroup::Limits;
use oci::{DeviceRule, Resources};
use rustix::{fs::OFlags, io::Errno};

use crate::fixture::{Fixture, open_in, without_trees};

fn rule(allow: bool, kind: &str, major: i64, minor: i64, access: &str) -> DeviceRule {
    let number = |n: i64| Some(n).filter(|n| *n >= 0);
    let access = Some(access.to_owned());
    DeviceRule { allow, kind: Some(kind.to_owned()), major: number(major), minor: number(minor), access }
}

fn rules_hold(fixture: &Fixture) {
    let denied = Errno::PERM.raw_os_error();
    let devices = vec![rule(false, "a", -1, -1, "rwm"), rule(true, "c", 1, 11, "r")];
    let group = fixture.group(&Resources { devices, ..Resources::default() });
    assert_eq!(open_in(&group, "/dev/null", OFlags::RDWR), 0, "always there");
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

/// v1's files, or on v2 a BPF program.
pub(crate) fn devices() {
    rules_hold(&Fixture::new("devices"));
}

/// Where no v1 tree has the devices, a BPF program on the v2 group decides.
pub(crate) fn devices_bpf() {
    without_trees(|point| point.ends_with("/devices"), || rules_hold(&Fixture::new("devices-bpf")));
}
