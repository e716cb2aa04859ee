//! Scopes of the system's systemd.

use std::{collections::BTreeMap, fs, process::Command};

use cgroup::{Error, Group, Limits, systemd::Unit};
use oci::{Cpu, DeviceRule, HugepageLimit, Memory, Pids, Resources};
use rustix::fs::OFlags;

use crate::fixture::{Fixture, Process, open_in, pause, run_as_init, run_outside};

/// A separate scope per test, which is stopped when dropped.
struct Scope {
    fixture: Fixture,
    unit: Unit,
}

impl Scope {
    fn new(name: &str) -> Self {
        let id = format!("{}-{name}", std::process::id());
        let unit = Unit::parse(Some(&format!("pinion-test.slice:pinion-test:{id}")), &id).unwrap();
        Self { fixture: Fixture::new(name), unit }
    }

    /// Starts a scope with a waiting process.
    fn start(&self, resources: &Resources) -> (Process, Group) {
        let process = run_outside(pause);
        let limits = Limits::from_spec(resources).unwrap();
        let group = self.unit.start(&self.fixture.trees, process.pid, &limits).unwrap();
        (process, group)
    }

    /// Returns a property as systemd shows it.
    fn property(&self, property: &str) -> String {
        show(self.unit.name(), property)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let path = self.unit.expected_path().expect("compute the path");
        let group = Unit::open(self.unit.name(), &self.fixture.trees, &path).expect("open the unit");
        group.remove().expect("stop the scope");
        let _ = Command::new("systemctl").args(["stop", "pinion-test.slice"]).status();
    }
}

fn show(unit: &str, property: &str) -> String {
    let out =
        Command::new("systemctl").args(["show", "--value", "-p", property, unit]).output().expect("run systemctl");
    String::from_utf8(out.stdout).expect("the output is UTF-8").trim().to_owned()
}

fn read(group: &Group, file: &str) -> String {
    let path = format!("/sys/fs/cgroup{}/{file}", group.path());
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")).trim().to_owned()
}

fn resources() -> Resources {
    Resources {
        memory: Some(Memory { limit: Some(64 << 20), swap: Some(64 << 20), ..Memory::default() }),
        cpu: Some(Cpu {
            shares: Some(2048),
            quota: Some(50_000),
            period: Some(100_000),
            cpus: Some("0".into()),
            ..Cpu::default()
        }),
        pids: Some(Pids { limit: Some(33) }),
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit: 2 << 20 }],
        ..Resources::default()
    }
}

/// The limits are set in systemd and in the kernel, and the process is in the cgroup of the unit.
pub(crate) fn scope_has_its_limits() {
    let scope = Scope::new("limits");
    let (process, group) = scope.start(&resources());
    assert_eq!(group.path(), &scope.unit.expected_path().unwrap());
    assert_eq!(group.pids().unwrap(), [process.pid]);
    for (property, value) in [
        ("ActiveState", "active"),
        ("Slice", "pinion-test.slice"),
        ("Delegate", "yes"),
        ("MemoryMax", "67108864"),
        ("MemorySwapMax", "0"),
        ("CPUQuotaPerSecUSec", "500ms"),
        ("TasksMax", "33"),
        ("AllowedCPUs", "0"),
    ] {
        assert_eq!(scope.property(property), value, "{property}");
    }
    let weight = scope.property("CPUWeight");
    for (file, value) in [
        ("memory.max", "67108864"),
        ("memory.swap.max", "0"),
        ("cpu.max", "50000 100000"),
        ("cpu.weight", weight.as_str()),
        ("pids.max", "33"),
        ("cpuset.cpus", "0"),
        ("hugetlb.2MB.max", "2097152"),
    ] {
        assert_eq!(read(&group, file), value, "{file}");
    }
    // Exec groups can be created in the scope.
    let command = group.exec_group("exec-1").unwrap();
    command.remove().unwrap();
}

