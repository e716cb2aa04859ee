//! A systemd that accepts connections and does not answer. Runs alone: no other program can reach systemd in the meantime.

use std::{
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
