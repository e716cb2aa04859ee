use std::sync::OnceLock;

use crate::{Error, GroupPath, Hierarchies, ownership, stats::Readers, systemd::Unit, tree::Tree};

/// A group that exists in every tree; or, from [`Group::exec_group`], one that has a directory of its own in one tree
/// and is its parent in the others.
#[derive(Debug)]
pub struct Group {
    pub(crate) trees: Hierarchies,
    /// Where it stands in every tree.
    pub(crate) path: GroupPath,
    /// An exec group's directory in the primary tree.
    pub(crate) sub: Option<GroupPath>,
    /// Other directories in some trees, by the tree's name ([`Group::below`]).
    pub(crate) places: Vec<(String, GroupPath)>,
    /// The systemd unit that it is of.
    pub(crate) unit: Option<Box<Unit>>,
    /// Opened when first asked for.
    pub(crate) readers: OnceLock<Readers>,
}

impl Group {
    pub(crate) fn new(trees: &Hierarchies, path: GroupPath, sub: Option<GroupPath>) -> Self {
        Self { trees: trees.clone(), path, sub, places: Vec::new(), unit: None, readers: OnceLock::new() }
    }

    /// The name of the systemd unit that it is of; with it [`Unit::open`] finds the group again.
    pub fn unit_name(&self) -> Option<&str> {
        self.unit.as_ref().map(|unit| unit.name())
    }

    /// An existing group (after a restart, or for stats). It must exist in the primary tree: v2, or where that is not
    /// mounted the freezer's. For a user who is not the machine's root it may be one that is nowhere, as their
    /// containers may have none ([`Group::is_real`]).
    pub fn open(trees: &Hierarchies, path: &GroupPath) -> Result<Self, Error> {
        let tree = trees.primary().ok_or(Error::NoTree)?;
        if tree.exists(path.relative()) || !ownership::is_machine_root() {
            return Ok(Self::found(trees, path));
        }
        Err(Error::Missing { path: path.to_string(), tree: tree.name.clone() })
    }

    /// No group at all: what joins it stays where it is, and it cannot be limited, frozen or killed as a whole.
    pub fn nowhere(trees: &Hierarchies, path: &GroupPath) -> Self {
        Self::new(&trees.only(|_| false), path.clone(), None)
    }

    /// One that may be gone.
    pub(crate) fn found(trees: &Hierarchies, path: &GroupPath) -> Self {
        if ownership::is_machine_root() {
            return Self::new(trees, path.clone(), None);
        }
        // The others were not delegated to this user.
        Self::new(&trees.only(|tree| tree.exists(path.relative())), path.clone(), None)
    }

    /// A child group for one exec'ed command: one directory, in the v2 tree (without v2 in the freezer's), so that the
    /// command can be killed and listed as a whole. Limits are those of this group. In a v2 tree with controllers it
    /// stands beside processes, which is allowed because none are enabled below it.
    pub fn exec_group(&self, name: &str) -> Result<Group, Error> {
        let sub = self.path.join(name)?;
        // Without a group of its own a container's commands are in nobody's either.
        let Some(tree) = self.trees.primary() else { return Ok(Self::new(&self.trees, self.path.clone(), None)) };
        tree.mkdir(sub.relative()).map_err(|errno| match errno {
            rustix::io::Errno::EXIST => Error::Occupied { path: sub.to_string(), by: "a group of that name".into() },
            errno => Error::io("mkdir", tree.describe(sub.relative()), errno),
        })?;
        Ok(Group { unit: self.unit.clone(), ..Self::new(&self.trees, self.path.clone(), Some(sub)) })
    }

    /// Has systemd move a process here, which must be of the calling user: whoever stands outside of what was delegated
    /// to them may not do it themselves (`EACCES`). Only for a group of a unit.
    pub fn attach(&self, pid: i32) -> Result<(), Error> {
        let unit = self.unit.as_ref().ok_or_else(|| Error::NoGroup { path: self.path().to_string() })?;
        unit.attach(self.sub.as_ref().map_or("", GroupPath::name), pid)
    }

    /// Whether it is one that [`Group::exec_group`] made.
    pub fn is_exec_group(&self) -> bool {
        self.sub.is_some()
    }

    /// Finds the group that [`Group::exec_group`] made (after a restart).
    pub fn open_exec_group(&self, name: &str) -> Result<Group, Error> {
        let (tree, sub) = (self.primary()?, self.path.join(name)?);
        if !tree.exists(sub.relative()) {
            return Err(Error::Missing { path: sub.to_string(), tree: tree.name.clone() });
        }
        Ok(Self::new(&self.trees, self.path.clone(), Some(sub)))
    }

    /// Those right below whose name is one that the caller gives to [`Group::exec_group`]: a container may have its
    /// own. One that goes meanwhile is left out.
    pub fn exec_groups(&self, is_ours: impl Fn(&str) -> bool) -> Result<Vec<Group>, Error> {
        let (tree, path) = (self.primary()?, self.path.relative());
        let names = tree.children(path).map_err(|errno| Error::io("list", tree.describe(path), errno))?;
        Ok(names.iter().filter(|name| is_ours(name)).filter_map(|name| self.open_exec_group(name).ok()).collect())
    }

    /// Where it stands (an exec group: in the primary tree).
    pub fn path(&self) -> &GroupPath {
        self.sub.as_ref().unwrap_or(&self.path)
    }

    /// Whether it has a directory in any tree: a container of a user whom nobody delegated a group to has none, is
    /// limited by nothing, and cannot be frozen or killed as a whole.
    pub fn is_real(&self) -> bool {
        self.trees.primary().is_some()
    }

    /// The tree it is listed, frozen and killed in.
    pub(crate) fn primary(&self) -> Result<&Tree, Error> {
        self.trees.primary().ok_or_else(|| Error::NoGroup { path: self.path().to_string() })
    }

    /// The directory in this tree that its processes are in.
    pub(crate) fn place(&self, tree: &Tree) -> &GroupPath {
        match &self.sub {
            Some(sub) if self.trees.primary().is_some_and(|primary| std::ptr::eq(tree, primary)) => sub,
            _ => self.places.iter().find(|(name, _)| *name == tree.name).map_or(&self.path, |(_, path)| path),
        }
    }

    /// A file of the group in this tree, relative to the tree's root.
    pub(crate) fn file(&self, tree: &Tree, name: &str) -> String {
        format!("{}/{name}", self.place(tree).relative())
    }

    /// The trees in which it has a directory of its own.
    pub(crate) fn own_trees(&self) -> impl Iterator<Item = &Tree> {
        let primary = self.trees.primary();
        self.trees.trees().filter(move |tree| self.sub.is_none() || primary.is_some_and(|own| std::ptr::eq(*tree, own)))
    }
}
