//! Other container engines on the node: what runs, and what they left.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Host, mounts::Mount, processes::Process, systemd};

/// A container engine that a kubelet can use, or could in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// containerd.
    Containerd,
    /// CRI-O.
    Crio,
    /// Docker Engine.
    Docker,
    /// The adapter of the CRI to Docker Engine.
    CriDockerd,
}

/// Where an engine can be seen.
struct Traces {
    daemon: &'static str,
    /// The beginning of the name of the process that each container has.
    container: &'static str,
    unit: &'static str,
    sockets: &'static [&'static str],
    /// Directories with its mounts.
    mounts: &'static [&'static str],
    /// Directories with its images.
    data: &'static [&'static str],
}

/// What was found of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    /// The engine.
    pub engine: Engine,
    /// Process id of its daemon.
    pub daemon: Option<u32>,
    /// Number of the processes of its containers.
    pub containers: usize,
    /// Its sockets that exist.
    pub sockets: Vec<PathBuf>,
    /// Number of its mounts.
    pub mounts: usize,
    /// Whether its unit starts it at boot.
    pub enabled: bool,
    /// Its directories with images.
    pub data: Vec<PathBuf>,
}

impl Engine {
    /// All engines.
    pub const ALL: [Self; 4] = [Self::Containerd, Self::Crio, Self::Docker, Self::CriDockerd];

    /// Returns the name that users know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "CRI-O",
            Self::Docker => "Docker",
            Self::CriDockerd => "cri-dockerd",
        }
    }

    /// Returns the name of its systemd unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.traces().unit
    }

    /// Returns the sockets of its CRI; none for Docker.
    #[must_use]
    pub fn sockets(self) -> &'static [&'static str] {
        self.traces().sockets
    }

    fn traces(self) -> Traces {
        match self {
            Self::Containerd => Traces {
                daemon: "containerd",
                container: "containerd-shim",
                unit: "containerd.service",
                sockets: &["/run/containerd/containerd.sock"],
                mounts: &["/run/containerd/", "/var/lib/containerd/"],
                data: &["/var/lib/containerd"],
            },
            Self::Crio => Traces {
                daemon: "crio",
                container: "conmon",
                unit: "crio.service",
                sockets: &["/run/crio/crio.sock"],
                mounts: &["/var/lib/containers/storage/", "/run/containers/storage/"],
                data: &["/var/lib/containers/storage"],
            },
            Self::Docker => Traces {
                daemon: "dockerd",
                container: "docker-proxy",
                unit: "docker.service",
                sockets: &["/run/docker.sock"],
                mounts: &["/var/lib/docker/", "/run/docker/"],
                data: &["/var/lib/docker"],
            },
            Self::CriDockerd => Traces {
                daemon: "cri-dockerd",
                container: "",
                unit: "cri-docker.service",
                sockets: &["/run/cri-dockerd.sock"],
                mounts: &[],
                data: &["/var/lib/cri-dockerd"],
            },
        }
    }

    /// Collects what there is of the engine.
    pub(crate) fn look(self, host: &Host, processes: &[Process], mounts: &[Mount]) -> Evidence {
        let traces = self.traces();
        let is_container = |process: &&Process| {
            let program = process.arguments[0].rsplit('/').next().unwrap_or_default();
            !traces.container.is_empty() && program.starts_with(traces.container)
        };
        let is_its_mount = |mount: &&Mount| {
            let point = mount.point.to_string_lossy();
            traces.mounts.iter().any(|directory| point.starts_with(directory))
        };
        let existing = |paths: &[&str]| -> Vec<PathBuf> {
            paths.iter().filter(|path| host.exists(path)).map(PathBuf::from).collect()
        };
        Evidence {
            engine: self,
            daemon: processes
                .iter()
                .find(|process| process.name == traces.daemon && process.is_trusted(host))
                .map(|process| process.pid),
            containers: processes.iter().filter(is_container).count(),
            sockets: existing(traces.sockets),
            mounts: mounts.iter().filter(is_its_mount).count(),
            enabled: systemd::is_enabled(host, traces.unit),
            data: existing(traces.data),
        }
    }
}

impl Evidence {
    /// Whether there is any trace of the engine besides its images.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.daemon.is_some() || self.containers + self.mounts > 0 || !self.sockets.is_empty() || self.enabled
    }

    /// Describes what was found, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.daemon.map(|pid| format!("daemon running (pid {pid})")));
        parts.extend((self.containers > 0).then(|| format!("{} processes of containers", self.containers)));
        parts.extend((self.mounts > 0).then(|| format!("{} mounts", self.mounts)));
        parts.extend(self.sockets.iter().map(|socket| format!("socket {}", socket.display())));
        parts.extend(self.enabled.then(|| format!("{} enabled", self.engine.unit())));
        parts.extend(self.data.iter().map(|path| format!("images in {}", path.display())));
        parts.join(", ")
    }
}
