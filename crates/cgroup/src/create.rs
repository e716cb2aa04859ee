//! Creates a group in every tree, or in none of them.

use std::collections::HashSet;

use rustix::{io::Errno, process::Pid};

use crate::{
    Error, Group, GroupPath, Hierarchies, Limits,
    controller::Controller,
    delegate::{self, ControllerSet},
    privileges,
    tree::Tree,
};

/// How often a parent is created again that another process removes at the same time, and how often limits are written
/// again.
const RACES_MAX: usize = 16;

impl Hierarchies {
    /// Creates an empty group that keeps all controllers of the v2 tree enabled in the groups above it, until it is
    /// removed. An existing group is used. Does nothing without a v2 tree.
    ///
    /// systemd disables controllers in a slice that no unit below it needs, and it does not know groups that are
    /// registered later: their limits would be lost. The kernel refuses to disable a controller that a child has
    /// enabled for children of its own (`EBUSY`, "Top-down Constraint" of its documentation of cgroup v2), and systemd
    /// then leaves it enabled.
    ///
    /// # Errors
    /// The group cannot be created. A controller that cannot be enabled is not an error.
    pub fn hold_controllers(&self, path: &GroupPath) -> Result<(), Error> {
        let Some(tree) = self.v2() else { return Ok(()) };
        let mut created = CreatedDirs { trees: self, dirs: Vec::new() };
        create(tree, path, &mut created.dirs, |_, _| Ok(true))?;
        delegate::enable_below(self, tree, path)?;
        created.dirs.clear();
        Ok(())
    }
}

impl Group {
    /// Creates the group and its parents in every tree and writes the limits. A failure undoes all of it, parents
    /// included.
    ///
    /// An existing group without processes and children is removed and created again, so that no earlier limit stays in
    /// effect. One with a process or a child is [`Error::Occupied`], which names it.
    pub fn create(trees: &Hierarchies, path: &GroupPath, limits: &Limits) -> Result<Self, Error> {
        create_in_trees(trees, path, limits, remove_unused, ControllerSet::All)
    }

    /// Completes a group that systemd created for this process: creates the directories that systemd does not create
    /// (in v1 trees that it does not use, for controllers that it does not support) and moves the process into them.
    pub(crate) fn adopt(trees: &Hierarchies, path: &GroupPath, limits: &Limits, pid: Pid) -> Result<Self, Error> {
        let group = create_in_trees(trees, path, limits, |_, _| Ok(true), ControllerSet::Limited)?;
        for tree in group.trees.trees().filter(|tree| !tree.v2) {
            // The process has a single thread, so writing to `tasks` moves all of it.
            tree.write(&group.file(tree, "tasks"), &pid.to_string())?;
        }
        Ok(group)
    }
}

/// Creates a group in every tree in which this user may do so; on failure in none. `keeps_existing` returns whether an
/// existing group is kept.
///
/// An unprivileged user can create groups only in trees that were delegated to them. A container without limits does
/// not need the others; a limit that needs one of them is refused.
fn create_in_trees(
    trees: &Hierarchies,
    path: &GroupPath,
    limits: &Limits,
    keeps_existing: impl Fn(&Tree, &GroupPath) -> Result<bool, Error>,
    controllers: ControllerSet,
) -> Result<Group, Error> {
    limits.check(trees)?;
    let mut created = CreatedDirs { trees, dirs: Vec::new() };
    let mut refused: Vec<(&str, Error)> = Vec::new();
    for tree in trees.trees() {
        match create(tree, path, &mut created.dirs, &keeps_existing) {
            Err(error) if is_permission_error(&error) && !privileges::is_host_root() => {
                refused.push((&tree.name, error));
                continue;
            }
            result => result?,
        }
        if tree.v2 {
            delegate::enable(trees, tree, path, limits, controllers)?;
        } else if tree.controllers.has(Controller::Cpuset) {
            fill_cpuset(tree, path)?;
        }
    }
    let writable = match refused.is_empty() {
        true => trees.clone(),
        false => trees.only(|tree| !refused.iter().any(|(name, _)| *name == tree.name)),
    };
    if let Some((field, controller)) = limits.first_unavailable(&writable, trees) {
        let name = trees.with(controller).map_or("", |tree| &tree.name);
        let cause = refused.into_iter().find(|(tree, _)| *tree == name).map_or(String::new(), |(_, e)| e.to_string());
        return Err(Error::Unavailable {
            path: path.to_string(),
            field: field.to_owned(),
            controller: controller.v1_name(),
            reason: format!("{cause}; delegate a cgroup to this user, or remove the limit"),
        });
    }
    let group = Group::new(&writable, path.clone(), None);
    apply(trees, &group, limits, controllers)?;
    created.dirs.clear();
    Ok(group)
}

/// Writes the limits. If systemd disables a controller in the meantime, which removes its files, enables it again.
fn apply(trees: &Hierarchies, group: &Group, limits: &Limits, controllers: ControllerSet) -> Result<(), Error> {
    let Some(tree) = group.trees.v2() else { return group.apply(limits) };
    for _ in 1..RACES_MAX {
        let outcome = group.apply(limits);
        let has_lost_files = matches!(outcome, Err(Error::Unavailable { .. }));
        if !has_lost_files && delegate::is_enabled(trees, tree, group.path(), limits)? {
            return outcome;
        }
        delegate::enable(trees, tree, group.path(), limits, controllers)?;
    }
    group.apply(limits)
}

