use std::{
    env,
    ffi::OsStr,
    process::{self, Command},
};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::run;

/// Set for a test that runs on its node: the id of the node.
const NODE: &str = "PINION_TEST_NODE";

/// The new namespaces of a process: a mount namespace whose mounts are private, and these.
#[derive(Clone, Copy, Debug)]
pub struct Namespaces {
    network: bool,
    pids: bool,
}

impl Namespaces {
    /// Only the mount namespace.
    pub const MOUNT: Self = Self { network: false, pids: false };
    /// A mount and a PID namespace. All its processes are killed when its first process ends.
    pub const PROCESSES: Self = Self { network: false, pids: true };
    /// A mount and a network namespace.
    pub const NETWORK: Self = Self { network: true, pids: false };
    /// A mount, a network and a PID namespace.
    pub const ALL: Self = Self { network: true, pids: true };

    /// Returns a command that runs a program in the new namespaces.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        if self.network {
            command.arg("--net");
        }
        if self.pids {
            command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        }
        command.arg("--").arg(program);
        command
    }

    /// Returns a command that runs one test of this program in the new namespaces.
    pub fn this_test(self, name: &str) -> Command {
        select(self.command(own_path()), name)
    }
}

/// Returns a command that runs one test of this program in another process. Variables of its environment show the test
/// that it is there.
pub fn this_test(name: &str) -> Command {
    select(Command::new(own_path()), name)
}

/// Like [`this_test`], through a wrapper such as strace(1): a program and its arguments.
pub fn this_test_under(wrapper: &[&str], name: &str) -> Command {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(own_path());
    select(command, name)
}

fn own_path() -> std::path::PathBuf {
    env::current_exe().expect("the path of this program")
}

fn select(mut command: Command, name: &str) -> Command {
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    command
}

/// Runs the body of a test on a throwaway node: in a process of its own, in new namespaces, with an empty `/run` and a
/// loopback interface. It can neither change the machine nor leave anything behind. The body must be a closure of the
/// test function itself, because its type names the test.
#[track_caller]
pub fn on_a_node<B: FnOnce()>(namespaces: Namespaces, body: B) {
    match run_on_a_node(test_name::<B>(), namespaces) {
        Some(run) => drop(run.passed()),
        None => body(),
    }
}

/// Returns the name of the test that contains a closure of this type: `module::name` for
/// `suite::module::name::{{closure}}`. A test with a wrong name does not run, which [`TestRun::passed`] reports.
pub fn test_name<B>() -> &'static str {
    let path = std::any::type_name::<B>();
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    path.split_once("::").map_or(path, |(_, name)| name)
}

/// Runs a test again on a throwaway node and returns how it ended; returns `None` on the node, where the test
/// continues.
pub fn run_on_a_node(name: &str, namespaces: Namespaces) -> Option<TestRun> {
    if env::var_os(NODE).is_some() {
        mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).expect("mount a tmpfs on /run");
        if namespaces.network {
            run("ip", &["link", "set", "lo", "up"]);
        }
        return None;
    }
    let mut command = namespaces.this_test(name);
    let out = command.env(NODE, node_id(name)).output().expect("unshare runs");
    let output = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let is_passed = out.status.success() && output.contains("1 passed");
    Some(TestRun { name: name.to_owned(), status: out.status, output, is_passed })
}

/// Returns the id of the node of a test, the same on the node and outside of it: a name for its cgroups.
pub fn node_id(name: &str) -> String {
    env::var(NODE).unwrap_or_else(|_| format!("pinion-test-{}-{name}", process::id()))
}

/// How a test on a node ended.
#[derive(Debug)]
pub struct TestRun {
    name: String,
    status: process::ExitStatus,
    output: String,
    is_passed: bool,
}

impl TestRun {
    /// Returns the output of the test.
    ///
    /// # Panics
    /// If the test failed.
    #[track_caller]
    pub fn passed(self) -> String {
        assert!(self.is_passed, "{} on its node: {}\n{}", self.name, self.status, self.output);
        self.output
    }
}

/// Moves this process, which must have a single thread, into a new mount namespace whose mounts are private.
pub fn own_mounts() {
    syscall::mount_namespace::unshare_mounts().expect("a new mount namespace (are you root?)");
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private mounts");
}
