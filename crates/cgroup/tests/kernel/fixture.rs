//! A separate group per test, processes in it, and mount namespaces with other layouts of trees.

use std::{fs, path::PathBuf};

use cgroup::{Group, GroupPath, Hierarchies, Joiner, Limits};
use rustix::{
    fd::{AsFd, OwnedFd},
    mount::{MountPropagationFlags, UnmountFlags},
    process::{WaitId, WaitIdOptions, WaitIdStatus},
    thread::UnshareFlags,
};
use syscall::clone::{Child, Clone3};

pub(crate) struct Fixture {
    pub(crate) trees: Hierarchies,
    pub(crate) path: GroupPath,
}

impl Fixture {
    pub(crate) fn new(name: &str) -> Self {
        let trees = Hierarchies::open().expect("open the trees");
        let path = GroupPath::parse(&format!("/pinion-test-{}/{name}", std::process::id())).expect("parse the path");
        Self { trees, path }
    }

    pub(crate) fn group(&self, resources: &oci::Resources) -> Group {
        let limits = Limits::from_spec(resources).expect("parse the limits");
        Group::create(&self.trees, &self.path, &limits).expect("create the group")
    }

    /// Returns the path of a file of the group in this test's mount namespace.
    pub(crate) fn file(&self, tree: &str, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/fs/cgroup/{tree}{}/{name}", self.path))
    }

    pub(crate) fn read(&self, tree: &str, name: &str) -> String {
        let path = self.file(tree, name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display())).trim().to_owned()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Ok(group) = Group::open(&self.trees, &self.path) {
            let _ = group.kill();
            if let Err(error) = group.remove() {
                eprintln!("leftover group: {error}");
            }
        }
        self.trees.remove_empty_parents(&self.path, None);
    }
}

/// A child process, which is killed and reaped when dropped.
pub(crate) struct Process {
    pub(crate) pid: rustix::process::Pid,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Process {
    fn new(child: Child) -> Self {
        Self { pid: child.pid, pidfd: child.pidfd, reaped: false }
    }

    pub(crate) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
    }

    /// Waits for the process and returns its exit code, or 128 plus the signal number.
    pub(crate) fn wait(mut self) -> i32 {
        self.reap()
    }

    fn reap(&mut self) -> i32 {
        self.reaped = true;
        let status: WaitIdStatus = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
            .expect("waitid")
            .expect("a wait status");
        status.exit_status().or(status.terminating_signal().map(|s| s + 128)).expect("an exit code or a signal")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}

/// Runs `work` in a process of the group; returns after the process has joined.
pub(crate) fn run_in(joiner: &Joiner, work: impl FnOnce() -> i32) -> Process {
    let (reader, writer) = rustix::pipe::pipe().expect("pipe");
    let child = Clone3 { namespaces: None, cgroup: joiner.v2_dir() }.fork(|| {
        if let Err(error) = joiner.join_early().and_then(|()| joiner.join_memory()) {
            eprintln!("join: {error}");
            return 90;
        }
        let _ = rustix::io::write(&writer, b"j");
        work()
    });
    let process = Process::new(child.expect("clone3"));
    drop(writer);
    assert_eq!(rustix::io::read(&reader, &mut [0; 1][..]).expect("read"), 1, "the child has not joined");
    process
}

/// Runs `work` in a process in the caller's group.
pub(crate) fn run_outside(work: impl FnOnce() -> i32) -> Process {
    Process::new(Clone3::default().fork(work).expect("clone3"))
}

/// Runs `work` in the init of a PID namespace, which only SIGKILL kills.
pub(crate) fn run_as_init(work: impl FnOnce() -> i32) -> Process {
    Process::new(Clone3 { namespaces: Some(UnshareFlags::NEWPID), cgroup: None }.fork(work).expect("clone3"))
}

/// Opens a file in a process of the group; returns 0 or the errno.
pub(crate) fn open_in(group: &Group, path: &'static str, flags: rustix::fs::OFlags) -> i32 {
    let joiner = group.joiner().expect("open the joiner");
    run_in(&joiner, || match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(_) => 0,
        Err(errno) => errno.raw_os_error(),
    })
    .wait()
}

/// Waits forever for a signal.
pub(crate) fn pause() -> i32 {
    loop {
        let _ = rustix::event::poll(&mut [], None);
    }
}

/// Runs a test in a process with a new mount namespace, from which some trees are unmounted first.
pub(crate) fn without_trees(unmount: impl Fn(&str) -> bool, test: impl FnOnce()) {
    let child = Clone3 { namespaces: Some(UnshareFlags::NEWNS), cgroup: None }.fork(|| {
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .expect("make mounts private");
        for point in mount_points().iter().rev().filter(|point| unmount(point)) {
            rustix::mount::unmount(point.as_str(), UnmountFlags::DETACH)
                .unwrap_or_else(|e| panic!("umount {point}: {e}"));
        }
        test();
        0
    });
    assert_eq!(Process::new(child.expect("clone3")).wait(), 0, "the test in a new mount namespace failed");
}

/// Returns the mountpoints of the cgroup trees.
fn mount_points() -> Vec<String> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").expect("read mountinfo");
    let cgroup = |line: &&str| line.contains(" - cgroup ") || line.contains(" - cgroup2 ");
    mountinfo.lines().filter(cgroup).filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
}
