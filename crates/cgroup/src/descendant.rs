//! Child groups of a container for an exec'd process: one for all trees, or separate ones in the trees of some
//! controllers.

use crate::{Error, Group, GroupPath, Hierarchies, tree::Tree};

impl Group {
    /// Returns a group below this one, for a process that joins it: at `path` in every tree, or only in the tree of
    /// `controller` (`memory`, `name=systemd`, on v2 any controller of the tree). In the other trees it is this group.
    ///
    /// # Errors
    /// The controller does not exist; the path is invalid, does not exist, or differs from the path for another
    /// controller of the same tree.
    pub fn descendant(self, controller: Option<&str>, path: &str) -> Result<Self, Error> {
        let joined = format!("{}/{}", self.path.as_str(), path.trim_matches('/'));
        let joined = GroupPath::parse(&joined)?;
        let Some(controller) = controller else {
            return Ok(Self { unit: self.unit, ..Self::open(&self.trees, &joined)? });
        };
        let tree = tree_of(&self.trees, controller).ok_or_else(|| Error::Path {
            path: format!("{controller}:{path}"),
            reason: "no cgroup hierarchy of this host has this controller",
        })?;
        if !tree.exists(joined.relative()) {
            return Err(Error::Missing { path: joined.to_string(), tree: tree.name.clone() });
        }
        let name = tree.name.clone();
        let mut paths = self.paths;
        match paths.iter().find(|(known, _)| *known == name) {
            Some((_, other)) if *other != joined => {
                let reason = "another path is given for a controller of the same hierarchy";
                return Err(Error::Path { path: joined.to_string(), reason });
            }
            Some(_) => {}
            None => paths.push((name, joined)),
        }
        Ok(Self { paths, ..self })
    }
}

/// Finds the tree of a controller, by its v1 name or, in the v2 tree, its v2 name.
fn tree_of<'a>(trees: &'a Hierarchies, controller: &str) -> Option<&'a Tree> {
    let has_name = |tree: &&Tree| match tree.v2 {
        true => tree.controllers.iter().any(|known| known.v2_name() == Some(controller)),
        false => tree.name.split(',').any(|name| name == controller),
    };
    trees.trees().find(has_name)
}
