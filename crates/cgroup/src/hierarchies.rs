use std::sync::Arc;

use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
    process::Pid,
};

use crate::{
    Error, GroupPath,
    controller::{Controller, Controllers},
    privileges,
    tree::Tree,
};

/// The magic number of the cgroup v1 file system (`linux/magic.h`).
pub(crate) const CGROUP_SUPER_MAGIC: u64 = 0x27_e0eb;
/// The magic number of the cgroup v2 file system.
pub(crate) const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// The combination of mounted trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// v1 trees only.
    V1,
    /// v1 trees with the controllers, and the v2 tree next to them.
    Hybrid,
    /// The v2 tree has the controllers.
    V2,
}

/// The mounted trees, as directory descriptors, so that they can be used in any mount namespace. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hierarchies {
    pub(crate) trees: Arc<[Arc<Tree>]>,
}

impl Hierarchies {
    /// Finds and opens the mounted trees. To be called once, in the host's mount namespace (or another one in which the
    /// trees are mounted).
    ///
    /// If every tree is mounted where systemd mounts it, mountinfo is not read, which takes milliseconds with thousands
    /// of mounts.
    pub fn open() -> Result<Self, Error> {
        match Self::open_at_default_paths()? {
            Some(trees) => Ok(trees),
            None => Self::open_from_mountinfo(),
        }
    }

    /// Opens the trees of `/proc/self/cgroup` if all are mounted at their default paths below `/sys/fs/cgroup`; else
    /// returns `None`.
    fn open_at_default_paths() -> Result<Option<Self>, Error> {
        let list = read_proc("/proc/self/cgroup")?;
        let names: Vec<&str> = list.lines().filter_map(|line| line.split(':').nth(1)).collect();
        let mut trees = Vec::with_capacity(names.len());
        for name in &names {
            let directory = match *name {
                "" if names.len() == 1 => "",
                "" => "/unified",
                name => &format!("/{}", name.strip_prefix("name=").unwrap_or(name)),
            };
            let point = format!("/sys/fs/cgroup{directory}");
            let Some(tree) = (Mount { point, v2: name.is_empty(), options: name }).open()? else { return Ok(None) };
            trees.push(Arc::new(tree));
        }
        Ok((!trees.is_empty()).then(|| Self { trees: trees.into() }))
    }

    fn open_from_mountinfo() -> Result<Self, Error> {
        let mountinfo = read_proc("/proc/self/mountinfo")?;
        let mut trees: Vec<Arc<Tree>> = Vec::new();
        for mount in mountinfo.lines().filter_map(Mount::parse) {
            if !trees.iter().any(|tree| tree.name == mount.name())
                && let Some(tree) = mount.open()?
            {
                trees.push(Arc::new(tree));
            }
        }
        if trees.is_empty() {
            return Err(Error::NoTree);
        }
        Ok(Self { trees: trees.into() })
    }

    /// Returns the layout.
    pub fn layout(&self) -> Layout {
        let v1 = self.trees().any(|tree| !tree.v2 && !tree.controllers.is_empty());
        match (v1, self.v2().is_some()) {
            (true, true) => Layout::Hybrid,
            (false, true) => Layout::V2,
            _ => Layout::V1,
        }
    }

    /// Reports whether the v2 tree is the main one, as on a host that mounts it on `/sys/fs/cgroup`: no v1 tree is
    /// mounted, or only trees without the controllers cpu, memory and pids (for example `net_cls` for a VPN).
    pub fn is_unified(&self) -> bool {
        let main = [Controller::Cpu, Controller::Memory, Controller::Pids];
        let has_main = |tree: &Tree| main.iter().any(|controller| tree.controllers.has(*controller));
        self.layout() == Layout::V2 || self.v2().is_some_and(has_main)
    }

    /// Returns the tree with this controller: a v1 tree, or the v2 tree if that has it.
    pub(crate) fn with(&self, controller: Controller) -> Option<&Tree> {
        self.trees().find(|tree| tree.controllers.has(controller))
    }

