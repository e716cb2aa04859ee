use cgroup::{Error, Group, GroupPath, Hierarchies, Limits};

/// Opens a cgroup of which some directories may be missing, so that it can be removed: the call that created or removed
/// it may have been killed halfway. Returns `None` if none of its directories exists.
pub(crate) fn open_partial(trees: &Hierarchies, path: &GroupPath) -> Result<Option<Group>, Error> {
    match Group::open(trees, path) {
        Ok(group) => Ok(Some(group)),
        // The main directory is created last and removed last: without it no process is in the other directories.
        Err(Error::Missing { .. }) if trees.contains(path) => Group::create(trees, path, &Limits::default()).map(Some),
        Err(Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
