//! Files of a group as they are, for who tells more than [`Stats`](crate::Stats) has.

use crate::{Group, controller::Controller, tree::Tree};

impl Group {
    /// The text of a file, such as `memory` and `memory.failcnt`: of the tree that has this controller (v1's name).
    /// `None` where there is no such tree or file.
    pub fn figures(&self, controller: &str, file: &str) -> Option<String> {
        let tree = self.tree_of(controller)?;
        tree.try_read(&self.file(tree, file)).ok()
    }

    /// Whether the files of a controller (v1's name) are v2's.
    pub fn has_v2_figures(&self, controller: &str) -> bool {
        self.tree_of(controller).is_some_and(|tree| tree.v2)
    }

    /// CPU time and pressure are in every v2 group.
    fn tree_of(&self, controller: &str) -> Option<&Tree> {
        let controller = Controller::ALL.into_iter().find(|known| known.v1_name() == controller)?;
        self.trees.with(controller).or_else(|| self.trees.v2())
    }
}
