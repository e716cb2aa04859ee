//! `--systemd-cgroup`: the properties of the unit, and its removal.

use oci_tests::{Bundle, Case, Outcome, wait_until};
use serde_json::{Value, json};

// crun puts the processes into a cgroup below the unit, and does not pass limits to systemd.
crate::tests_on!([pinrun Pinrun, runc Runc](
    the_unit_has_its_limits,
    an_update_reaches_systemd,
    an_execd_process_is_in_the_unit,
    an_oom_kill_leaves_no_unit,
    annotations_set_properties,
));

/// A container in a scope unit of systemd.
struct ScopedContainer<'a> {
    case: &'a Case,
    bundle: Bundle,
    id: String,
    unit: String,
}

impl<'a> ScopedContainer<'a> {
    fn new(case: &'a Case, script: &str, change: impl FnOnce(&mut Value)) -> Self {
        let mut bundle = case.script(script);
        let id = format!("{}systemd", case.tag);
        bundle.spec["linux"]["cgroupsPath"] = json!(format!("pinion-test.slice:test:{id}"));
        change(&mut bundle.spec);
        bundle.write();
        Self { case, bundle, unit: format!("test-{id}.scope"), id }
    }

    fn call(&self, args: &[&str]) -> Outcome {
        self.case.call(&[&["--systemd-cgroup"], args].concat())
    }

    fn start(&self) {
        let bundle = self.bundle.directory.to_str().expect("ASCII");
        self.call(&["create", "--bundle", bundle, &self.id]).ok();
        self.call(&["start", &self.id]).ok();
    }

    fn property(&self, property: &str) -> String {
        self.case.program("systemctl", &["show", "--value", "-p", property, &self.unit]).ok().trim().to_owned()
    }

    fn file(&self, name: &str) -> String {
        let path = format!("/sys/fs/cgroup/pinion.slice/pinion-test.slice/{}/{name}", self.unit);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
    }

    /// Removes the container. Checks that systemd has unloaded the unit, and that its cgroup is removed.
    #[track_caller]
    fn end(self) {
        self.call(&["delete", "--force", &self.id]).ok();
        wait_until("systemd has unloaded the unit", || self.property("LoadState") == "not-found");
        let directory = format!("/sys/fs/cgroup/pinion.slice/pinion-test.slice/{}", self.unit);
        assert!(!std::path::Path::new(&directory).exists());
    }
}

fn the_unit_has_its_limits(case: &Case) {
    let scoped = ScopedContainer::new(case, "sleep 1000", |spec| {
        spec["linux"]["resources"]["memory"] = json!({ "limit": 67_108_864 });
        spec["linux"]["resources"]["pids"] = json!({ "limit": 44 });
        spec["linux"]["resources"]["cpu"] = json!({ "quota": 50_000, "period": 100_000 });
    });
    scoped.start();
    for (property, value) in
        [("ActiveState", "active"), ("MemoryMax", "67108864"), ("TasksMax", "44"), ("CPUQuotaPerSecUSec", "500ms")]
    {
        assert_eq!(scoped.property(property), value, "{property}");
    }
    for (file, value) in [("memory.max", "67108864"), ("pids.max", "44"), ("cpu.max", "50000 100000")] {
        assert_eq!(scoped.file(file), value, "{file}");
    }
    scoped.end();
}

fn an_update_reaches_systemd(case: &Case) {
    let scoped = ScopedContainer::new(case, "sleep 1000", |spec| {
        spec["linux"]["resources"]["memory"] = json!({ "limit": 67_108_864 });
    });
    scoped.start();
    scoped.call(&["update", "--memory", "33554432", "--pids-limit", "22", &scoped.id]).ok();
    assert_eq!((scoped.property("MemoryMax").as_str(), scoped.property("TasksMax").as_str()), ("33554432", "22"));
    assert_eq!((scoped.file("memory.max").as_str(), scoped.file("pids.max").as_str()), ("33554432", "22"));
    scoped.end();
}

fn an_execd_process_is_in_the_unit(case: &Case) {
    let scoped = ScopedContainer::new(case, "sleep 1000", |_| {});
    scoped.start();
    let outcome = scoped.call(&["exec", &scoped.id, "/bin/sh", "-c", "cat /proc/self/cgroup"]);
    // In the container's cgroup namespace the unit is the root.
    assert!(outcome.ok().starts_with("0::/") && !outcome.stdout.contains(".."), "{}", outcome.stdout);
    scoped.call(&["kill", &scoped.id, "KILL"]).ok();
    scoped.end();
}

/// A scope with an OOM-killed process enters the failed state and remains loaded until it is reset.
fn an_oom_kill_leaves_no_unit(case: &Case) {
    let scoped =
        ScopedContainer::new(case, "head -c 100000000 /dev/zero | tail -c 90000000 > /dev/null; sleep 1000", |spec| {
            spec["linux"]["resources"]["memory"] = json!({ "limit": 16_777_216, "swap": 16_777_216 });
        });
    scoped.start();
    wait_until("the OOM killer has killed a process", || {
        let events = format!("/sys/fs/cgroup/pinion.slice/pinion-test.slice/{}/memory.events", scoped.unit);
        std::fs::read_to_string(events).map_or(true, |text| text.lines().any(|line| line == "oom_kill 1"))
    });
    scoped.end();
}

fn annotations_set_properties(case: &Case) {
    let scoped = ScopedContainer::new(case, "sleep 1000", |spec| {
        spec["annotations"] = json!({ "org.systemd.property.TimeoutStopUSec": "uint64 7000000" });
    });
    scoped.start();
    assert_eq!(scoped.property("TimeoutStopUSec"), "7s");
    scoped.end();
}