    /// Whether huge pages can be limited: the controller `hugetlb` is available.
    pub fn limits_huge_pages(&self) -> bool {
        self.with(Controller::Hugetlb).is_some()
    }

    pub(crate) fn v2(&self) -> Option<&Tree> {
        self.trees().find(|tree| tree.v2)
    }

    pub(crate) fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.trees.iter().map(|tree| &**tree)
    }

    /// Returns the trees for which `keep` returns true.
    pub(crate) fn only(&self, keep: impl Fn(&Tree) -> bool) -> Self {
        Self { trees: self.trees.iter().filter(|tree| keep(tree)).cloned().collect() }
    }

    /// Returns the tree in which groups are listed, frozen and killed: v2, else the freezer's, else any.
    pub(crate) fn primary(&self) -> Option<&Tree> {
        self.v2().or_else(|| self.with(Controller::Freezer)).or_else(|| self.trees().next())
    }

    /// Reports whether the memory controller, and so the other important controllers, are in the v2 tree.
    pub(crate) fn memory_is_v2(&self) -> bool {
        self.with(Controller::Memory).or(self.v2()).is_some_and(|tree| tree.v2)
    }

    /// Resolves the relative path of a container: against the root; for an unprivileged user against the parent of the
    /// caller's cgroup, which may be delegated to the user.
    pub fn resolve(&self, relative: &str) -> Result<GroupPath, Error> {
        if privileges::is_host_root() || self.layout() != Layout::V2 {
            return GroupPath::parse(&format!("/{relative}"));
        }
        let parent = self.path_of(rustix::process::getpid()).ok().and_then(|path| path.parent());
        GroupPath::parse(&format!("{}/{relative}", parent.as_ref().map_or("", GroupPath::as_str)))
    }

    /// Returns the cgroup of a process (cgroups(7)): in the v2 tree if that has the controllers, else in systemd's
    /// named v1 tree.
    pub(crate) fn path_of(&self, pid: Pid) -> Result<GroupPath, Error> {
        let file = format!("/proc/{pid}/cgroup");
        let text = std::fs::read_to_string(&file).map_err(|source| Error::Io {
            operation: "read".into(),
            object: file.clone(),
            source,
        })?;
        let line = if self.layout() == Layout::V2 { "0::" } else { ":name=systemd:" };
        let path = text.lines().find_map(|text| text.split_once(line)).map(|(_, path)| path);
        let missing = || Error::Missing { path: file, tree: line.trim_matches(':').to_owned() };
        GroupPath::parse(path.ok_or_else(missing)?)
    }

    /// Removes the empty groups above `path`, up to but not including `keep` (`None`: the root). Groups that are in use
    /// or do not exist are not errors.
    pub fn remove_empty_parents(&self, path: &GroupPath, keep: Option<&GroupPath>) {
        for tree in self.trees() {
            let mut at = path.parent();
            while let Some(group) = at.filter(|group| Some(group) != keep) {
                if !matches!(tree.rmdir(group.relative()), Ok(()) | Err(Errno::NOENT)) {
                    break;
                }
                at = group.parent();
            }
        }
    }

    /// Reports whether the group has child groups in any tree.
    pub fn has_children(&self, path: &GroupPath) -> bool {
        self.trees().any(|tree| tree.children(path.relative()).is_ok_and(|names| !names.is_empty()))
    }

    /// Reports whether the group exists in any tree.
    pub fn contains(&self, path: &GroupPath) -> bool {
        self.trees().any(|tree| tree.exists(path.relative()))
    }
}

fn read_proc(file: &str) -> Result<String, Error> {
    let read = syscall::proc_file::read(file);
    read.map_err(|source| Error::Io { operation: "read".into(), object: file.into(), source })
}

