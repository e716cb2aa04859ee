use cgroup::{Error, Group, GroupPath, Hierarchies, Limits};

/// What there is of a group, as one that can be removed: whoever made it, or removed it, may have been killed half-way.
/// `None`: nothing.
pub(crate) fn remains(trees: &Hierarchies, path: &GroupPath) -> Result<Option<Group>, Error> {
    match Group::open(trees, path) {
        Ok(group) => Ok(Some(group)),
        // Its main directory is the last that is made and the last that is removed: the others are without processes.
        Err(Error::Missing { .. }) if trees.contains(path) => Group::create(trees, path, &Limits::default()).map(Some),
        Err(Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
