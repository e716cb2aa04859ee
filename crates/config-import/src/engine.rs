//! The engines whose configuration is translated.

use std::{fmt, path::Path};

use crate::{Import, ImportError, Rule, containerd, crio, hosts};

/// An engine whose configuration can be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// containerd, with configurations of versions 2, 3 and 4.
    Containerd,
    /// CRI-O.
    Crio,
}

impl Engine {
    /// Returns the path that the engine reads by default.
    pub fn default_file(self) -> &'static Path {
        match self {
            Self::Containerd => Path::new("/etc/containerd/config.toml"),
            Self::Crio => Path::new("/etc/crio/crio.conf"),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Containerd => "containerd",
            Self::Crio => "CRI-O",
        })
    }
}

/// Translates a file, the files that belong to it, and for CRI-O also the files of `containers`, its directory of
/// registries (`/etc/containers`).
pub fn import(engine: Engine, file: &Path, containers: &Path) -> Result<Import, ImportError> {
    match engine {
        Engine::Containerd => containerd::import(file),
        Engine::Crio => crio::import(file, containers),
    }
}

/// Returns the rules of all files of an engine: the name of the file, and its rules.
pub fn rules(engine: Engine) -> Vec<(&'static str, Vec<Rule>)> {
    match engine {
        Engine::Containerd => vec![("config.toml", containerd::rules()), ("hosts.toml", hosts::RULES.to_vec())],
        Engine::Crio => vec![("crio.conf", crio::rules()), ("registries.conf", crio::REGISTRIES.to_vec())],
    }
}
