//! Groups below a container's for a command: one for all trees, or others in the trees of some controllers.

use crate::{Error, Group, GroupPath, Hierarchies, tree::Tree};

impl Group {
    /// This group for a process that joins a group below it: `path` in every tree, or only in that of `controller`
    /// (`memory`, `name=systemd`, of v2 any that the tree has), in which case it stays this group in the others.
    ///
    /// # Errors
    /// There is no such controller; the path is not acceptable, differs from that of another controller of the same
    /// tree, or does not exist.
    pub fn below(self, controller: Option<&str>, path: &str) -> Result<Self, Error> {
        let joined = format!("{}/{}", self.path.as_str(), path.trim_matches('/'));
        let joined = GroupPath::parse(&joined)?;
        let Some(controller) = controller else {
            return Ok(Self { unit: self.unit, ..Self::open(&self.trees, &joined)? });
        };
        let tree = tree_of(&self.trees, controller).ok_or_else(|| Error::Path {
            path: format!("{controller}:{path}"),
            reason: "no cgroup tree of this host has this controller",
        })?;
        if !tree.exists(joined.relative()) {
            return Err(Error::Missing { path: joined.to_string(), tree: tree.name.clone() });
        }
        let name = tree.name.clone();
        let mut places = self.places;
        match places.iter().find(|(known, _)| *known == name) {
            Some((_, other)) if *other != joined => {
                let reason = "another one is given for a controller of the same tree";
                return Err(Error::Path { path: joined.to_string(), reason });
            }
            Some(_) => {}
            None => places.push((name, joined)),
        }
        Ok(Self { places, ..self })
    }
}

/// The tree of a controller, by its v1 name or, in a v2 tree, the name there.
fn tree_of<'a>(trees: &'a Hierarchies, controller: &str) -> Option<&'a Tree> {
    let named = |tree: &&Tree| match tree.v2 {
        true => tree.controllers.iter().any(|known| known.v2_name() == Some(controller)),
        false => tree.name.split(',').any(|name| name == controller),
    };
    trees.trees().find(named)
}
