//! Making a group in every tree, or in none.

use std::collections::HashSet;

use rustix::io::Errno;

use crate::{
    Error, Group, GroupPath, Hierarchies, Limits,
    controller::Controller,
    delegate::{self, Extent},
    ownership,
    tree::Tree,
};

/// How often a parent that someone else sweeps away is made again.
const RACES_MAX: usize = 16;

impl Group {
    /// mkdir in every hierarchy (parents too), limits written. Undoes itself on failure, parents included.
    ///
    /// An existing group without processes and children is made anew, so that no old limit lives on; one with a process
    /// or a child is [`Error::Occupied`], which names it.
    pub fn create(trees: &Hierarchies, path: &GroupPath, limits: &Limits) -> Result<Self, Error> {
        make_everywhere(trees, path, limits, clear, Extent::Useful)
    }

    /// A group that systemd made with this process in it: what systemd does not make (v1 trees it does not use,
    /// controllers it does not know) is made here, and the process put there too.
    pub(crate) fn adopt(trees: &Hierarchies, path: &GroupPath, limits: &Limits, pid: i32) -> Result<Self, Error> {
        let group = make_everywhere(trees, path, limits, |_, _| Ok(true), Extent::Needed)?;
        for tree in group.trees.trees().filter(|tree| !tree.v2) {
            // It has one thread, which waits.
            tree.write(&group.file(tree, "tasks"), &pid.to_string())?;
        }
        Ok(group)
    }
}

/// In every tree that this user may write; in none on failure. `present` says whether a group that is there already is
/// kept.
///
/// A user who is not the machine's root has the trees only that somebody delegated to them. A container without limits
/// can do without; one with a limit that needs another tree is refused.
fn make_everywhere(
    trees: &Hierarchies,
    path: &GroupPath,
    limits: &Limits,
    present: impl Fn(&Tree, &GroupPath) -> Result<bool, Error>,
    extent: Extent,
) -> Result<Group, Error> {
    limits.check(trees)?;
    let mut made = Made { trees, dirs: Vec::new() };
    let mut refused: Vec<(&str, Error)> = Vec::new();
    for tree in trees.trees() {
        match make(tree, path, &mut made.dirs, &present) {
            Err(error) if is_refusal(&error) && !ownership::is_machine_root() => {
                refused.push((&tree.name, error));
                continue;
            }
            made => made?,
        }
        if tree.v2 {
            delegate::enable(trees, tree, path, limits, extent)?;
        } else if tree.controllers.has(Controller::Cpuset) {
            fill_cpuset(tree, path)?;
        }
    }
    let own = match refused.is_empty() {
        true => trees.clone(),
        false => trees.only(|tree| !refused.iter().any(|(name, _)| *name == tree.name)),
    };
    if let Some((field, controller)) = limits.first_beyond(&own, trees) {
        let name = trees.with(controller).map_or("", |tree| &tree.name);
        let cause = refused.into_iter().find(|(tree, _)| *tree == name).map_or(String::new(), |(_, e)| e.to_string());
        return Err(Error::Unavailable {
            path: path.to_string(),
            field: field.to_owned(),
            controller: controller.v1_name(),
            reason: format!("{cause}; this user needs a delegated group, or leave the limit out"),
        });
    }
    let group = Group::new(&own, path.clone(), None);
    group.apply(limits)?;
    made.dirs.clear();
    Ok(group)
}

/// Neither ours to write nor anybody's.
fn is_refusal(error: &Error) -> bool {
    matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// What was made so far; removed again when dropped.
struct Made<'a> {
    trees: &'a Hierarchies,
    /// Name of the tree and group, parents before children.
    dirs: Vec<(String, GroupPath)>,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for (name, path) in self.dirs.drain(..).rev() {
            if let Some(tree) = self.trees.trees().find(|tree| tree.name == name) {
                // Only what is empty goes: a parent may have got other children meanwhile.
                let _ = tree.rmdir(path.relative());
            }
        }
    }
}

