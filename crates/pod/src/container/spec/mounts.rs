//! Mounts of a container: the defaults, the pod's files, then the volumes of the request, outer paths before inner
//! ones.

use std::collections::HashSet;

use oci::Mount;
use rustix::fd::OwnedFd;

use crate::{ContainerConfig, Error, Propagation};

/// Mount entries of the specification, and the detached mounts for some of them, by index.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    pub(crate) entries: Vec<Mount>,
    pub(crate) files: Vec<(u32, OwnedFd)>,
}

/// Functions that open the mounts which are passed as descriptors. Called only for paths that no volume covers.
pub(crate) struct Sources<'a> {
    pub(crate) shm: &'a dyn Fn() -> Result<OwnedFd, Error>,
    /// Opens a file of the sandbox's directory by its name.
    pub(crate) file: &'a dyn Fn(&str) -> Result<OwnedFd, Error>,
    pub(crate) volume: &'a dyn Fn(&crate::Volume) -> Result<OwnedFd, Error>,
}

/// A mount that the request does not name: its entry of the specification, and a detached mount if it is a bind mount.
#[derive(Debug)]
pub(crate) struct ExtraMount {
    pub(crate) entry: Mount,
    pub(crate) tree: Option<OwnedFd>,
}

/// A mount in addition to the defaults.
enum Additional<'a> {
    Volume(&'a crate::Volume),
    Extra(ExtraMount),
}

impl Additional<'_> {
    fn destination(&self) -> &str {
        match self {
            Self::Volume(volume) => &volume.container_path,
            Self::Extra(extra) => &extra.entry.destination,
        }
    }
}

impl Mounts {
    /// Builds the mounts of a container. `extras` replace volumes of the request at the same path.
    pub(crate) fn new(config: &ContainerConfig, extras: Vec<ExtraMount>, sources: &Sources<'_>) -> Result<Self, Error> {
        let mut mounts = Self::default();
        let replaced: HashSet<String> = extras.iter().map(|extra| normalize(&extra.entry.destination)).collect();
        let volumes = config.volumes.iter().filter(|volume| !replaced.contains(&normalize(&volume.container_path)));
        let mut additional: Vec<Additional<'_>> =
            volumes.map(Additional::Volume).chain(extras.into_iter().map(Additional::Extra)).collect();
        let covered: HashSet<String> = additional.iter().map(|mount| normalize(mount.destination())).collect();
        mounts.defaults(config, &covered, sources)?;
        additional.sort_by_key(|mount| normalize(mount.destination()).matches('/').count());
        for mount in additional {
            match mount {
                Additional::Volume(volume) => mounts.volume(volume, (sources.volume)(volume)?),
                Additional::Extra(ExtraMount { entry, tree }) => {
                    mounts.files.extend(tree.map(|tree| (mounts.entries.len() as u32, tree)));
                    mounts.entries.push(entry);
                }
            }
        }
        Ok(mounts)
    }

    /// Adds the default mounts, except those at covered paths.
    fn defaults(
        &mut self,
        config: &ContainerConfig,
        covered: &HashSet<String>,
        sources: &Sources<'_>,
    ) -> Result<(), Error> {
        for mount in default(config.security.privileged) {
            if !covered.contains(&mount.destination) {
                self.entries.push(mount);
            }
        }
        if !covered.contains("/dev/shm") {
            self.bind("/dev/shm", "shm", vec!["rbind".into(), "rprivate".into()], (sources.shm)()?);
        }
        let access = if config.security.readonly_rootfs { "ro" } else { "rw" };
        for (name, path) in crate::namespaces::SHARED_FILES {
            if !covered.contains(path) {
                let options = ["rbind", "rprivate", access, "nosuid", "nodev", "noexec"].map(str::to_owned).into();
                self.bind(path, name, options, (sources.file)(name)?);
            }
        }
        Ok(())
    }

    fn volume(&mut self, volume: &crate::Volume, tree: OwnedFd) {
        let source = match &volume.image {
            Some(image) => image.image.clone(),
            None => volume.host_path.to_string_lossy().into_owned(),
        };
        self.bind(&volume.container_path, &source, options(volume), tree);
        // An overlay cannot be id-mapped; for an image its layers are id-mapped instead.
        if let Some(entry) = self.entries.last_mut().filter(|_| volume.image.is_none()) {
            entry.uid_mappings.clone_from(&volume.uid_mappings);
            entry.gid_mappings.clone_from(&volume.gid_mappings);
        }
    }

    fn bind(&mut self, destination: &str, source: &str, options: Vec<String>, tree: OwnedFd) {
        self.files.push((self.entries.len() as u32, tree));
        self.entries.push(Mount {
            destination: destination.to_owned(),
            kind: Some("bind".into()),
            source: Some(source.to_owned()),
            options,
            ..Mount::default()
        });
    }
}

fn options(volume: &crate::Volume) -> Vec<String> {
    let propagation = match volume.propagation {
        Propagation::Private => "rprivate",
        Propagation::HostToContainer => "rslave",
        Propagation::Bidirectional => "rshared",
    };
    let access = match (volume.readonly, volume.recursive_readonly) {
        (true, true) => "rro",
        (true, false) => "ro",
        (false, _) => "rw",
    };
    // Set explicitly, because a mount does not keep the options of its source that it does not name (KEP-4639 for
    // images).
    let image: &[&str] = if volume.image.is_some() { &["nosuid", "nodev"] } else { &[] };
    let requested = volume.options.iter().map(String::as_str);
    ["rbind", propagation, access].iter().chain(image).copied().chain(requested).map(str::to_owned).collect()
}

/// Normalizes a path: `/a//b/` becomes `/a/b`.
pub(crate) fn normalize(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("/{}", parts.join("/"))
}

fn default(privileged: bool) -> Vec<Mount> {
    let access = if privileged { "rw" } else { "ro" };
    let mount = |destination: &str, kind: &str, options: &[&str]| Mount {
        destination: destination.to_owned(),
        kind: Some(kind.to_owned()),
        source: Some(kind.to_owned()),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..Mount::default()
    };
    vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_in_one_form() {
        assert_eq!(
            (normalize("/a//b/"), normalize("/"), normalize("a/./b")),
            ("/a/b".into(), "/".into(), "/a/b".into())
        );
    }
}
