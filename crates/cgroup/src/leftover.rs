use crate::{Error, Group, GroupPath, Hierarchies};

impl Group {
    /// Kills the processes of a leftover group and removes it with its descendants from all trees that still have it:
    /// the process that created or removed it may have been killed halfway. A group that does not exist is not an
    /// error.
    ///
    /// # Errors
    /// Those of [`Group::kill`] and [`Group::remove`]: a process that does not exit within 5 s is named.
    pub fn remove_leftover(trees: &Hierarchies, path: &GroupPath) -> Result<(), Error> {
        if !trees.contains(path) {
            return Ok(());
        }
        let group = Self::open_unchecked(trees, path);
        group.kill()?;
        group.remove()
    }

    /// Removes a leftover group whose processes are about to exit, from all trees that still have it. Unlike
    /// [`Group::remove_leftover`] it kills nothing, for a group that another program may use by now.
    ///
    /// # Errors
    /// Those of [`Group::remove`]: a process that does not exit within 5 s is named, and the group is kept.
    pub fn remove_abandoned(trees: &Hierarchies, path: &GroupPath) -> Result<(), Error> {
        if !trees.contains(path) {
            return Ok(());
        }
        Self::open_unchecked(trees, path).remove()
    }
}