fn make(
    tree: &Tree,
    path: &GroupPath,
    dirs: &mut Vec<(String, GroupPath)>,
    present: impl Fn(&Tree, &GroupPath) -> Result<bool, Error>,
) -> Result<(), Error> {
    for _ in 0..RACES_MAX {
        match tree.mkdir(path.relative()) {
            Ok(()) => {
                dirs.push((tree.name.clone(), path.clone()));
                return Ok(());
            }
            Err(Errno::NOENT) => make_parents(tree, path, dirs)?,
            Err(Errno::EXIST) if present(tree, path)? => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("mkdir", tree.describe(path.relative()), errno)),
        }
    }
    Err(Error::io("mkdir, while others remove its parents,", tree.describe(path.relative()), Errno::NOENT))
}

fn make_parents(tree: &Tree, path: &GroupPath, dirs: &mut Vec<(String, GroupPath)>) -> Result<(), Error> {
    for parent in path.ancestry().filter(|parent| parent != path) {
        match tree.mkdir(parent.relative()) {
            Ok(()) => {
                dirs.push((tree.name.clone(), parent.clone()));
                prepare_parent(tree, &parent)?;
            }
            Err(Errno::EXIST) => {}
            // Swept away just now by the end of a sibling: the caller starts again.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Error::io("mkdir", tree.describe(parent.relative()), errno)),
        }
    }
    Ok(())
}

/// What a new v1 parent needs so that its children are usable and counted with it.
fn prepare_parent(tree: &Tree, parent: &GroupPath) -> Result<(), Error> {
    if tree.v2 {
        return Ok(());
    }
    if tree.controllers.has(Controller::Cpuset) {
        fill_cpuset(tree, parent)?;
        // From now on the kernel copies cpus and mems itself.
        tree.write(&format!("{}/cgroup.clone_children", parent.relative()), "1")?;
    }
    if tree.controllers.has(Controller::Memory) {
        // Before kernel 5.11 not the default; since then the only value there is.
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

/// A v1 cpuset starts without CPUs and memory nodes, and nothing can join it.
fn fill_cpuset(tree: &Tree, path: &GroupPath) -> Result<(), Error> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        inherit(tree, path.relative(), file)?;
    }
    Ok(())
}

/// The value of the nearest group above that has one, written into every group on the way; returns it.
fn inherit(tree: &Tree, path: &str, file: &str) -> Result<String, Error> {
    let own = if path.is_empty() { file.to_owned() } else { format!("{path}/{file}") };
    let (parent, below_root) = path.rsplit_once('/').map_or(("", true), |(parent, _)| (parent, false));
    // A child of the root starts empty, unless somebody told the root to fill its children, and then with the same.
    if path.is_empty() || !below_root {
        let value = tree.read_value(&own)?.trim().to_owned();
        if !value.is_empty() || path.is_empty() {
            return Ok(value);
        }
    }
    let value = inherit(tree, parent, file)?;
    tree.write(&own, &value)?;
    Ok(value)
}

/// Removes an unused group, or says who uses it.
fn clear(tree: &Tree, path: &GroupPath) -> Result<bool, Error> {
    match tree.rmdir(path.relative()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(false),
        Err(Errno::BUSY | Errno::NOTEMPTY) => {}
        Err(errno) => return Err(Error::io("rmdir", tree.describe(path.relative()), errno)),
    }
    let mut pids = HashSet::new();
    crate::pids::collect(tree, path.relative(), &mut pids)
        .map_err(|e| Error::io("list processes of", tree.describe(path.relative()), e))?;
    let by = match (pids.into_iter().min(), tree.children(path.relative())) {
        (Some(pid), _) => format!("process {pid} is in it"),
        (None, Ok(children)) if !children.is_empty() => format!("group {:?} is below it", children[0]),
        _ => "a process of it is just ending".to_owned(),
    };
    Err(Error::Occupied { path: tree.describe(path.relative()), by })
}
