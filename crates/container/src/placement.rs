use crate::{Error, Invocation};

/// The container's cgroup: which program makes it, and where.
#[derive(Debug)]
pub(crate) enum Placement {
    /// This crate makes it, at `linux.cgroupsPath`.
    Group(cgroup::GroupPath),
    /// systemd makes it, as a scope, once there is a process to put into it.
    Unit(Box<cgroup::systemd::Unit>),
    /// No cgroup is made: the container stays in the caller's groups. The path is one that no group has.
    Callers(cgroup::GroupPath),
}

impl Placement {
    pub(crate) fn parse(spec: &oci::Spec, linux: &oci::Linux, invocation: &Invocation) -> Result<Self, Error> {
        let path = linux.cgroups_path.as_deref().unwrap_or("");
        let invalid = |error: cgroup::Error| match error {
            cgroup::Error::Path { path, reason } => Error::invalid(format!("linux.cgroupsPath: {path:?}: {reason}")),
            error => Error::invalid(format!("linux.cgroupsPath: {error}")),
        };
        if invocation.no_cgroup {
            let path = format!("/no cgroup of container/{}", invocation.state.id);
            return cgroup::GroupPath::parse(&path).map(Self::Callers).map_err(invalid);
        }
        if invocation.systemd_cgroup {
            let unit = cgroup::systemd::Unit::parse(Some(path), &invocation.state.id).map_err(invalid)?;
            let unit = unit.with_annotations(&spec.annotations).map_err(Error::invalid)?;
            return Ok(Self::Unit(Box::new(unit)));
        }
        if path.is_empty() {
            return Err(Error::invalid("linux.cgroupsPath: is missing"));
        }
        cgroup::GroupPath::parse(path).map(Self::Group).map_err(invalid)
    }

    /// Returns the path that the group has or will have.
    pub(crate) fn path(&self) -> Result<cgroup::GroupPath, Error> {
        match self {
            Self::Group(path) | Self::Callers(path) => Ok(path.clone()),
            Self::Unit(unit) => unit.expected_path().map_err(Error::invalid),
        }
    }
}
