//! `linux.resources` and `linux.cgroupsPath`, `update`, `pause`, `events`, `ps`.

use std::fs;

use oci_tests::{Case, Cgroup, Container, Runtime, each_runtime, wait_until};
use serde_json::{Value, json};

each_runtime!(
    memory,
    cpu,
    cpuset,
    pids,
    pids_of_zero,
    memory_below_zero,
    device_rules,
    block_io_is_applied_or_refused_by_name,
    out_of_memory,
    path_absent,
    manager_disabled,
    path_relative,
    path_nested,
    delete_removes_child_cgroups,
    refused_limit_leaves_no_cgroup,
    update_flags,
    update_of_swap_only,
    update_by_file,
    invalid_updates_are_refused,
    pause_and_resume,
    pause_twice,
    created_and_paused,
    exec_in_a_paused_container,
    kill_of_a_paused_container,
    kill_all,
    events_stats,
    events_of_an_oom_kill,
    ps_lists_the_processes,
    default_devices,
    devices_of_the_specification,
    device_that_exists,
);

fn with_resources(case: &Case, resources: Value) -> Container<'_> {
    let mut bundle = case.script("sleep 1000");
    for (key, value) in resources.as_object().expect("an object") {
        bundle.spec["linux"]["resources"][key] = value.clone();
    }
    let container = case.container(bundle);
    container.create_and_start();
    container
}

fn memory(case: &Case) {
    let container = with_resources(case, json!({ "memory": { "limit": 67_108_864, "reservation": 33_554_432 } }));
    let group = container.cgroup();
    assert_eq!(group.read("memory.limit_in_bytes", "memory.max"), "67108864");
    assert_eq!(group.read("memory.soft_limit_in_bytes", "memory.low"), "33554432");
    container.remove();
}

fn cpu(case: &Case) {
    let container = with_resources(case, json!({ "cpu": { "shares": 512, "quota": 50_000, "period": 100_000 } }));
    let group = container.cgroup();
    if Cgroup::is_v1() {
        assert_eq!(group.read("cpu.shares", "cpu.weight"), "512");
        assert_eq!(group.read("cpu.cfs_quota_us", ""), "50000");
        assert_eq!(group.read("cpu.cfs_period_us", ""), "100000");
    } else {
        assert_eq!(group.read("cpu.", "cpu.max"), "50000 100000");
    }
    container.remove();
}

fn cpuset(case: &Case) {
    let container = with_resources(case, json!({ "cpu": { "cpus": "0", "mems": "0" } }));
    assert_eq!(container.cgroup().read("cpuset.cpus", "cpuset.cpus"), "0");
    assert_eq!(container.exec(&[], &["/bin/probe", "affinity"]).ok(), "1\n");
    container.remove();
}

fn pids(case: &Case) {
    let container = with_resources(case, json!({ "pids": { "limit": 9 } }));
    assert_eq!(container.cgroup().read("pids.max", "pids.max"), "9");
    let text = container.exec(&[], &["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 5 & done 2>&1; exit 0"]);
    assert!(text.stdout.contains("fork") || text.stderr.contains("fork") || text.code != 0, "{text:?}");
    container.remove();
}

/// Version 1.3 of the specification makes 0 a limit. As in runc, it is set as 1, the smallest limit of systemd.
fn pids_of_zero(case: &Case) {
    let container = with_resources(case, json!({ "pids": { "limit": 0 } }));
    assert_eq!(container.cgroup().read("pids.max", "pids.max"), "1");
    container.call("update", &["--pids-limit", "20"]).ok();
    assert_eq!(container.cgroup().read("pids.max", "pids.max"), "20");
    container.call("update", &["--pids-limit", "0"]).ok();
    assert_eq!(container.cgroup().read("pids.max", "pids.max"), "1");
    container.remove();
}

