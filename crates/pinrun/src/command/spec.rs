//! `spec`: writes a template config.json.

use std::{ffi::OsString, fs::OpenOptions, io::Write, path::Path};

use serde_json::{Value, json};

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order, switch, value},
};

pub(crate) fn run(_global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let known = [value(&["bundle", "b"]), switch(&["rootless"])];
    let flags = Flags::parse(arguments, &known, Order::Mixed)?;
    let directory = flags.value("bundle").filter(|path| !path.is_empty()).unwrap_or(".".as_ref());
    let mut spec = template();
    if flags.is_on("rootless")? {
        make_rootless(&mut spec);
    }
    let mut text =
        serde_json::to_string_pretty(&spec).map_err(|error| Failure::new(format!("write the spec: {error}")))?;
    text.push('\n');
    let path = Path::new(directory).join("config.json");
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::new(format!("File {} exists. Remove it first", path.display())),
        _ => Failure::io(format!("write {}", path.display()), error),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn template() -> Value {
    let capabilities = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    json!({
        "ociVersion": "1.3.0",
        "process": {
            "terminal": true,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "pinrun",
        "mounts": mounts(),
        "linux": {
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "namespaces": namespaces(&["pid", "network", "ipc", "uts", "mount", "cgroup"]),
            "maskedPaths": ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                            "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
        }
    })
}

fn mounts() -> Value {
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": source, "options": options});
    json!([
        {"destination": "/proc", "type": "proc", "source": "proc"},
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", "devpts",
              &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ])
}

fn namespaces(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({"type": kind})).collect()
}

/// Adapts the spec to an unprivileged user: maps the user to root, shares the host's network and therefore its sysfs,
/// and removes options that need more than one mapped id.
fn make_rootless(spec: &mut Value) {
    let id = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
    let linux = &mut spec["linux"];
    linux["uidMappings"] = id(rustix::process::geteuid().as_raw());
    linux["gidMappings"] = id(rustix::process::getegid().as_raw());
    linux["namespaces"] = namespaces(&["pid", "ipc", "uts", "mount", "cgroup", "user"]);
    if let Some(linux) = linux.as_object_mut() {
        linux.remove("resources");
    }
    for mount in spec["mounts"].as_array_mut().into_iter().flatten() {
        match mount["destination"].as_str() {
            Some("/sys") => {
                *mount = json!({"destination": "/sys", "type": "none", "source": "/sys",
                                "options": ["rbind", "nosuid", "noexec", "nodev", "ro"]});
            }
            Some("/dev/pts") => {
                if let Some(options) = mount["options"].as_array_mut() {
                    options.retain(|option| option != "gid=5");
                }
            }
            _ => {}
        }
    }
}
