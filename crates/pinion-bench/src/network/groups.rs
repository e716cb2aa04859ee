//! The cgroups of a node. A process of its own removes them, so that nothing is left of a run that is interrupted or killed.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::engine::Failure;

/// Prefix of the names.
const PREFIX: &str = "pinion-bench-network-";
/// The highest priority, so that other processes of the machine disturb the measurement as little as possible.
const SHARES: &str = "262144";
const WEIGHT: &str = "10000";
/// How often removal is tried: the kernel ends the processes of a node some time after its init.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(50);

/// Arguments of `pinion-bench network-sweeper`.
#[derive(clap::Args)]
pub(crate) struct SweeperArguments {
    /// Name of the groups
    group: String,
}

/// Removes the groups of a node when standard input ends.
pub(crate) fn sweep(arguments: &SweeperArguments) -> Result<(), Failure> {
    let name = &arguments.group;
    if !name.starts_with(PREFIX) || name.contains('/') {
        return Err(Failure(format!("{name:?} is not a name of cgroups of a node")));
    }
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(|e| Failure(format!("wait for the end of a run: {e}")))?;
    for _ in 0..TRIES {
        if remove(name) {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(Failure(format!("cgroups {name} are left: a process of the node does not end")))
}

/// The cgroups of a node, in the root of each hierarchy.
pub(super) struct Groups {
    name: String,
    sweeper: Child,
}

impl Groups {
    /// Creates the groups with a high priority, where the hierarchy has the controller.
    pub(super) fn create(number: u32) -> Result<Self, Failure> {
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        // In a process group of its own: an interrupt at the terminal does not end it.
        let sweeper = Command::new("/proc/self/exe")
            .args(["network-sweeper", &name])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| Failure(format!("start the process that removes cgroups: {e}")))?;
        for (tree, file, value) in [("cpu", "cpu.shares", SHARES), ("", "cpu.weight", WEIGHT)] {
            let root = Path::new("/sys/fs/cgroup").join(tree);
            if root.join("cgroup.procs").exists() {
                let group = root.join(&name);
                let _ = fs::create_dir(&group);
                let _ = fs::write(group.join(file), value);
                let _ = fs::create_dir(group.join("host"));
            }
        }
        Ok(Self { name, sweeper })
    }

    /// Returns the name. The child `host` is for processes of the node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        // It prints what it cannot remove.
        let _ = self.sweeper.wait();
    }
}

/// Removes the groups of a name in all hierarchies. Returns whether none is left.
fn remove(name: &str) -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let trees = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let groups = trees.chain([root.to_owned()]).map(|tree| tree.join(name)).filter(|group| group.is_dir());
    // All are removed, also behind one that fails.
    groups.filter(|group: &PathBuf| !remove_tree(group)).count() == 0
}

/// Removes a cgroup and those below it. Ends their processes: meters of a run that was killed are not in the node's PID
/// namespace.
fn remove_tree(group: &Path) -> bool {
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok()
}
