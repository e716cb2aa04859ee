//! Cgroups of a node.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::Node;

impl Node {
    /// Whether a container or exec with this id has a cgroup.
    pub fn has_group(&self, id: &str) -> bool {
        self.groups().iter().any(|path| path.ends_with(id))
    }

    /// Returns the existing cgroups of this node.
    pub fn groups(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for tree in fs::read_dir("/sys/fs/cgroup").expect("cgroups").flatten() {
            let path = tree.path().join(&self.cgroup[1..]);
            if path.exists() {
                walk(&path, &mut paths);
            }
        }
        paths
    }

    /// After a failed test: kills leftover processes, and removes the cgroups.
    pub fn remove_groups(&self) {
        let Ok(trees) = cgroup::Hierarchies::open() else { return };
        let path = cgroup::GroupPath::parse(&self.cgroup).expect("a path");
        if let Ok(group) = cgroup::Group::open(&trees, &path) {
            for id in self.groups().iter().filter_map(|path| path.file_name()).filter_map(|name| name.to_str()) {
                if let Ok(group) = path.join(id).and_then(|path| cgroup::Group::open(&trees, &path)) {
                    let _ = group.kill();
                }
            }
            let _ = group.remove();
        }
    }

    pub fn remove_empty_parents(&self) {
        if let (Ok(trees), Ok(path)) =
            (cgroup::Hierarchies::open(), cgroup::GroupPath::parse(&format!("{}/x", self.cgroup)))
        {
            trees.remove_empty_parents(&path, None);
        }
    }
}

fn walk(path: &Path, paths: &mut Vec<PathBuf>) {
    paths.push(path.to_owned());
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            walk(&entry.path(), paths);
        }
    }
}
