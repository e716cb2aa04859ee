use serde_json::{Value, json};

/// Returns the smallest spec that runs a shell: without a network namespace, seccomp and limits; the root file system
/// is `rootfs`.
pub fn spec(args: &[&str], cgroup: &str) -> Value {
    json!({
        "ociVersion": "1.3.0",
        "root": {"path": "rootfs"},
        "process": {"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
        ],
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
        },
    })
}
