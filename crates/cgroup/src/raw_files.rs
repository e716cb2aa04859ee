//! Raw files of a group, for callers that need more than [`Stats`](crate::Stats).

use crate::{Group, controller::Controller, tree::Tree};

impl Group {
    /// Reads a file of the tree that has this controller (by its v1 name), for example `memory.failcnt` of `memory`.
    /// Returns `None` if the tree or the file does not exist.
    pub fn read(&self, controller: &str, file: &str) -> Option<String> {
        let tree = self.tree_of(controller)?;
        tree.try_read(&self.file(tree, file)).ok()
    }

    /// Reports whether a controller (by its v1 name) is in the v2 tree.
    pub fn is_v2(&self, controller: &str) -> bool {
        self.tree_of(controller).is_some_and(|tree| tree.v2)
    }

    /// Returns the tree of a controller, else the v2 tree, which has CPU time and pressure in every group.
    fn tree_of(&self, controller: &str) -> Option<&Tree> {
        let controller = Controller::ALL.into_iter().find(|known| known.v1_name() == controller)?;
        self.trees.with(controller).or_else(|| self.trees.v2())
    }
}
