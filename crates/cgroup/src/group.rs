use std::sync::OnceLock;

use rustix::process::Pid;

use crate::{Error, GroupPath, Hierarchies, privileges, stat_readers::Readers, systemd::Unit, tree::Tree};

/// A cgroup that exists in every tree; or, from [`Group::exec_group`], one that has its own directory in one tree and
/// is its parent in the others.
#[derive(Debug)]
pub struct Group {
    pub(crate) trees: Hierarchies,
    /// The path in every tree.
    pub(crate) path: GroupPath,
    /// The directory of an exec group in the primary tree.
    pub(crate) sub: Option<GroupPath>,
    /// Other paths in some trees, by the name of the tree ([`Group::descendant`]).
    pub(crate) paths: Vec<(String, GroupPath)>,
    /// The systemd unit of the group.
    pub(crate) unit: Option<Box<Unit>>,
    /// The files of the statistics, opened on first use.
    pub(crate) readers: OnceLock<Readers>,
}

impl Group {
    pub(crate) fn new(trees: &Hierarchies, path: GroupPath, sub: Option<GroupPath>) -> Self {
        Self { trees: trees.clone(), path, sub, paths: Vec::new(), unit: None, readers: OnceLock::new() }
    }

    /// Returns the name of the group's systemd unit, with which [`Unit::open`] opens the group again.
    pub fn unit_name(&self) -> Option<&str> {
        self.unit.as_ref().map(|unit| unit.name())
    }

    /// Opens an existing group (after a restart, or for statistics). It must exist in the primary tree: v2, or if that
    /// is not mounted, the freezer's. For an unprivileged user the result may be a group without directories, as their
    /// containers may have no cgroup ([`Group::has_directory`]).
    pub fn open(trees: &Hierarchies, path: &GroupPath) -> Result<Self, Error> {
        let tree = trees.primary().ok_or(Error::NoTree)?;
        if tree.exists(path.relative()) || !privileges::is_host_root() {
            return Ok(Self::open_unchecked(trees, path));
        }
        Err(Error::Missing { path: path.to_string(), tree: tree.name.clone() })
    }

    /// Returns a group without directories: a process that joins it stays where it is, and it cannot be limited, frozen
    /// or killed as a whole.
    pub fn without_directory(trees: &Hierarchies, path: &GroupPath) -> Self {
        Self::new(&trees.only(|_| false), path.clone(), None)
    }

    /// Opens a group that may not exist anymore.
    pub(crate) fn open_unchecked(trees: &Hierarchies, path: &GroupPath) -> Self {
        if privileges::is_host_root() {
            return Self::new(trees, path.clone(), None);
        }
        // An unprivileged user has a directory only in delegated trees.
        Self::new(&trees.only(|tree| tree.exists(path.relative())), path.clone(), None)
    }

    /// Creates a child group for one exec'd process and its descendants: one directory, in the v2 tree (without v2 in
    /// the freezer's), so that they can be killed and listed as a whole. The limits of this group apply. In a v2 tree
    /// with controllers the child group is next to processes, which the kernel allows because no controllers are
    /// enabled for it.
    pub fn exec_group(&self, name: &str) -> Result<Group, Error> {
        let sub = self.path.join(name)?;
        // If the container has no cgroup, its exec'd processes do not have one either.
        let Some(tree) = self.trees.primary() else { return Ok(Self::new(&self.trees, self.path.clone(), None)) };
        tree.mkdir(sub.relative()).map_err(|errno| match errno {
            rustix::io::Errno::EXIST => {
                Error::Occupied { path: sub.to_string(), by: "a cgroup of that name exists".into() }
            }
            errno => Error::io("mkdir", tree.describe(sub.relative()), errno),
        })?;
        Ok(Group { unit: self.unit.clone(), ..Self::new(&self.trees, self.path.clone(), Some(sub)) })
    }

    /// Requests systemd to move a process of the calling user into the group. A process outside of the user's delegated
    /// cgroups may not do that itself (`EACCES`). Only for a group of a systemd unit.
    pub fn attach(&self, pid: Pid) -> Result<(), Error> {
        let unit = self.unit.as_ref().ok_or_else(|| Error::NoGroup { path: self.path().to_string() })?;
        unit.attach(self.sub.as_ref().map_or("", GroupPath::name), pid)
    }

    /// Reports whether the group was created by [`Group::exec_group`].
    pub fn is_exec_group(&self) -> bool {
        self.sub.is_some()
    }

    /// Opens a group that [`Group::exec_group`] created (after a restart).
    pub fn open_exec_group(&self, name: &str) -> Result<Group, Error> {
        let (tree, sub) = (self.primary()?, self.path.join(name)?);
        if !tree.exists(sub.relative()) {
            return Err(Error::Missing { path: sub.to_string(), tree: tree.name.clone() });
        }
        Ok(Self::new(&self.trees, self.path.clone(), Some(sub)))
    }

    /// Opens the child groups for which `is_exec_name` returns true for their names: a container may create other child
    /// groups. A group that is removed in the meantime is skipped.
    pub fn exec_groups(&self, is_exec_name: impl Fn(&str) -> bool) -> Result<Vec<Group>, Error> {
        let (tree, path) = (self.primary()?, self.path.relative());
        let names = tree.children(path).map_err(|errno| Error::io("list", tree.describe(path), errno))?;
        Ok(names.iter().filter(|name| is_exec_name(name)).filter_map(|name| self.open_exec_group(name).ok()).collect())
    }

    /// Returns the path of the group (of an exec group: in the primary tree).
    pub fn path(&self) -> &GroupPath {
        self.sub.as_ref().unwrap_or(&self.path)
    }

    /// Reports whether the group has a directory in any tree. A container of a user without a delegated cgroup does not
    /// have one: it has no limits, and cannot be frozen or killed as a whole.
    pub fn has_directory(&self) -> bool {
        self.trees.primary().is_some()
    }

    /// Returns the tree in which the group is listed, frozen and killed.
    pub(crate) fn primary(&self) -> Result<&Tree, Error> {
        self.trees.primary().ok_or_else(|| Error::NoGroup { path: self.path().to_string() })
    }

    /// Returns the path of the group's processes in this tree.
    pub(crate) fn path_in(&self, tree: &Tree) -> &GroupPath {
        match &self.sub {
            Some(sub) if self.trees.primary().is_some_and(|primary| std::ptr::eq(tree, primary)) => sub,
            _ => self.paths.iter().find(|(name, _)| *name == tree.name).map_or(&self.path, |(_, path)| path),
        }
    }

    /// Returns the path of a file of the group, relative to the root of this tree.
    pub(crate) fn file(&self, tree: &Tree, name: &str) -> String {
        format!("{}/{name}", self.path_in(tree).relative())
    }

    /// Returns the trees in which the group has its own directory.
    pub(crate) fn trees_with_directory(&self) -> impl Iterator<Item = &Tree> {
        let primary = self.trees.primary();
        let is_primary = move |tree: &Tree| primary.is_some_and(|primary| std::ptr::eq(tree, primary));
        self.trees.trees().filter(move |tree| self.sub.is_none() || is_primary(tree))
    }
}
