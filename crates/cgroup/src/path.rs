use crate::Error;

/// The longest path of a group, in bytes.
const PATH_MAX: usize = 2048;
/// The longest name of a directory, in bytes (the kernel's NAME_MAX).
const NAME_MAX: usize = 255;

/// The path of a group, the same in every tree: `/parent/…/name`, absolute, normalized, without `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupPath(String);

impl GroupPath {
    /// Parses `linux.cgroupsPath` of the cgroupfs driver. Repeated and trailing slashes are removed; `.` and `..`,
    /// control characters, the root itself, and names of kernel files (`cgroup.*`, `tasks`, …) are refused.
    pub fn parse(path: &str) -> Result<Self, Error> {
        let wrong = |reason| Error::Path { path: path.chars().take(256).collect(), reason };
        if path.len() > PATH_MAX {
            return Err(wrong("longer than 2048 bytes"));
        }
        if !path.starts_with('/') {
            return Err(wrong("not absolute; use the form /parent/name"));
        }
        let mut normal = String::with_capacity(path.len());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            check_name(name).map_err(wrong)?;
            normal.push('/');
            normal.push_str(name);
        }
        if normal.is_empty() {
            return Err(wrong("the root cgroup cannot be used for a container"));
        }
        Ok(Self(normal))
    }

    /// Returns the path of a child.
    pub fn join(&self, name: &str) -> Result<Self, Error> {
        let wrong =
            |reason| Error::Path { path: format!("{}/{}", self.0, name.chars().take(256).collect::<String>()), reason };
        check_name(name).map_err(wrong)?;
        if self.0.len() + 1 + name.len() > PATH_MAX {
            return Err(wrong("longer than 2048 bytes"));
        }
        Ok(Self(format!("{}/{name}", self.0)))
    }

    /// Returns the path of the parent, or `None` if that is the root.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        if parent.is_empty() { None } else { Some(Self(parent.to_owned())) }
    }

    /// Returns the last component.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// Returns the path with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path relative to the root of a tree, without a leading slash.
    pub(crate) fn relative(&self) -> &str {
        &self.0[1..]
    }

    /// Iterates over the path and its ancestors, from the child of the root down.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = GroupPath> + '_ {
        let ends = self.0.char_indices().skip(1).filter(|(_, c)| *c == '/').map(|(at, _)| at);
        ends.chain(std::iter::once(self.0.len())).map(|end| GroupPath(self.0[..end].to_owned()))
    }
}

impl std::fmt::Display for GroupPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.contains('/') {
        return Err("a name is empty or contains a slash");
    }
    if name == "." || name == ".." {
        return Err("`.` and `..` are not allowed");
    }
    if name.len() > NAME_MAX {
        return Err("a name is longer than 255 bytes");
    }
    if name.chars().any(char::is_control) {
        return Err("a name contains a control character");
    }
    // Kernel files are in the same directory as child groups: mkdir would fail with EEXIST.
    if name.starts_with("cgroup.") || matches!(name, "tasks" | "notify_on_release" | "release_agent") {
        return Err("a name is that of a kernel file");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized() {
        assert_eq!(GroupPath::parse("//a///b/").unwrap().as_str(), "/a/b");
        assert_eq!(GroupPath::parse("/a").unwrap().join("b").unwrap().as_str(), "/a/b");
        let path = GroupPath::parse("/a/b/c").unwrap();
        assert_eq!(path.prefixes().map(|p| p.0).collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(path.parent().unwrap().as_str(), "/a/b");
        assert_eq!(path.name(), "c");
        assert_eq!(GroupPath::parse("/a").unwrap().parent(), None);
    }

    #[test]
    fn invalid_paths_are_refused() {
        for bad in ["", "a", "/", "///", "/a/../b", "/a/./b", "/a\n", "/cgroup.procs", "/a/tasks", "a:b:c"] {
            assert!(GroupPath::parse(bad).is_err(), "{bad:?}");
        }
        assert!(GroupPath::parse(&format!("/{}", "x".repeat(256))).is_err());
        assert!(GroupPath::parse(&"/abc".repeat(1000)).is_err());
        for bad in ["", "..", "a/b", "cgroup.kill"] {
            assert!(GroupPath::parse("/a").unwrap().join(bad).is_err(), "{bad:?}");
        }
    }
}
