use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use tempfile::TempDir;

use crate::{Bundle, Cgroup, Container, Outcome, Runtime, leftovers, reaper};

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// One test case on one runtime, with its own directory, state root, container ids and cgroups.
#[derive(Debug)]
pub struct Case {
    /// The runtime under test.
    pub runtime: Runtime,
    /// Prefix of every container id and cgroup of this case.
    pub tag: String,
    directory: TempDir,
    next: Cell<usize>,
}

/// A program that runs in the background of a case. The reaper waits for it.
#[derive(Debug)]
pub struct BackgroundProcess(process::Child);

impl BackgroundProcess {
    /// Kills the process.
    pub fn kill(&mut self) {
        self.0.kill().expect("kill the process");
    }
}

impl Case {
    pub(crate) fn new(runtime: Runtime) -> Self {
        let tag = format!("pinion-test-oci-{}-{}.", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = TempDir::with_prefix("pinion-oci-").expect("create a temporary directory");
        Self { runtime, tag, directory, next: Cell::new(0) }
    }

    /// Returns the directory of the case.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the state directory of the runtime (`--root`).
    pub fn state(&self) -> PathBuf {
        self.directory().join("state")
    }

    fn number(&self) -> usize {
        self.next.replace(self.next.get() + 1)
    }

    /// Creates a bundle whose container exits at once with code 0.
    pub fn bundle(&self) -> Bundle {
        Bundle::create(self.directory().join(format!("bundle{}", self.number())), self.runtime, &self.tag)
    }

    /// Creates a bundle whose container runs a script.
    pub fn script(&self, script: &str) -> Bundle {
        let mut bundle = self.bundle();
        bundle.script(script);
        bundle
    }

    /// Returns a container of a bundle with a new id and a new cgroup. Writes `config.json`, but does not call the
    /// runtime.
    pub fn container(&self, mut bundle: Bundle) -> Container<'_> {
        let id = format!("{}{}", self.tag, self.number());
        if bundle.spec["linux"]["cgroupsPath"].is_null() {
            bundle.spec["linux"]["cgroupsPath"] = json!(Cgroup::path_of(&id));
        }
        bundle.write();
        Container::new(self, id, bundle)
    }

    /// Runs a script in a container whose bundle is changed first, and returns its output.
    #[track_caller]
    pub fn output(&self, script: &str, change: impl FnOnce(&mut Bundle)) -> String {
        let mut bundle = self.script(script);
        change(&mut bundle);
        self.container(bundle).run().ok().to_owned()
    }

    /// Panics unless the runtime refuses a changed bundle with an error that contains one of the words, and leaves
    /// nothing behind.
    ///
    /// The words are alternatives; each names the invalid property or its value.
    #[track_caller]
    pub fn assert_refused(&self, words: &[&str], change: impl FnOnce(&mut Bundle)) {
        let mut bundle = self.bundle();
        change(&mut bundle);
        let container = self.container(bundle);
        container.run().error_with(words);
        self.assert_no_leftovers();
    }

    /// Panics if a state, cgroup, mount or process of this case exists.
    #[track_caller]
    pub fn assert_no_leftovers(&self) {
        let leftovers = leftovers::find(&self.tag, self.directory(), &self.state());
        assert!(leftovers.is_empty(), "leftovers of the case:\n{}", leftovers.join("\n"));
    }

    /// Calls the runtime, with `--root` before the arguments.
    pub fn call(&self, args: &[&str]) -> Outcome {
        self.call_with(args, |_| {})
    }

    /// Calls the runtime after changing the command.
    pub fn call_with(&self, args: &[&str], change: impl FnOnce(&mut process::Command)) -> Outcome {
        let mut command = self.command(args);
        change(&mut command);
        Outcome::run(&mut command, self.directory(), &format!("call{}", self.number()))
    }

    /// Returns the command of a call without running it.
    pub fn command(&self, args: &[&str]) -> process::Command {
        self.command_for(&self.runtime.program(), args)
    }

    /// Returns the command of a call of another copy of the runtime.
    pub fn command_for(&self, program: &Path, args: &[&str]) -> process::Command {
        let mut command = self.runtime.command_for(program);
        command.arg("--root").arg(self.state());
        if Cgroup::uses_systemd() && args.first() != Some(&"--systemd-cgroup") {
            command.arg("--systemd-cgroup");
        }
        command.args(args);
        command.env("PINION_OCI_CASE", &self.tag).stdin(process::Stdio::null());
        command
    }

    /// Starts a program in the background; [`Case::wait`] waits for it.
    pub fn spawn(&self, command: &mut process::Command) -> BackgroundProcess {
        BackgroundProcess(reaper::spawn(command).unwrap_or_else(|error| panic!("run {command:?}: {error}")))
    }

    /// Waits for a background process. Returns its exit code, or 128 + the signal.
    #[track_caller]
    pub fn wait(&self, process: &BackgroundProcess) -> i32 {
        reaper::wait(process.0.id() as i32).ok().flatten().expect("the process exits")
    }

    /// Calls the runtime from a shell that first does something else, such as opening descriptors. `script` ends with
    /// `"$@"`.
    pub fn call_from(&self, script: &str, args: &[&str]) -> Outcome {
        let runtime = self.command(args);
        let call = std::iter::once(runtime.get_program()).chain(runtime.get_args());
        let mut command = process::Command::new("bash");
        command.args(["-c", script, "bash"]).args(call).env("PINION_OCI_CASE", &self.tag).stdin(process::Stdio::null());
        Outcome::run(&mut command, self.directory(), &format!("call{}", self.number()))
    }

    /// Runs a program of the machine.
    pub fn program(&self, program: &str, args: &[&str]) -> Outcome {
        Outcome::run(process::Command::new(program).args(args), self.directory(), &format!("call{}", self.number()))
    }

    /// Writes a file into the directory of the case and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory().join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path.to_str().expect("the path is ASCII").to_owned()
    }
}