/// A cgroup mount in a line of mountinfo.
struct Mount<'a> {
    point: String,
    v2: bool,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let v2 = match right.next()? {
            "cgroup" => false,
            "cgroup2" => true,
            _ => return None,
        };
        let options = right.nth(1)?;
        Some(Self { point: unescape(left.split(' ').nth(4)?), v2, options })
    }

    /// Returns the controllers in the kernel's order, or the name.
    fn name(&self) -> String {
        if self.v2 {
            return "unified".into();
        }
        let flags = ["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods", "seclabel"];
        let words = self.options.split(',').filter(|w| !flags.contains(w) && !w.starts_with("release_agent="));
        words.collect::<Vec<_>>().join(",")
    }

    /// Opens the tree. Returns `None` if another file system is mounted over it, or if the path does not exist.
    fn open(&self) -> Result<Option<Tree>, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match rustix::fs::openat(CWD, self.point.as_str(), flags, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(Error::io("open", self.point.clone(), errno)),
        };
        let magic = rustix::fs::fstatfs(&root).map_err(|e| Error::io("fstatfs", self.point.clone(), e))?.f_type;
        if magic as u64 != if self.v2 { CGROUP2_SUPER_MAGIC } else { CGROUP_SUPER_MAGIC } {
            return Ok(None);
        }
        let mut tree = Tree { name: self.name(), v2: self.v2, controllers: Controllers::default(), root };
        tree.controllers = if self.v2 {
            Controllers::from_v2_list(&tree.read_value("cgroup.controllers")?)
        } else {
            Controllers::from_v1_options(self.options)
        };
        Ok(Some(tree))
    }
}

/// Decodes `\ooo`, by which mountinfo escapes space, tab, newline and backslash.
fn unescape(field: &str) -> String {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [byte, after @ ..] = rest {
        let digits = after.get(..3).filter(|digits| *byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        out.push(digits.map_or(*byte, |digits| digits.iter().fold(0u8, |n, d| n.wrapping_mul(8) + (d - b'0'))));
        rest = &after[if digits.is_some() { 3 } else { 0 }..];
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unified_tree_has_the_main_controllers() {
        let tree = |v2: bool, controllers: Controllers| {
            let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            Arc::new(Tree { name: String::new(), v2, controllers, root })
        };
        let (v1, v2) = (Controllers::from_v1_options, Controllers::from_v2_list);
        for (trees, unified) in [
            (vec![tree(true, v2("cpu memory pids"))], true),
            (vec![tree(true, v2(""))], true),
            (vec![tree(true, v2("cpu memory pids")), tree(false, v1("rw,net_cls"))], true),
            (vec![tree(true, v2("")), tree(false, v1("rw,cpu,cpuacct")), tree(false, v1("rw,memory"))], false),
            (vec![tree(true, v2("misc")), tree(false, v1("rw,memory"))], false),
            (vec![tree(false, v1("rw,memory"))], false),
        ] {
            assert_eq!(Hierarchies { trees: trees.into() }.is_unified(), unified);
        }
    }

    #[test]
    fn mountinfo_is_parsed() {
        let line = r"32 31 0:29 / /sys/fs/cgroup/cpu\040x rw,relatime shared:9 - cgroup cgroup rw,seclabel,cpu,cpuacct,release_agent=/x";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(
            (mount.point.as_str(), mount.v2, mount.name().as_str()),
            ("/sys/fs/cgroup/cpu x", false, "cpu,cpuacct")
        );
        let set = Controllers::from_v1_options(mount.options);
        assert!(set.has(Controller::Cpu) && set.has(Controller::Cpuacct) && !set.has(Controller::Memory));
        let named = Mount::parse("40 31 0:37 / /s rw - cgroup cgroup rw,xattr,name=systemd").unwrap();
        assert_eq!(named.name(), "name=systemd");
        assert!(Mount::parse("41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw").unwrap().v2);
        assert!(Mount::parse("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755").is_none());
        assert!(Mount::parse("nonsense").is_none());
    }
}
