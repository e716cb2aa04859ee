use std::{fs, process::Command};

use serde_json::Value;

use crate::{Bundle, Case, Cgroup, Outcome, reaper, wait_until};

/// One id on one runtime.
#[derive(Debug)]
pub struct Container<'a> {
    /// The case it belongs to.
    pub case: &'a Case,
    /// Its id.
    pub id: String,
    /// Its bundle.
    pub bundle: Bundle,
}

impl<'a> Container<'a> {
    pub(crate) fn new(case: &'a Case, id: String, bundle: Bundle) -> Self {
        Self { case, id, bundle }
    }

    fn bundle_path(&self) -> &str {
        self.bundle.directory.to_str().expect("a directory of ASCII")
    }

    /// `<command> <flags> <id>`
    pub fn call(&self, command: &str, flags: &[&str]) -> Outcome {
        self.case.call(&[&[command], flags, &[&self.id]].concat())
    }

    /// `<command> --bundle <bundle> <flags> <id>`, with the call changed before.
    pub fn call_with_bundle(&self, command: &str, flags: &[&str], change: impl FnOnce(&mut Command)) -> Outcome {
        self.case.call_with(&[&[command, "--bundle", self.bundle_path()], flags, &[&self.id]].concat(), change)
    }

    /// `run`
    pub fn run(&self) -> Outcome {
        self.call_with_bundle("run", &[], |_| {})
    }

    /// `create`
    pub fn create(&self) -> Outcome {
        self.create_with(&[])
    }

    /// `create` with flags.
    pub fn create_with(&self, flags: &[&str]) -> Outcome {
        self.call_with_bundle("create", flags, |_| {})
    }

    /// `start`
    pub fn start(&self) -> Outcome {
        self.call("start", &[])
    }

    /// Creates and starts it; returns the creation, to whose files the container writes.
    #[track_caller]
    pub fn started(&self) -> &Self {
        self.create().ok();
        self.start().ok();
        self
    }

    /// `state` as JSON.
    #[track_caller]
    pub fn state(&self) -> Value {
        self.call("state", &[]).json()
    }

    /// `status` of its state.
    #[track_caller]
    pub fn status(&self) -> String {
        self.state()["status"].as_str().expect("status").to_owned()
    }

    /// `pid` of its state.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.state()["pid"].as_i64().expect("pid") as i32
    }

    /// `kill <id> <signal>`
    pub fn kill(&self, signal: &str) -> Outcome {
        self.case.call(&["kill", &self.id, signal])
    }

    /// `delete`
    pub fn delete(&self) -> Outcome {
        self.call("delete", &[])
    }

    /// Kills and removes it.
    #[track_caller]
    pub fn remove(&self) {
        let pid = self.pid();
        self.kill("KILL").ok();
        self.wait(pid);
        self.delete().ok();
    }

    /// Waits until its process ended; its exit code, or 128 and the signal, where it fell to us.
    #[track_caller]
    pub fn wait(&self, pid: i32) -> Option<i32> {
        reaper::wait(pid).unwrap_or_else(|()| panic!("{} did not end", self.id))
    }

    /// `exec <flags> <id> <args>`
    pub fn exec(&self, flags: &[&str], args: &[&str]) -> Outcome {
        self.case.call(&[&["exec"], flags, &[&self.id], args].concat())
    }

    /// The output of a script in the container.
    #[track_caller]
    pub fn inside(&self, script: &str) -> String {
        self.exec(&[], &["/bin/sh", "-c", script]).ok().to_owned()
    }

    /// Its cgroup.
    pub fn cgroup(&self) -> Cgroup {
        Cgroup::new(self.bundle.spec["linux"]["cgroupsPath"].as_str().expect("cgroupsPath"))
    }

    /// What a file of its root holds; waits until it is there with a whole line.
    #[track_caller]
    pub fn line(&self, inside: &str) -> String {
        let path = self.bundle.path(inside);
        wait_until(&format!("a line in {inside}"), || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        fs::read_to_string(path).expect("it was there").trim().to_owned()
    }
}
