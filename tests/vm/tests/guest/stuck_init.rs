//! A systemd that accepts connections and does not answer. Runs alone, one test after the other: other programs can reach
//! systemd only by the message bus in the meantime.

use std::{
    fs,
    os::unix::net::UnixListener,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testbed::wait_until;

use crate::{
    cgroup_driver::{MIB, Running, container, pod, property, start, systemctl, wait_for_unit},
    node::ok,
};

/// The socket of systemd.
const SOCKET: &str = "/run/systemd/private";
const SILENT: &str = "/run/silent";
/// All requests together are faster than a single call that waits for systemd, which takes 30 s.
const REQUESTS: Duration = Duration::from_secs(20);
/// A call that is waiting times out, and is repeated after a pause.
const RECOVERY: Duration = Duration::from_secs(120);

/// A socket without answers in place of systemd's, until this is dropped.
struct Silence;

impl Silence {
    fn begin() -> Self {
        // That of an earlier test.
        let _ = fs::remove_file(SILENT);
        let listener = UnixListener::bind(SILENT).expect("a socket");
        // The connections stay open as long as the test runs.
        thread::spawn(move || {
            let mut connections = Vec::new();
            listener.incoming().for_each(|connection| connections.push(connection));
        });
        ok(Command::new("mount").args(["--bind", SILENT, SOCKET]).output().expect("mount"));
        Self
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(SOCKET).output();
    }
}

#[test]
fn pods_do_not_wait_for_a_systemd_that_does_not_answer() {
    let node = start("stuck", 3);
    let slice = "kubepods-pod8.slice";
    let limit = |mib: u64| json!({"memory_limit_in_bytes": mib * MIB});
    let earlier = Running::start(&node, &pod(&node, "earlier", slice), &container("sleep 1000", &limit(32)));
    wait_for_unit(&earlier.unit, "ActiveState", "active");
    let silence = Silence::begin();
    let begin = Instant::now();
    let running = Running::start(&node, &pod(&node, "p", slice), &container("sleep 1000", &limit(32)));
    assert_eq!(running.file("memory.max"), (32 * MIB).to_string());
    ok(node.crictl(&["update", "--memory", &(48 * MIB).to_string(), &running.id]));
    assert_eq!(running.file("memory.max"), (48 * MIB).to_string());
    assert_eq!(ok(node.crictl(&["exec", "-s", &running.id, "echo", "alive"])), "alive");
    ok(node.crictl(&["rmp", "-f", &earlier.pod]));
    let waited = begin.elapsed();
    drop(silence);
    assert!(waited < REQUESTS, "{waited:?}");
    assert_ne!(property(&running.unit, "ActiveState"), "active", "systemd must not know the new scope yet");
    for (unit, name, value) in [
        (&running.unit, "ActiveState", "active"),
        (&running.unit, "MemoryMax", "50331648"),
        (&earlier.unit, "LoadState", "not-found"),
    ] {
        wait_until(&format!("{name} of {unit} is {value}"), RECOVERY, || property(unit, name) == value);
    }
    running.remove(&node);
    systemctl(&["stop", slice]);
}

/// A container that systemd does not know yet keeps its limits while systemd disables the controllers of a slice in which
/// it knows no unit.
#[test]
fn a_container_that_is_not_registered_keeps_its_limits() {
    let node = start("unknown", 2);
    let slice = "kubepods-pod6.slice";
    let limit = json!({"memory_limit_in_bytes": 32 * MIB, "cpu_shares": 512});
    let registered = Running::start(&node, &pod(&node, "p", slice), &container("exec sleep 1000", &limit));
    wait_for_unit(&registered.unit, "ActiveState", "active");
    let silence = Silence::begin();
    let mut config = container("exec sleep 1000", &limit);
    config["metadata"]["name"] = json!("unknown");
    let files = [node.file("container.json", &config), node.file("pod.json", &pod(&node, "p", slice))];
    let id = ok(node.crictl(&["create", &registered.pod, &files[0], &files[1]]));
    ok(node.crictl(&["start", &id]));
    let group = format!("/sys/fs/cgroup/kubepods.slice/{slice}/pinion-{id}.scope");
    let limits = || ["memory.max", "cpu.weight"].map(|file| fs::read_to_string(format!("{group}/{file}")).ok());
    let before = limits();
    assert_eq!(before[0].as_deref(), Some("33554432\n"));
    // The slice has no unit anymore: systemd removes the controllers that no unit needs.
    ok(node.crictl(&["stop", "-t", "0", &registered.id]));
    wait_until("systemd forgets the scope", RECOVERY, || !is_loaded_on_the_bus(&registered.unit));
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(100));
        assert_eq!(limits(), before, "a limit was lost");
    }
    assert!(!is_loaded_on_the_bus(&format!("pinion-{id}.scope")), "systemd must not know the scope");
    drop(silence);
    ok(node.crictl(&["rmp", "-f", &registered.pod]));
    systemctl(&["stop", slice]);
}

/// Reports whether systemd has loaded a unit, by the message bus, which works while the other socket is silent.
fn is_loaded_on_the_bus(unit: &str) -> bool {
    let manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];
    let output = Command::new("busctl").arg("call").args(manager).args(["GetUnit", "s", unit]).output();
    let output = output.expect("busctl runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || error.contains("not loaded"), "{error}");
    output.status.success()
}
