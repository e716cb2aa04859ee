//! Groups with the benchmark's limits, on v1, v2 and hybrid machines.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat},
};

/// v1 trees at their usual places; those that are not there are passed over.
const TREES: [&str; 11] =
    ["systemd", "pids", "blkio", "freezer", "devices", "cpuset", "cpuacct", "cpu", "net_cls", "perf_event", "memory"];

/// The files that the benchmark's spec sets, by v1 tree.
const LIMITS: [(&str, &str, &[&str]); 8] = [
    ("cpuset", "cpuset.cpus", &[]),
    ("cpuset", "cpuset.mems", &[]),
    ("cpu", "cpu.shares", &["512"]),
    ("cpu", "cpu.cfs_period_us", &["100000"]),
    ("cpu", "cpu.cfs_quota_us", &["50000"]),
    ("pids", "pids.max", &["100"]),
    ("devices", "devices.deny", &["a"]),
    (
        "devices",
        "devices.allow",
        &[
            "c *:* m",
            "b *:* m",
            "c 1:5 rwm",
            "c 1:3 rwm",
            "c 1:9 rwm",
            "c 1:8 rwm",
            "c 1:7 rwm",
            "c 5:0 rwm",
            "c 5:1 rwm",
            "c 5:2 rwm",
            "c 136:* rwm",
        ],
    ),
];

/// One tree.
struct Tree {
    name: &'static str,
    root: OwnedFd,
    /// Opened for the child's join.
    tasks: OwnedFd,
}

/// The container's groups.
pub(crate) struct Groups {
    trees: Vec<Tree>,
    /// Its directory in the v2 tree.
    v2: Option<OwnedFd>,
    v2_root: Option<OwnedFd>,
    name: String,
}

impl Groups {
    pub(crate) fn make(name: &str) -> io::Result<Self> {
        let mut trees = Vec::new();
        for tree in TREES {
            let Ok(root) = directory(CWD, &format!("/sys/fs/cgroup/{tree}")) else { continue };
            mkdirat(&root, name, Mode::from_raw_mode(0o755))?;
            for (_, file, values) in LIMITS.iter().filter(|(of, ..)| *of == tree) {
                limit(root.as_fd(), name, file, values)?;
            }
            if tree == "memory" {
                limit(root.as_fd(), name, "memory.limit_in_bytes", &["67108864"])?;
            }
            let tasks = open(root.as_fd(), &format!("{name}/tasks"), OFlags::WRONLY)?;
            trees.push(Tree { name: tree, root, tasks });
        }
        let v2 = if trees.is_empty() { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/unified" };
        let v2_root = directory(CWD, v2).ok();
        let v2 = match &v2_root {
            Some(root) => {
                mkdirat(root, name, Mode::from_raw_mode(0o755))?;
                Some(directory(root.as_fd(), name)?)
            }
            None => None,
        };
        Ok(Self { trees, v2, v2_root, name: name.to_owned() })
    }

    pub(crate) fn v2(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(AsFd::as_fd)
    }

    /// In the child.
    pub(crate) fn join(&self, memory: bool) -> io::Result<()> {
        for tree in self.trees.iter().filter(|tree| (tree.name == "memory") == memory) {
            rustix::io::write(&tree.tasks, b"0")?;
        }
        Ok(())
    }

    /// Names of the v1 trees as mount(2) wants them.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.trees.iter().map(|tree| match tree.name {
            "systemd" => (tree.name, "name=systemd".to_owned()),
            name => (name, name.to_owned()),
        })
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        for root in self.trees.iter().map(|tree| &tree.root).chain(&self.v2_root) {
            // The kernel is done with a process a moment after its end can be read.
            while let Err(errno) = unlinkat(root, self.name.as_str(), AtFlags::REMOVEDIR) {
                if errno != rustix::io::Errno::BUSY {
                    return Err(errno.into());
                }
            }
        }
        Ok(())
    }
}

/// Writes the values, or, without any, what the tree's root has.
fn limit(root: BorrowedFd<'_>, group: &str, file: &str, values: &[&str]) -> io::Result<()> {
    let target = open(root, &format!("{group}/{file}"), OFlags::WRONLY)?;
    if values.is_empty() {
        let mut buffer = [0; 256];
        let count = rustix::io::read(open(root, file, OFlags::RDONLY)?, &mut buffer)?;
        rustix::io::write(&target, &buffer[..count])?;
    }
    for value in values {
        rustix::io::write(&target, value.as_bytes())?;
    }
    Ok(())
}

fn directory(at: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    open(at, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

fn open(at: BorrowedFd<'_>, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(at, path, flags | OFlags::CLOEXEC, Mode::empty())?)
}