fn memory_below_zero(case: &Case) {
    case.assert_refused(&["memory.limit"], |bundle| {
        bundle.spec["linux"]["resources"]["memory"] = json!({ "limit": -2 })
    });
}

fn device_rules(case: &Case) {
    // /dev/kmsg is a device of the machine; the rule allows mknod only.
    let script = "mknod /k c 1 11; (head -c 0 < /k) 2>&1; mknod /z c 1 5; (head -c 1 < /z | wc -c) 2>&1; mknod /n c 7 1 2>&1; \
        (echo > /z) 2>&1; true";
    let text = case.output(script, |bundle| {
        bundle.spec["linux"]["resources"]["devices"] = json!([
            { "allow": false, "access": "rwm" },
            { "allow": true, "type": "c", "major": 1, "minor": 11, "access": "m" },
        ]);
    });
    assert!(text.contains("/k: Operation not permitted") && text.contains("1\n"), "{text}");
}

fn block_io_is_applied_or_refused_by_name(case: &Case) {
    let mut bundle = case.script("true");
    bundle.spec["linux"]["resources"]["blockIO"] =
        json!({ "throttleReadBpsDevice": [{ "major": 254, "minor": 0, "rate": 1_000_000 }] });
    let outcome = case.container(bundle).run();
    assert!(outcome.code == 0 || outcome.stderr.contains("blkio") || outcome.stderr.contains("io."), "{outcome:?}");
}

fn out_of_memory(case: &Case) {
    let mut bundle = case.script("exec dd if=/dev/zero of=/dev/null bs=200M count=1");
    bundle.spec["linux"]["resources"]["memory"] = json!({ "limit": 16_777_216, "swap": 16_777_216 });
    case.container(bundle).run().exits(137);
}

/// An option of crun that Podman uses for `--cgroups=disabled`; runc does not have it.
fn manager_disabled(case: &Case) {
    let mut bundle = case.script("cat /proc/self/cgroup > /first; sleep 1000");
    bundle.without_namespace("cgroup");
    bundle.spec["linux"]["resources"] = json!({ "pids": { "limit": 9 } });
    let container = case.container(bundle);
    let directory = container.bundle.directory.to_str().expect("the path is ASCII").to_owned();
    let call = |args: &[&str]| case.call(&[&["--cgroup-manager", "disabled"], args].concat());
    call(&["create", "--bundle", &directory, &container.id]).ok();
    call(&["start", &container.id]).ok();
    let cgroup_of_caller = fs::read_to_string("/proc/self/cgroup").expect("read /proc/self/cgroup");
    assert_eq!(container.wait_for_line("/first"), cgroup_of_caller.trim());
    assert!(container.cgroup().directories().is_empty(), "the container must not have a cgroup");
    assert_eq!(call(&["exec", &container.id, "/bin/cat", "/proc/self/cgroup"]).ok(), cgroup_of_caller);
    let pid = container.pid();
    call(&["kill", &container.id, "KILL"]).ok();
    container.wait(pid);
    call(&["delete", &container.id]).ok();
}

fn path_absent(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["linux"]["cgroupsPath"] = json!("");
    let container = case.container(bundle);
    container.create_and_start();
    let text = fs::read_to_string(format!("/proc/{}/cgroup", container.pid())).expect("the process is running");
    assert!(text.contains(&container.id), "the cgroup must be named after the id: {text}");
    container.remove();
    for line in text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).filter(|path| path.contains(&container.id)) {
        assert!(Cgroup::new(line).directories().is_empty(), "{line}");
    }
}

fn path_relative(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    bundle.spec["linux"]["cgroupsPath"] = json!(format!("{}relative", case.tag));
    let container = case.container(bundle);
    container.create_and_start();
    let text = fs::read_to_string(format!("/proc/{}/cgroup", container.pid())).expect("the process is running");
    assert!(text.contains(&format!("{}relative", case.tag)), "{text}");
    container.remove();
}

