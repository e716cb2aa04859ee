//! Creates cgroups with the limits of the benchmark, in v1, v2 and hybrid layouts.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, Mode, OFlags, fstatfs, mkdirat, openat, unlinkat},
};

/// v1 hierarchies at their default paths; those that are not mounted are skipped.
const TREES: [&str; 11] =
    ["systemd", "pids", "blkio", "freezer", "devices", "cpuset", "cpuacct", "cpu", "net_cls", "perf_event", "memory"];

/// The files that the spec of the benchmark sets, by v1 hierarchy; without values they are copied from the root.
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

/// A v1 hierarchy.
struct Tree {
    name: &'static str,
    root: OwnedFd,
    /// `tasks` of the container's cgroup, which the child writes.
    tasks: OwnedFd,
}

/// Type of the file system of cgroup v2: CGROUP2_SUPER_MAGIC in magic.h of the kernel.
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// The cgroups of the container.
pub(crate) struct Cgroups {
    trees: Vec<Tree>,
    /// The directory in the v2 hierarchy.
    v2: Option<OwnedFd>,
    v2_root: Option<OwnedFd>,
    name: String,
}

impl Cgroups {
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let mut trees = Vec::new();
        for tree in TREES {
            let Ok(root) = directory(CWD, &format!("/sys/fs/cgroup/{tree}")) else { continue };
            mkdirat(&root, name, Mode::from_raw_mode(0o755))?;
            for (_, file, values) in LIMITS.iter().filter(|(name, ..)| *name == tree) {
                set_limit(root.as_fd(), name, file, values)?;
            }
            if tree == "memory" {
                set_limit(root.as_fd(), name, "memory.limit_in_bytes", &["67108864"])?;
            }
            let tasks = open(root.as_fd(), &format!("{name}/tasks"), OFlags::WRONLY)?;
            trees.push(Tree { name: tree, root, tasks });
        }
        let v2 = if trees.is_empty() { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/unified" };
        // Where v2 is hidden, there may be an empty directory.
        let v2_root = directory(CWD, v2).ok().filter(|root| fstatfs(root).is_ok_and(|fs| fs.f_type == CGROUP2_MAGIC));
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

    /// Joins the v1 memory cgroup or all others; to be called in the child.
    pub(crate) fn join(&self, memory: bool) -> io::Result<()> {
        for tree in self.trees.iter().filter(|tree| (tree.name == "memory") == memory) {
            rustix::io::write(&tree.tasks, b"0")?;
        }
        Ok(())
    }

    /// Returns the names of the v1 hierarchies and their mount options.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.trees.iter().map(|tree| match tree.name {
            "systemd" => (tree.name, "name=systemd".to_owned()),
            name => (name, name.to_owned()),
        })
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        for root in self.trees.iter().map(|tree| &tree.root).chain(&self.v2_root) {
            // The kernel removes a process from its cgroup shortly after its exit status can be read.
            while let Err(errno) = unlinkat(root, self.name.as_str(), AtFlags::REMOVEDIR) {
                if errno != rustix::io::Errno::BUSY {
                    return Err(errno.into());
                }
            }
        }
        Ok(())
    }
}

/// Writes the values, or copies the value of the root cgroup if there are none.
fn set_limit(root: BorrowedFd<'_>, group: &str, file: &str, values: &[&str]) -> io::Result<()> {
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
