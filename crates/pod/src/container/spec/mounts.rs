//! Mounts: what every container has, the pod's files, then the request's volumes, the outer before the inner.

use std::collections::HashSet;

use oci::Mount;
use rustix::fd::OwnedFd;

use crate::{ContainerConfig, Error, Propagation};

/// Entries of the spec, some with the detached mount that is meant.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    pub(crate) entries: Vec<Mount>,
    pub(crate) files: Vec<(u32, OwnedFd)>,
}

/// Where mounts that are descriptors come from. Called only for what is not covered by a volume.
pub(crate) struct Sources<'a> {
    pub(crate) shm: &'a dyn Fn() -> Result<OwnedFd, Error>,
    /// File in the sandbox's folder by its name there.
    pub(crate) file: &'a dyn Fn(&str) -> Result<OwnedFd, Error>,
    pub(crate) volume: &'a dyn Fn(&crate::Volume) -> Result<OwnedFd, Error>,
}

impl Mounts {
    pub(crate) fn new(config: &ContainerConfig, sources: &Sources<'_>) -> Result<Self, Error> {
        let covered: HashSet<String> = config.volumes.iter().map(|v| normal(&v.container_path)).collect();
        let readonly = config.security.readonly_rootfs;
        let mut mounts = Self::default();
        for mount in default(config.security.privileged) {
            if !covered.contains(&mount.destination) {
                mounts.entries.push(mount);
            }
        }
        if !covered.contains("/dev/shm") {
            mounts.bind("/dev/shm", "shm", vec!["rbind".into(), "rprivate".into()], (sources.shm)()?);
        }
        for (name, path) in crate::sandbox::SHARED_FILES {
            if !covered.contains(path) {
                let access = if readonly { "ro" } else { "rw" };
                let options = vec!["rbind".into(), "rprivate".into(), access.into()];
                mounts.bind(path, name, options, (sources.file)(name)?);
            }
        }
        let mut volumes: Vec<_> = config.volumes.iter().collect();
        volumes.sort_by_key(|volume| normal(&volume.container_path).matches('/').count());
        for volume in volumes {
            let tree = (sources.volume)(volume)?;
            mounts.bind(&volume.container_path, &volume.host_path.to_string_lossy(), options(volume), tree);
        }
        Ok(mounts)
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
    ["rbind", propagation, access].map(str::to_owned).to_vec()
}

/// `/a//b/` is `/a/b`.
fn normal(path: &str) -> String {
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
        assert_eq!((normal("/a//b/"), normal("/"), normal("a/./b")), ("/a/b".into(), "/".into(), "/a/b".into()));
    }
}