fn path_nested(case: &Case) {
    let mut bundle = case.script("sleep 1000");
    let path = format!("/{}up/down", case.tag);
    bundle.spec["linux"]["cgroupsPath"] = json!(path);
    let container = case.container(bundle);
    container.create_and_start();
    assert!(Cgroup::new(&path).processes().contains(&container.pid()));
    container.remove();
    assert!(Cgroup::new(&path).directories().is_empty());
    // The runtime must not remove the parent: engines use it as the cgroup of a pod.
    for directory in Cgroup::new(&format!("/{}up", case.tag)).directories() {
        fs::remove_dir(directory).expect("the cgroup is empty");
    }
}

fn delete_removes_child_cgroups(case: &Case) {
    let container = with_resources(case, json!({}));
    for directory in container.cgroup().directories() {
        fs::create_dir(directory.join("below")).expect("create a child cgroup");
    }
    container.remove();
    assert!(container.cgroup().directories().is_empty());
}

fn refused_limit_leaves_no_cgroup(case: &Case) {
    case.assert_refused(&["cpu.cfs", "cpu.max", "quota", "cpu", "invalid argument"], |bundle| {
        bundle.spec["linux"]["resources"]["cpu"] = json!({ "quota": 1, "period": 7 });
    });
}

fn update_flags(case: &Case) {
    let container = with_resources(case, json!({ "memory": { "limit": 67_108_864 } }));
    let group = container.cgroup();
    container.call("update", &["--memory", "50331648"]).ok();
    assert_eq!(group.read("memory.limit_in_bytes", "memory.max"), "50331648");
    container.call("update", &["--memory-reservation", "16777216"]).ok();
    assert_eq!(group.read("memory.soft_limit_in_bytes", "memory.low"), "16777216");
    container.call("update", &["--pids-limit", "77"]).ok();
    assert_eq!(group.read("pids.max", "pids.max"), "77");
    container.call("update", &["--cpu-quota", "20000", "--cpu-period", "40000"]).ok();
    container.call("update", &["--cpuset-cpus", "1"]).ok();
    assert_eq!(group.read("cpuset.cpus", "cpuset.cpus"), "1");
    if Cgroup::is_v1() {
        container.call("update", &["--cpu-share", "333"]).ok();
        assert_eq!(group.read("cpu.shares", ""), "333");
        assert_eq!(group.read("cpu.cfs_quota_us", ""), "20000");
        assert_eq!(group.read("cpu.cfs_period_us", ""), "40000");
    }
    // Later updates do not change limits that they do not name.
    assert_eq!(group.read("memory.limit_in_bytes", "memory.max"), "50331648");
    container.remove();
}

fn update_of_swap_only(case: &Case) {
    let container = with_resources(case, json!({ "memory": { "limit": 33_554_432, "swap": 67_108_864 } }));
    let group = container.cgroup();
    let (memory, swap) = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes");
    container.call("update", &["--memory-swap", "100663296"]).ok();
    assert_eq!(group.read(memory, "memory.max"), "33554432");
    assert_eq!(group.read(swap, "memory.swap.max"), if Cgroup::is_v1() { "100663296" } else { "67108864" });
    container.call("update", &["--memory", "50331648"]).ok();
    assert_eq!(group.read(memory, "memory.max"), "50331648");
    assert_eq!(group.read(swap, "memory.swap.max"), if Cgroup::is_v1() { "100663296" } else { "50331648" });
    container.call("update", &["--memory-swap", "16777216"]).error();
    assert_eq!(group.read(memory, "memory.max"), "50331648");
    container.remove();
}

