//! Passes the trees by descriptor to another program, for example to one that is executed in a mount namespace without
//! cgroup mounts.

use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{
    Error, Hierarchies,
    controller::Controllers,
    hierarchies::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC},
    tree::Tree,
};

impl Hierarchies {
    /// Returns the name (`unified`, `cpu,cpuacct`, `name=systemd`) and the root directory of every tree.
    pub fn descriptors(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.trees().map(|tree| (tree.name.as_str(), tree.root.as_fd()))
    }

    /// Opens the trees from the result of [`Hierarchies::descriptors`].
    ///
    /// # Errors
    /// A descriptor is not the root of a cgroup tree, or its controllers cannot be read.
    pub fn from_descriptors(trees: impl IntoIterator<Item = (String, OwnedFd)>) -> Result<Self, Error> {
        let trees =
            trees.into_iter().map(|(name, root)| tree(name, root).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        if trees.is_empty() { Err(Error::NoTree) } else { Ok(Self { trees: trees.into() }) }
    }
}

fn tree(name: String, root: OwnedFd) -> Result<Tree, Error> {
    let magic = rustix::fs::fstatfs(&root).map_err(|e| Error::io("fstatfs", name.clone(), e))?.f_type as u64;
    let v2 = magic == CGROUP2_SUPER_MAGIC;
    if !v2 && magic != CGROUP_SUPER_MAGIC {
        return Err(Error::io("use as a cgroup hierarchy", name, rustix::io::Errno::NOTDIR));
    }
    let mut tree = Tree { name, v2, controllers: Controllers::default(), root };
    tree.controllers = match v2 {
        true => Controllers::from_v2_list(&tree.read_value("cgroup.controllers")?),
        false => Controllers::from_v1_options(&tree.name),
    };
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_can_be_passed_by_descriptor() {
        let trees = Hierarchies::open().expect("cgroups are mounted");
        let descriptors: Vec<_> =
            trees.descriptors().map(|(name, fd)| (name.to_owned(), fd.try_clone_to_owned().expect("dup"))).collect();
        let received = Hierarchies::from_descriptors(descriptors).expect("open from descriptors");
        for (one, other) in trees.trees().zip(received.trees()) {
            assert_eq!((&one.name, one.v2, &one.controllers), (&other.name, other.v2, &other.controllers));
        }
        assert_eq!(trees.layout(), received.layout());
    }
}
