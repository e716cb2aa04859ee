use crate::{Error, Group, GroupPath, Hierarchies};

impl Group {
    /// Kills what is in a group that nobody holds any more, and removes it with all below, from whichever trees still
    /// have it: whoever made it may have died halfway, and so may whoever removed it. No such group is fine.
    ///
    /// # Errors
    /// As [`Group::kill`] and [`Group::remove`]: a process that does not end within 5 s is named.
    pub fn end_remains(trees: &Hierarchies, path: &GroupPath) -> Result<(), Error> {
        if !trees.contains(path) {
            return Ok(());
        }
        let group = Self::found(trees, path);
        group.kill()?;
        group.remove()
    }
}