fn update_by_file(case: &Case) {
    let container = with_resources(case, json!({}));
    let path = case.file("resources.json", r#"{"memory":{"limit":41943040},"pids":{"limit":33},"cpu":{"shares":200}}"#);
    container.call("update", &["--resources", &path]).ok();
    let group = container.cgroup();
    assert_eq!(group.read("memory.limit_in_bytes", "memory.max"), "41943040");
    assert_eq!(group.read("pids.max", "pids.max"), "33");
    container.remove();
}

fn invalid_updates_are_refused(case: &Case) {
    let container = with_resources(case, json!({}));
    container.call("update", &["--memory", "much"]).error();
    container.call("update", &["--cpuset-cpus", "999"]).error();
    container.call("update", &["--resources", "/nowhere/at/all"]).error();
    let path = case.file("resources.json", "{");
    container.call("update", &["--resources", &path]).error();
    container.remove();
}

fn pause_and_resume(case: &Case) {
    let container = case.container(case.script("while :; do echo tick >> /ticks; sleep 0.01; done"));
    container.create_and_start();
    container.wait_for_line("/ticks");
    container.call("pause", &[]).ok();
    assert_eq!(container.status(), "paused");
    let size = || fs::metadata(container.bundle.path("/ticks")).expect("the file exists").len();
    let frozen = size();
    container.status();
    assert_eq!(size(), frozen);
    container.call("resume", &[]).ok();
    assert_eq!(container.status(), "running");
    wait_until("the container continues", || size() > frozen);
    container.remove();
}

fn pause_twice(case: &Case) {
    let container = with_resources(case, json!({}));
    container.call("resume", &[]).error();
    container.call("pause", &[]).ok();
    assert_eq!(container.status(), "paused");
    container.call("resume", &[]).ok();
    container.remove();
}

fn created_and_paused(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create().ok();
    container.call("pause", &[]).ok();
    assert_eq!(container.status(), "paused");
    // The start fails with an error, and the container does not start later when it is resumed.
    container.start().error_with(&["paused"]);
    container.call("resume", &[]).ok();
    assert_eq!(container.status(), "created");
    container.start().ok();
    assert_eq!(container.status(), "running");
    container.remove();
}

fn exec_in_a_paused_container(case: &Case) {
    let container = with_resources(case, json!({}));
    container.call("pause", &[]).ok();
    container.exec(&[], &["/bin/true"]).error_with(&["paused"]);
    container.call("resume", &[]).ok();
    container.exec_script("true");
    container.remove();
}

fn kill_of_a_paused_container(case: &Case) {
    let container = with_resources(case, json!({}));
    let pid = container.pid();
    container.call("pause", &[]).ok();
    container.call("delete", &["--force"]).ok();
    container.wait(pid);
}

fn kill_all(case: &Case) {
    // Without a PID namespace the kernel does not kill the other processes when the first one exits.
    let mut bundle = case.script("sleep 1000 & sleep 1000 & sleep 1000");
    bundle.without_namespace("pid");
    let container = case.container(bundle);
    container.create_and_start();
    let group = container.cgroup();
    wait_until("three processes are running", || group.processes().len() >= 3);
    let pids = group.processes();
    case.call(&["kill", "--all", &container.id, "KILL"]).ok();
    for pid in pids {
        container.wait(pid);
    }
    container.delete().ok();
}

fn events_stats(case: &Case) {
    if case.runtime == Runtime::Crun {
        return; // crun does not have the command.
    }
    let container = with_resources(case, json!({ "memory": { "limit": 67_108_864 }, "pids": { "limit": 50 } }));
    let event = container.call("events", &["--stats"]).json();
    assert_eq!(event["type"], "stats");
    assert_eq!(event["id"], container.id.as_str());
    let data = &event["data"];
    assert!(data["memory"]["usage"]["usage"].as_u64().is_some_and(|bytes| bytes > 0), "{event}");
    assert_eq!(data["memory"]["usage"]["limit"], 67_108_864);
    assert!(data["cpu"]["usage"]["total"].as_u64().is_some_and(|ns| ns > 0), "{event}");
    assert_eq!(data["pids"]["limit"], 50);
    assert!(data["pids"]["current"].as_u64().is_some_and(|n| n >= 1));
    container.remove();
}

/// The killed processes are not the first of the container, so that the kill itself is the only event.
fn events_of_an_oom_kill(case: &Case) {
    if case.runtime == Runtime::Crun {
        return; // crun does not have the command.
    }
    let mut bundle = case.script(
        "for n in 1 2 3 4 5; do while ! test -e /go$n; do sleep 0.01; done; \
            dd if=/dev/zero of=/dev/null bs=200M count=1; done; sleep 1000",
    );
    bundle.spec["linux"]["resources"]["memory"] = json!({ "limit": 16_777_216, "swap": 16_777_216 });
    let container = case.container(bundle);
    container.create_and_start();
    let output = case.directory().join("events");
    let mut command = case.command(&["events", "--interval", "100ms", &container.id]);
    command.stdout(fs::File::create(&output).expect("create a file"));
    let mut events = case.spawn(&mut command);
    let count = |kind: &str| fs::read_to_string(&output).unwrap_or_default().matches(&format!("\"{kind}\"")).count();
    wait_until("the first event", || count("stats") > 0);
    for number in 1..=5 {
        fs::write(container.bundle.path(&format!("/go{number}")), "").expect("write a file");
        wait_until("an event of the kill", || count("oom") >= number);
    }
    events.kill();
    case.wait(&events);
    container.remove();
}

fn ps_lists_the_processes(case: &Case) {
    let container = with_resources(case, json!({}));
    let pid = container.pid();
    let list = container.call("ps", &["--format", "json"]).json();
    assert_eq!(list, json!([pid]));
    let table = container.call("ps", &[]);
    assert!(table.ok().lines().next().is_some_and(|line| line.contains("PID")), "{}", table.stdout);
    assert!(table.stdout.contains(&pid.to_string()));
    container.remove();
}

fn default_devices(case: &Case) {
    let text = case.output(
        "for d in null zero full random urandom tty; do stat -c '%n %F %a %t:%T' /dev/$d; done; for l in fd stdin stdout stderr \
         ptmx; do readlink /dev/$l; done; head -c 3 /dev/zero | wc -c; echo x > /dev/null",
        |_| {},
    );
    for (name, number) in
        [("null", "1:3"), ("zero", "1:5"), ("full", "1:7"), ("random", "1:8"), ("urandom", "1:9"), ("tty", "5:0")]
    {
        assert!(text.contains(&format!("/dev/{name} character special file 666 {number}")), "{name}: {text}");
    }
    for link in ["/proc/self/fd", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2", "pts/ptmx"] {
        assert!(text.lines().any(|line| line == link), "{link}: {text}");
    }
}

fn devices_of_the_specification(case: &Case) {
    let text = case.output("stat -c '%n %F %a %t:%T %u:%g' /dev/mine /dev/pipe /dev/deep/block", |bundle| {
        bundle.spec["linux"]["devices"] = json!([
            { "path": "/dev/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 7, "gid": 8 },
            { "path": "/dev/pipe", "type": "p", "fileMode": 0o600 },
            { "path": "/dev/deep/block", "type": "b", "major": 7, "minor": 200, "fileMode": 0o600 },
        ]);
    });
    assert!(text.contains("/dev/mine character special file 640 1:5 7:8"), "{text}");
    assert!(text.contains("/dev/pipe fifo 600"), "{text}");
    assert!(text.contains("/dev/deep/block block special file 600 7:c8 0:0"), "{text}");
}

fn device_that_exists(case: &Case) {
    // Engines list default devices too.
    let text = case.output("stat -c '%F %t:%T' /dev/null", |bundle| {
        let rules = bundle.spec["linux"]["resources"]["devices"].as_array_mut().expect("rules");
        rules.push(json!({ "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm" }));
        bundle.spec["linux"]["devices"] =
            json!([{ "path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666, "uid": 0, "gid": 0 }]);
    });
    assert_eq!(text, "character special file 1:3\n");
}
