use std::{fs, path::Path};

/// Removes the empty control groups `<prefix><pid>…` of every tree whose test process has ended: a run that was killed
/// could not remove them. For tests in the PID namespace of the machine.
pub fn remove_stale_groups(prefix: &str) {
    let root = Path::new("/sys/fs/cgroup");
    let trees = fs::read_dir(root).into_iter().flatten().flatten().map(|tree| tree.path());
    for tree in trees.chain([root.to_owned()]) {
        for group in fs::read_dir(tree).into_iter().flatten().flatten() {
            if group.file_name().to_str().and_then(|name| owner(name, prefix)).is_some_and(has_ended) {
                remove(&group.path());
            }
        }
    }
}

/// Returns the pid in the name of a group.
fn owner(name: &str, prefix: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

fn has_ended(pid: u32) -> bool {
    !Path::new("/proc").join(pid.to_string()).exists()
}

/// Removes a group and those below it. One with processes stays.
fn remove(group: &Path) {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).for_each(|entry| remove(&entry.path()));
    let _ = fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn the_owner_of_a_group_is_in_its_name() {
        assert_eq!(owner("pinion-test-pinrun-10460-31", "pinion-test-pinrun-"), Some(10460));
        assert_eq!(owner("pinion-test-7", "pinion-test-"), Some(7));
        assert_eq!(owner("pinion-test-pinrun-10460-31", "pinion-test-"), None);
        assert_eq!(owner("other-7", "pinion-test-"), None);
    }
}
