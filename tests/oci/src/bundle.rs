use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{PROBE, Runtime};

/// A bundle: a directory with a root file system, and the content of its `config.json`.
///
/// The root contains busybox (`/bin`), [`PROBE`] (`/bin/probe`), `/etc/passwd` and `/etc/group`, and empty mount
/// points.
#[derive(Debug)]
pub struct Bundle {
    /// Directory of the bundle.
    pub directory: PathBuf,
    /// Content of `config.json`: what engines usually request, without seccomp, limits and ids.
    pub spec: Value,
}

impl Bundle {
    pub(crate) fn create(directory: PathBuf, runtime: Runtime, tag: &str) -> Self {
        let root = directory.join("root");
        testbed::make_root(&root, &testbed::busybox());
        for name in ["run", "mnt", "home/user"] {
            create_directory(&root.join(name));
        }
        write(&root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n");
        write(&root.join("etc/group"), "root:x:0:\nuser:x:1000:\nextra:x:2000:user\n");
        fs::write(root.join("bin/probe"), PROBE).expect("write to the root file system");
        chmod(&root.join("bin/probe"), 0o755);
        Self { directory, spec: base_spec(runtime, tag) }
    }

    /// Returns the host path of a path in the root file system.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.directory.join("root").join(inside.trim_start_matches('/'))
    }

    /// Sets the program and arguments that the container executes.
    pub fn args(&mut self, args: &[&str]) -> &mut Self {
        self.spec["process"]["args"] = json!(args);
        self
    }

    /// Sets a shell script that the container executes.
    pub fn script(&mut self, script: &str) -> &mut Self {
        self.args(&["/bin/sh", "-c", script])
    }

    /// Adds a mount.
    pub fn mount(&mut self, destination: &str, kind: &str, source: &str, options: &[&str]) -> &mut Self {
        let mount = json!({ "destination": destination, "type": kind, "source": source, "options": options });
        self.spec["mounts"].as_array_mut().expect("mounts").push(mount);
        self
    }

    /// Removes the namespace of a type.
    pub fn without_namespace(&mut self, kind: &str) -> &mut Self {
        self.spec["linux"]["namespaces"]
            .as_array_mut()
            .expect("namespaces")
            .retain(|namespace| namespace["type"] != kind);
        self
    }

    /// Adds a namespace, or replaces the one of the same type.
    pub fn namespace(&mut self, kind: &str, path: Option<&str>) -> &mut Self {
        self.without_namespace(kind);
        let namespace = path.map_or_else(|| json!({ "type": kind }), |path| json!({ "type": kind, "path": path }));
        self.spec["linux"]["namespaces"].as_array_mut().expect("namespaces").push(namespace);
        self
    }

    /// Sets these capabilities as the bounding, effective and permitted sets.
    pub fn capabilities(&mut self, names: &[&str]) -> &mut Self {
        self.spec["process"]["capabilities"] = json!({ "bounding": names, "effective": names, "permitted": names });
        self
    }

    /// Writes `config.json`.
    pub fn write(&self) {
        write(&self.directory.join("config.json"), &self.spec.to_string());
    }
}

/// Boxes a closure that changes a bundle, so that its type can be inferred.
pub fn change(change: impl Fn(&mut Bundle) + 'static) -> Box<dyn Fn(&mut Bundle)> {
    Box::new(change)
}

fn create_directory(path: &Path) {
    fs::create_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn base_spec(runtime: Runtime, tag: &str) -> Value {
    let capabilities = [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_MKNOD",
        "CAP_NET_BIND_SERVICE",
        "CAP_NET_RAW",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETPCAP",
        "CAP_SYS_CHROOT",
        "CAP_AUDIT_WRITE",
    ];
    json!({
        "ociVersion": runtime.specification(),
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "env": ["PATH=/bin", format!("PINION_OCI_CASE={tag}")],
            "cwd": "/",
            "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
            "noNewPrivileges": true,
        },
        "root": { "path": "root" },
        "hostname": "case",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] },
            { "destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"] },
            { "destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"] },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"] },
        ],
        "linux": {
            "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                { "type": "cgroup" },
            ],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}
