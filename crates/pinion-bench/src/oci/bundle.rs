//! The bundle for all runtimes: a root file system with busybox, and a specification like Docker's.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use oci::{DEFAULT_CAPABILITIES, DEFAULT_READONLY_PATHS};
use serde_json::{Value, json};

/// The paths that Docker masks.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];

/// A directory with `config.json` and `rootfs`.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(crate) directory: PathBuf,
}

impl Bundle {
    /// Creates the root file system.
    pub(crate) fn create(directory: PathBuf) -> io::Result<Self> {
        let root = directory.join("rootfs");
        for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir_all(root.join(name))?;
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| fs::read(path).ok());
        let busybox = busybox.ok_or_else(|| io::Error::other("/bin/busybox does not exist; install busybox-static"))?;
        let target = root.join("bin/busybox");
        fs::write(&target, busybox)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
        for applet in ["true", "sleep", "sh", "cat", "ls", "grep", "stat"] {
            symlink("busybox", root.join("bin").join(applet))?;
        }
        Ok(Self { directory })
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.directory.join("rootfs")
    }

    /// Writes the specification of a container.
    pub(crate) fn write(&self, spec: &Value) -> io::Result<()> {
        fs::write(self.directory.join("config.json"), serde_json::to_vec(spec)?)
    }

    /// Creates a bundle next to this one with the same root file system.
    pub(crate) fn sibling(&self, name: &str) -> io::Result<Self> {
        let directory = self.directory.with_file_name(name);
        fs::create_dir_all(&directory)?;
        match symlink(self.rootfs(), directory.join("rootfs")) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Self { directory }),
        }
    }
}

/// The properties that differ between containers.
#[derive(Clone, Debug)]
pub(crate) struct Shape<'a> {
    pub(crate) args: &'a [&'a str],
    pub(crate) group: &'a str,
    /// Memory limit in bytes.
    pub(crate) memory: u64,
    pub(crate) seccomp: bool,
}

/// Returns a specification like Docker's.
pub(crate) fn spec(shape: &Shape<'_>, rootfs: &Path) -> Value {
    let capabilities: Vec<String> = DEFAULT_CAPABILITIES.map(str::to_owned).into();
    let namespaces: Vec<Value> =
        ["mount", "network", "uts", "pid", "ipc"].iter().map(|kind| json!({"type": kind})).collect();
    let mut spec = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0, "additionalGids": [0, 10]},
            "args": shape.args,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=bench"],
            "cwd": "/",
            "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
            "noNewPrivileges": true,
            "oomScoreAdj": 0
        },
        "root": {"path": rootfs},
        "hostname": "bench",
        "mounts": mounts(),
        "linux": {
            "resources": {
                "devices": devices(),
                "memory": {"limit": shape.memory},
                "cpu": {"shares": 512, "quota": 50000, "period": 100_000},
                "pids": {"limit": 100}
            },
            "cgroupsPath": shape.group,
            "namespaces": namespaces,
            "maskedPaths": MASKED,
            "readonlyPaths": DEFAULT_READONLY_PATHS
        }
    });
    if shape.seccomp {
        spec["linux"]["seccomp"] = serde_json::to_value(profile()).unwrap_or_default();
    }
    spec
}

/// Returns Docker's default seccomp profile for these capabilities.
pub(crate) fn profile() -> oci::Seccomp {
    seccomp::default_profile(&DEFAULT_CAPABILITIES.map(str::to_owned))
}

fn mounts() -> Value {
    let mount = |destination: &str, kind: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": kind, "options": options});
    json!([
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/sys/fs/cgroup", "cgroup", &["ro", "nosuid", "noexec", "nodev"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=67108864"]),
    ])
}

fn devices() -> Value {
    let allow =
        |major: u32, minor: u32| json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"});
    json!([
        {"allow": false, "access": "rwm"},
        allow(1, 5), allow(1, 3), allow(1, 9), allow(1, 8), allow(5, 0), allow(5, 1),
        {"allow": false, "type": "c", "major": 10, "minor": 229, "access": "rwm"}
    ])
}
