use std::{fs, process::Command};

use serde_json::Value;

use crate::{Bundle, Case, Cgroup, Outcome, reaper, wait_until};

/// A container: one id on one runtime.
#[derive(Debug)]
pub struct Container<'a> {
    /// The case that the container belongs to.
    pub case: &'a Case,
    /// Container id.
    pub id: String,
    /// Bundle of the container.
    pub bundle: Bundle,
}

impl<'a> Container<'a> {
    pub(crate) fn new(case: &'a Case, id: String, bundle: Bundle) -> Self {
        Self { case, id, bundle }
    }

    fn bundle_path(&self) -> &str {
        self.bundle.directory.to_str().expect("the path is ASCII")
    }

    /// Calls `<command> <flags> <id>`.
    pub fn call(&self, command: &str, flags: &[&str]) -> Outcome {
        self.case.call(&[&[command], flags, &[&self.id]].concat())
    }

    /// Calls `<command> --bundle <bundle> <flags> <id>` after changing the command.
    pub fn call_with_bundle(&self, command: &str, flags: &[&str], change: impl FnOnce(&mut Command)) -> Outcome {
        self.case.call_with(&[&[command, "--bundle", self.bundle_path()], flags, &[&self.id]].concat(), change)
    }

    /// Calls `run`.
    pub fn run(&self) -> Outcome {
        self.call_with_bundle("run", &[], |_| {})
    }

    /// Calls `create`.
    pub fn create(&self) -> Outcome {
        self.create_with(&[])
    }

    /// Calls `create` with flags.
    pub fn create_with(&self, flags: &[&str]) -> Outcome {
        self.call_with_bundle("create", flags, |_| {})
    }

    /// Calls `start`.
    pub fn start(&self) -> Outcome {
        self.call("start", &[])
    }

    /// Creates and starts the container.
    #[track_caller]
    pub fn create_and_start(&self) -> &Self {
        self.create().ok();
        self.start().ok();
        self
    }

    /// Calls `state` and returns its JSON.
    #[track_caller]
    pub fn state(&self) -> Value {
        self.call("state", &[]).json()
    }

    /// Returns the `status` of `state`.
    #[track_caller]
    pub fn status(&self) -> String {
        self.state()["status"].as_str().expect("status").to_owned()
    }

    /// Returns the `pid` of `state`.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.state()["pid"].as_i64().expect("pid") as i32
    }

    /// Calls `kill <id> <signal>`.
    pub fn kill(&self, signal: &str) -> Outcome {
        self.case.call(&["kill", &self.id, signal])
    }

    /// Calls `delete`.
    pub fn delete(&self) -> Outcome {
        self.call("delete", &[])
    }

    /// Kills and deletes the container.
    #[track_caller]
    pub fn remove(&self) {
        let pid = self.pid();
        self.kill("KILL").ok();
        self.wait(pid);
        self.delete().ok();
    }

    /// Waits until a process of the container has exited. Returns its exit code, or 128 + the signal, if it was
    /// reparented to this process.
    #[track_caller]
    pub fn wait(&self, pid: i32) -> Option<i32> {
        reaper::wait(pid).unwrap_or_else(|()| panic!("process {pid} of {} did not exit", self.id))
    }

    /// Calls `exec <flags> <id> <args>`.
    pub fn exec(&self, flags: &[&str], args: &[&str]) -> Outcome {
        self.case.call(&[&["exec"], flags, &[&self.id], args].concat())
    }

    /// Runs a script in the container by `exec` and returns its output.
    #[track_caller]
    pub fn exec_script(&self, script: &str) -> String {
        self.exec(&[], &["/bin/sh", "-c", script]).ok().to_owned()
    }

    /// Returns the cgroup of the container.
    pub fn cgroup(&self) -> Cgroup {
        Cgroup::new(self.bundle.spec["linux"]["cgroupsPath"].as_str().expect("cgroupsPath"))
    }

    /// Waits until a file of the root file system contains a complete line, and returns its content.
    #[track_caller]
    pub fn wait_for_line(&self, inside: &str) -> String {
        let path = self.bundle.path(inside);
        wait_until(&format!("a line in {inside}"), || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        fs::read_to_string(path).expect("the file exists").trim().to_owned()
    }
}
