use std::path::Path;

use doctor::Engine;
use serde::Serialize;

/// An engine whose store can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// containerd.
    Containerd,
    /// CRI-O.
    Crio,
    /// Docker, with cri-dockerd.
    Docker,
}

impl Source {
    /// Returns the engine.
    #[must_use]
    pub fn engine(self) -> Engine {
        match self {
            Self::Containerd => Engine::Containerd,
            Self::Crio => Engine::Crio,
            Self::Docker => Engine::Docker,
        }
    }

    /// Returns the directory of its store.
    #[must_use]
    pub fn root(self) -> &'static Path {
        Path::new(match self {
            Self::Containerd => "/var/lib/containerd",
            Self::Crio => "/var/lib/containers/storage",
            Self::Docker => "/var/lib/docker",
        })
    }
}