/// An update is in effect, also after systemd has applied its properties again.
pub(crate) fn update_survives_a_reload() {
    let scope = Scope::new("update");
    let (_process, group) = scope.start(&resources());
    let memory = Memory { limit: Some(32 << 20), swap: Some(48 << 20), ..Memory::default() };
    let update = Resources { memory: Some(memory), pids: Some(Pids { limit: Some(-1) }), ..Resources::default() };
    group.update(&Limits::from_spec(&update).unwrap()).unwrap();
    let assert_limits = || {
        for (file, value) in [
            ("memory.max", "33554432"),
            ("memory.swap.max", "16777216"),
            ("pids.max", "max"),
            ("cpu.max", "50000 100000"),
            ("hugetlb.2MB.max", "2097152"),
        ] {
            assert_eq!(read(&group, file), value, "{file}");
        }
    };
    assert_limits();
    assert_eq!((scope.property("MemoryMax").as_str(), scope.property("TasksMax").as_str()), ("33554432", "infinity"));
    assert!(Command::new("systemctl").arg("daemon-reload").status().expect("run systemctl").success());
    assert_limits();
}

pub(crate) fn devices_are_denied() {
    let scope = Scope::new("devices");
    let deny = DeviceRule { allow: false, access: Some("rwm".into()), ..DeviceRule::default() };
    let (_process, group) = scope.start(&Resources { devices: vec![deny], ..Resources::default() });
    assert_eq!(scope.property("DevicePolicy"), "strict");
    let kmsg = || open_in(&group, "/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK);
    assert_eq!(open_in(&group, "/dev/null", OFlags::RDWR), 0);
    assert_ne!(kmsg(), 0);
    let allow =
        DeviceRule { allow: true, kind: Some("c".into()), major: Some(1), minor: Some(11), access: Some("r".into()) };
    let deny = DeviceRule { allow: false, access: Some("rwm".into()), ..DeviceRule::default() };
    let update = Resources { devices: vec![deny, allow], ..Resources::default() };
    group.update(&Limits::from_spec(&update).unwrap()).unwrap();
    assert_eq!(kmsg(), 0);
    assert!(scope.property("DeviceAllow").contains("/dev/char/1:11 r"), "{}", scope.property("DeviceAllow"));
}

/// `org.systemd.property.*`; a property that systemd refuses leaves neither a scope nor a cgroup.
pub(crate) fn annotations_reach_the_unit() {
    let scope = Scope::new("annotated");
    let annotated = |key: &str, value: &str| {
        let annotations = BTreeMap::from([(format!("org.systemd.property.{key}"), value.to_owned())]);
        scope.unit.clone().with_annotations(&annotations).unwrap()
    };
    let process = run_outside(pause);
    let error =
        annotated("NoSuchThing", "true").start(&scope.fixture.trees, process.pid, &Limits::default()).unwrap_err();
    assert!(matches!(&error, Error::Systemd { .. }) && error.to_string().contains("NoSuchThing"), "{error}");
    assert!(!scope.fixture.trees.contains(&scope.unit.expected_path().unwrap()));
    let unit = annotated("TimeoutStopSec", "uint64 7");
    unit.start(&scope.fixture.trees, process.pid, &Limits::default()).unwrap();
    assert_eq!(scope.property("TimeoutStopUSec"), "7s");
}

/// A name can be used for one scope only; a limit that the kernel refuses removes the scope again.
pub(crate) fn failures_leave_no_scope() {
    let scope = Scope::new("failed");
    let trees = &scope.fixture.trees;
    let process = run_as_init(pause);
    let unified = [("memory.none".to_owned(), "1".to_owned())].into();
    let limits = Limits::from_spec(&Resources { unified, ..Resources::default() }).unwrap();
    let error = scope.unit.start(trees, process.pid, &limits).unwrap_err();
    assert!(error.to_string().contains("memory.none"), "{error}");
    assert!(!trees.contains(&scope.unit.expected_path().unwrap()), "the scope still exists");
    drop(process);
    let (first, _group) = scope.start(&Resources::default());
    let second = run_outside(pause);
    let error = scope.unit.start(trees, second.pid, &Limits::default()).unwrap_err();
    assert!(error.to_string().contains(scope.unit.name()), "{error}");
    assert_eq!(scope.property("ActiveState"), "active", "the first scope is not active anymore");
    drop((first, second));
    let absent = rustix::process::Pid::from_raw(i32::MAX).unwrap();
    let gone = scope.unit.start(trees, absent, &Limits::default()).unwrap_err();
    assert!(matches!(gone, Error::Systemd { .. }), "{gone}");
}

/// Stopping a scope kills its processes; stopping it again is not an error.
pub(crate) fn stop_kills_all_processes() {
    let scope = Scope::new("stop");
    let (process, group) = scope.start(&Resources::default());
    let open = || Unit::open(group.unit_name().unwrap(), &scope.fixture.trees, group.path()).unwrap();
    open().remove().unwrap();
    assert!(process.wait() > 128, "the process was not killed");
    assert!(!scope.fixture.trees.contains(group.path()));
    open().kill().unwrap();
    assert!(open().is_empty().unwrap());
    open().remove().unwrap();
    assert_eq!(scope.property("LoadState"), "not-found");
}

fn v1_file(group: &Group, tree: &str, file: &str) -> String {
    let path = format!("/sys/fs/cgroup/{tree}{}/{file}", group.path());
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")).trim().to_owned()
}

fn v1_resources() -> Resources {
    let memory = Memory { limit: Some(64 << 20), swappiness: Some(7), ..Memory::default() };
    let cpu = Cpu {
        shares: Some(2048),
        quota: Some(50_000),
        period: Some(100_000),
        cpus: Some("0".into()),
        ..Cpu::default()
    };
    let pids = Some(Pids { limit: Some(33) });
    Resources { memory: Some(memory), cpu: Some(cpu), pids, ..Resources::default() }
}

fn assert_v1_limits(group: &Group, memory: &str) {
    for (tree, file, value) in [
        ("memory", "memory.limit_in_bytes", memory),
        ("memory", "memory.swappiness", "7"),
        ("cpu", "cpu.shares", "2048"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("pids", "pids.max", "33"),
        ("cpuset", "cpuset.cpus", "0"),
    ] {
        assert_eq!(v1_file(group, tree, file), value, "{file}");
    }
}

/// systemd creates some of the cgroups, this crate the others; the process is in all of them.
pub(crate) fn v1_scope_has_its_limits() {
    let scope = Scope::new("v1");
    let (process, group) = scope.start(&v1_resources());
    assert_eq!(group.path(), &scope.unit.expected_path().unwrap());
    assert_v1_limits(&group, "67108864");
    assert_eq!(scope.property("MemoryLimit"), "67108864");
    let membership = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap();
    for line in membership.lines() {
        assert!(line.ends_with(group.path().as_str()), "{line} is not {}", group.path());
    }
    assert_eq!(group.pids().unwrap(), [process.pid]);
    group.freeze().unwrap();
    group.kill().unwrap();
    assert_eq!(process.wait(), 128 + 9);
    let path = group.path().clone();
    group.remove().unwrap();
    assert!(!scope.fixture.trees.contains(&path), "the cgroup still exists in a tree");
}

pub(crate) fn v1_update_survives_a_reload() {
    let scope = Scope::new("v1-update");
    let (_process, group) = scope.start(&v1_resources());
    let memory = Memory { limit: Some(32 << 20), ..Memory::default() };
    let deny = DeviceRule { allow: false, access: Some("rwm".into()), ..DeviceRule::default() };
    let update = Resources { memory: Some(memory), devices: vec![deny], ..Resources::default() };
    group.update(&Limits::from_spec(&update).unwrap()).unwrap();
    let denied = || assert_ne!(open_in(&group, "/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK), 0);
    assert_v1_limits(&group, "33554432");
    denied();
    assert!(Command::new("systemctl").arg("daemon-reload").status().expect("run systemctl").success());
    assert_v1_limits(&group, "33554432");
    denied();
}

/// Without systemd the error states that and what to do; nothing is created.
pub(crate) fn missing_systemd_is_reported() {
    let fixture = Fixture::new("none");
    let process = run_outside(pause);
    let unit = Unit::parse(Some("pinion-test.slice:test:none"), "none").unwrap();
    let error = unit.start(&fixture.trees, process.pid, &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Systemd { .. }), "{error}");
    for word in ["start the systemd unit test-none.scope", "cannot reach systemd", "cgroupfs driver"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(!fixture.trees.contains(&unit.expected_path().unwrap()));
}
