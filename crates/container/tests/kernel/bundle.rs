//! Specs like those that engines write.

use oci::DEFAULT_CAPABILITIES;
use serde_json::json;

/// Returns a process with these arguments.
pub(crate) fn process(args: &[&str]) -> oci::Process {
    let process = json!({
        "args": args, "cwd": "/", "env": ["PATH=/usr/bin:/bin", "TERM=xterm"],
        "user": {"uid": 0, "gid": 0, "additionalGids": [0, 10]},
        "capabilities": {"bounding": DEFAULT_CAPABILITIES, "effective": DEFAULT_CAPABILITIES, "permitted": DEFAULT_CAPABILITIES},
        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 1024}],
        "noNewPrivileges": true,
        "oomScoreAdj": 100,
    });
    serde_json::from_value(process).expect("a process")
}

/// Returns the spec of a container that runs these arguments.
pub(crate) fn spec(args: &[&str]) -> oci::Spec {
    let spec = json!({
        "ociVersion": "1.3.0",
        "root": {"path": "ignored", "readonly": true},
        "hostname": "inside",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
             "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
            {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
             "options": ["ro", "nosuid", "noexec", "nodev", "relatime"]},
        ],
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
                           {"type": "cgroup"}],
            "resources": {"memory": {"limit": 64 << 20}, "cpu": {"shares": 512, "quota": 50000, "period": 100_000},
                          "pids": {"limit": 100}},
            "maskedPaths": ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                            "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
                            "/sys/devices/virtual/powercap"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        }
    });
    let mut spec: oci::Spec = serde_json::from_value(spec).expect("a spec");
    spec.process = Some(process(args));
    spec
}