/// Reports whether this user may not write to the tree.
fn is_permission_error(error: &Error) -> bool {
    matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// The directories that were created so far; removed when dropped.
struct CreatedDirs<'a> {
    trees: &'a Hierarchies,
    /// The name of the tree and the group, parents before children.
    dirs: Vec<(String, GroupPath)>,
}

impl Drop for CreatedDirs<'_> {
    fn drop(&mut self) {
        for (name, path) in self.dirs.drain(..).rev() {
            if let Some(tree) = self.trees.trees().find(|tree| tree.name == name) {
                // This removes only empty groups: a parent may have other children by now.
                let _ = tree.rmdir(path.relative());
            }
        }
    }
}

fn create(
    tree: &Tree,
    path: &GroupPath,
    dirs: &mut Vec<(String, GroupPath)>,
    keeps_existing: impl Fn(&Tree, &GroupPath) -> Result<bool, Error>,
) -> Result<(), Error> {
    for _ in 0..RACES_MAX {
        match tree.mkdir(path.relative()) {
            Ok(()) => {
                dirs.push((tree.name.clone(), path.clone()));
                return Ok(());
            }
            Err(Errno::NOENT) => create_parents(tree, path, dirs)?,
            Err(Errno::EXIST) if keeps_existing(tree, path)? => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("mkdir", tree.describe(path.relative()), errno)),
        }
    }
    Err(Error::io("mkdir (its parents are removed concurrently)", tree.describe(path.relative()), Errno::NOENT))
}

fn create_parents(tree: &Tree, path: &GroupPath, dirs: &mut Vec<(String, GroupPath)>) -> Result<(), Error> {
    for parent in path.prefixes().filter(|parent| parent != path) {
        match tree.mkdir(parent.relative()) {
            Ok(()) => {
                dirs.push((tree.name.clone(), parent.clone()));
                prepare_parent(tree, &parent)?;
            }
            Err(Errno::EXIST) => {}
            // A concurrent removal of a sibling removed the parent: the caller starts again.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Error::io("mkdir", tree.describe(parent.relative()), errno)),
        }
    }
    Ok(())
}

/// Prepares a new v1 parent so that processes can join its children and are accounted to it, too.
fn prepare_parent(tree: &Tree, parent: &GroupPath) -> Result<(), Error> {
    if tree.v2 {
        return Ok(());
    }
    if tree.controllers.has(Controller::Cpuset) {
        fill_cpuset(tree, parent)?;
        // With this setting the kernel copies cpus and mems to new children.
        tree.write(&format!("{}/cgroup.clone_children", parent.relative()), "1")?;
    }
    if tree.controllers.has(Controller::Memory) {
        // Since Linux 5.11 this is the only value.
        match tree.try_write(&format!("{}/memory.use_hierarchy", parent.relative()), "1") {
            Ok(()) | Err(Errno::NOENT | Errno::BUSY | Errno::INVAL) => {}
            Err(errno) => {
                return Err(Error::io(
                    "write \"1\" to memory.use_hierarchy of",
                    tree.describe(parent.relative()),
                    errno,
                ));
            }
        }
    }
    Ok(())
}

/// Sets the CPUs and memory nodes of a v1 cpuset: no process can join an empty one.
fn fill_cpuset(tree: &Tree, path: &GroupPath) -> Result<(), Error> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        inherit(tree, path.relative(), file)?;
    }
    Ok(())
}

/// Copies the value of the nearest ancestor that has one to every group on the way down, and returns it.
fn inherit(tree: &Tree, path: &str, file: &str) -> Result<String, Error> {
    let group_file = if path.is_empty() { file.to_owned() } else { format!("{path}/{file}") };
    let (parent, below_root) = path.rsplit_once('/').map_or(("", true), |(parent, _)| (parent, false));
    // A child of the root starts empty, or with the root's value if the root has clone_children set.
    if path.is_empty() || !below_root {
        let value = tree.read_value(&group_file)?.trim().to_owned();
        if !value.is_empty() || path.is_empty() {
            return Ok(value);
        }
    }
    let value = inherit(tree, parent, file)?;
    tree.write(&group_file, &value)?;
    Ok(value)
}

/// Removes an unused group, or returns an error that names its user.
fn remove_unused(tree: &Tree, path: &GroupPath) -> Result<bool, Error> {
    match tree.rmdir(path.relative()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(false),
        Err(Errno::BUSY | Errno::NOTEMPTY) => {}
        Err(errno) => return Err(Error::io("rmdir", tree.describe(path.relative()), errno)),
    }
    let mut pids = HashSet::new();
    crate::pids::collect(tree, path.relative(), &mut pids)
        .map_err(|e| Error::io("list processes of", tree.describe(path.relative()), e))?;
    let by = match (pids.into_iter().map(Pid::as_raw_pid).min(), tree.children(path.relative())) {
        (Some(pid), _) => format!("it contains process {pid}"),
        (None, Ok(children)) if !children.is_empty() => format!("it contains cgroup {:?}", children[0]),
        _ => "a process in it is exiting".to_owned(),
    };
    Err(Error::Occupied { path: tree.describe(path.relative()), by })
}
