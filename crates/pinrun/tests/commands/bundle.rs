//! A bundle, a root directory and a cgroup for one test case, and calls of pinrun with them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use cgroup::{Group, GroupPath, Hierarchies};
use serde_json::{Value, json};

/// The id of the container in every case.
pub(crate) const ID: &str = "one";

pub(crate) struct Bundle {
    directory: tempfile::TempDir,
    pub(crate) spec: Value,
    pub(crate) group: GroupPath,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Outcome {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// Asserts that the command failed with a message that contains `text`.
    #[track_caller]
    pub(crate) fn failed(self, text: &str) {
        assert_eq!(self.code, 1, "{self:?}");
        assert!(self.stderr.contains(text), "{self:?}");
    }
}

impl Bundle {
    /// Creates a bundle that runs this command in a busybox root.
    pub(crate) fn new(args: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/pinion-test-pinrun-{}-{number}", std::process::id());
        let directory = tempfile::tempdir().expect("create a temporary directory");
        testbed::make_root(&directory.path().join("rootfs"), &testbed::busybox());
        let bundle =
            Self { spec: spec(args, &path), group: GroupPath::parse(&path).expect("parse the cgroup path"), directory };
        bundle.write();
        bundle
    }

    /// Writes the spec to config.json.
    pub(crate) fn write(&self) {
        fs::write(self.path("config.json"), self.spec.to_string()).expect("config.json");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("states")
    }

    /// Returns a call of pinrun with these arguments, in the bundle's directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pinrun"));
        command.arg("--root").arg(self.root()).args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    /// Runs pinrun with these arguments.
    pub(crate) fn pinrun(&self, arguments: &[&str]) -> Outcome {
        // Output goes to files: a container that keeps running would keep pipes open.
        let (out, err) = (self.path("stdout"), self.path("stderr"));
        let create = |path: &Path| fs::File::create(path).expect("create an output file");
        let status = self.command(arguments).stdout(create(&out)).stderr(create(&err)).status().expect("pinrun");
        let text = |path: &Path| fs::read_to_string(path).expect("read the output");
        Outcome { code: status.code().unwrap_or(-1), stdout: text(&out), stderr: text(&err) }
    }

    pub(crate) fn state(&self) -> Value {
        serde_json::from_str(&self.pinrun(&["state", ID]).ok()).expect("JSON")
    }

    pub(crate) fn status(&self) -> String {
        self.state()["status"].as_str().expect("a status").to_owned()
    }

    pub(crate) fn pid(&self) -> i64 {
        self.state()["pid"].as_i64().expect("a pid")
    }

    /// Waits until the container has this status; `kill` does not wait for its exit.
    pub(crate) fn wait_until(&self, status: &str) {
        while self.status() != status {
            std::thread::yield_now();
        }
    }

    /// Counts the mounts in the bundle.
    pub(crate) fn mounts(&self) -> usize {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        table.matches(&format!(" {}/", self.directory.path().display())).count()
    }

    /// Asserts that the container has no state directory, no cgroup and no mount.
    #[track_caller]
    pub(crate) fn assert_removed(&self) {
        assert!(!self.root().join(ID).exists(), "the state directory still exists");
        assert!(!Hierarchies::open().expect("trees").contains(&self.group), "the cgroup still exists");
        assert_eq!(self.mounts(), 0, "there are still mounts");
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if let Ok(trees) = Hierarchies::open()
            && trees.contains(&self.group)
            && let Ok(group) = Group::open(&trees, &self.group)
        {
            let _ = group.kill();
            let _ = group.remove();
        }
    }
}

fn spec(args: &[&str], group: &str) -> Value {
    let mut spec = testbed::spec(args, group);
    spec["annotations"] = json!({"of": "the test"});
    spec["process"]["env"] = json!(["PATH=/bin", "TERM=xterm"]);
    let linux = &mut spec["linux"];
    linux["namespaces"].as_array_mut().expect("namespaces").push(json!({"type": "network"}));
    linux["seccomp"] = json!({"defaultAction": "SCMP_ACT_ALLOW",
                              "syscalls": [{"names": ["swapon"], "action": "SCMP_ACT_ERRNO"}]});
    spec
}
