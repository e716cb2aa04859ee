use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use tempfile::TempDir;

use crate::{Bundle, Cgroup, Container, Outcome, Runtime, left, reaper};

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// One case on one runtime: a directory, a root of states, ids and cgroups of its own.
#[derive(Debug)]
pub struct Case {
    /// The runtime under test.
    pub runtime: Runtime,
    /// The beginning of every id and cgroup of this case.
    pub tag: String,
    directory: TempDir,
    next: Cell<usize>,
}

/// A program that runs beside the case; the reaper waits for it.
#[derive(Debug)]
pub struct Started(process::Child);

impl Started {
    /// Ends it.
    pub fn kill(&mut self) {
        self.0.kill().expect("it was not waited for");
    }
}

impl Case {
    pub(crate) fn new(runtime: Runtime) -> Self {
        let tag = format!("pinion-test-oci-{}-{}.", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = TempDir::with_prefix("pinion-oci-").expect("a temporary directory");
        Self { runtime, tag, directory, next: Cell::new(0) }
    }

    /// The case's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where the runtime keeps its state (`--root`).
    pub fn state(&self) -> PathBuf {
        self.directory().join("state")
    }

    fn number(&self) -> usize {
        self.next.replace(self.next.get() + 1)
    }

    /// A new bundle, whose container ends at once with success.
    pub fn bundle(&self) -> Bundle {
        Bundle::make(self.directory().join(format!("bundle{}", self.number())), self.runtime, &self.tag)
    }

    /// A new bundle whose container runs a script.
    pub fn script(&self, script: &str) -> Bundle {
        let mut bundle = self.bundle();
        bundle.script(script);
        bundle
    }

    /// A container of a bundle, with an id and a cgroup of its own; nothing is called yet.
    pub fn container(&self, mut bundle: Bundle) -> Container<'_> {
        let id = format!("{}{}", self.tag, self.number());
        if bundle.spec["linux"]["cgroupsPath"].is_null() {
            bundle.spec["linux"]["cgroupsPath"] = json!(Cgroup::path_of(&id));
        }
        bundle.write();
        Container::new(self, id, bundle)
    }

    /// The output of a script in a container whose bundle was changed.
    #[track_caller]
    pub fn output(&self, script: &str, change: impl FnOnce(&mut Bundle)) -> String {
        let mut bundle = self.script(script);
        change(&mut bundle);
        self.container(bundle).run().ok().to_owned()
    }

    /// Panics unless the runtime refuses a changed bundle with one of the words, and leaves nothing.
    ///
    /// Every word must tell what is wrong to who reads it: the property or its value.
    #[track_caller]
    pub fn refused(&self, words: &[&str], change: impl FnOnce(&mut Bundle)) {
        let mut bundle = self.bundle();
        change(&mut bundle);
        let container = self.container(bundle);
        container.run().error_with(words);
        self.nothing_is_left();
    }

    /// Panics if there is a state, cgroup, mount or process of this case.
    #[track_caller]
    pub fn nothing_is_left(&self) {
        let left = left::behind(&self.tag, self.directory(), &self.state());
        assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    }

    /// Calls the runtime, with the case's root of states before the arguments.
    pub fn call(&self, args: &[&str]) -> Outcome {
        self.call_with(args, |_| {})
    }

    /// The same, with the call changed before.
    pub fn call_with(&self, args: &[&str], change: impl FnOnce(&mut process::Command)) -> Outcome {
        let mut command = self.command(args);
        change(&mut command);
        Outcome::of(&mut command, self.directory(), &format!("call{}", self.number()))
    }

    /// The call itself, for who runs it in another way.
    pub fn command(&self, args: &[&str]) -> process::Command {
        self.command_of(&self.runtime.program(), args)
    }

    /// A call of a copy of the runtime.
    pub fn command_of(&self, program: &Path, args: &[&str]) -> process::Command {
        let mut command = self.runtime.command_of(program);
        command.arg("--root").arg(self.state());
        if Cgroup::by_systemd() && args.first() != Some(&"--systemd-cgroup") {
            command.arg("--systemd-cgroup");
        }
        command.args(args);
        command.env("PINION_OCI_CASE", &self.tag).stdin(process::Stdio::null());
        command
    }

    /// Starts a program that is waited for later, by [`Case::wait`].
    pub fn spawn(&self, command: &mut process::Command) -> Started {
        Started(reaper::spawn(command).unwrap_or_else(|error| panic!("run {command:?}: {error}")))
    }

    /// Waits for a started program; its exit code, or 128 and the signal.
    #[track_caller]
    pub fn wait(&self, started: &Started) -> i32 {
        reaper::wait(started.0.id() as i32).ok().flatten().expect("it ends")
    }

    /// Calls the runtime from a shell that did something before, such as opening descriptors: `script` ends with
    /// `"$@"`.
    pub fn call_from(&self, script: &str, args: &[&str]) -> Outcome {
        let inner = self.command(args);
        let call = std::iter::once(inner.get_program()).chain(inner.get_args());
        let mut command = process::Command::new("bash");
        command.args(["-c", script, "bash"]).args(call).env("PINION_OCI_CASE", &self.tag).stdin(process::Stdio::null());
        Outcome::of(&mut command, self.directory(), &format!("call{}", self.number()))
    }

    /// Runs another program of the machine.
    pub fn program(&self, program: &str, args: &[&str]) -> Outcome {
        Outcome::of(process::Command::new(program).args(args), self.directory(), &format!("call{}", self.number()))
    }

    /// Writes a file into the case's directory.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory().join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path.to_str().expect("a directory of ASCII").to_owned()
    }
}
