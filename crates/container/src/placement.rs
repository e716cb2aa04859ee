use crate::{Error, Invocation};

/// Who makes the container's group, and where.
#[derive(Debug)]
pub(crate) enum Placement {
    /// We do, at `linux.cgroupsPath`.
    Group(cgroup::GroupPath),
    /// systemd does, as a scope, once there is a process to put into it.
    Unit(Box<cgroup::systemd::Unit>),
    /// Nobody: it stays in the caller's groups. The path is one that no group has.
    Nowhere(cgroup::GroupPath),
}

impl Placement {
    pub(crate) fn parse(spec: &oci::Spec, linux: &oci::Linux, invocation: &Invocation) -> Result<Self, Error> {
        let path = linux.cgroups_path.as_deref().unwrap_or("");
        let wrong = |error: cgroup::Error| match error {
            cgroup::Error::Path { path, reason } => Error::invalid(format!("linux.cgroupsPath: {path:?}: {reason}")),
            error => Error::invalid(format!("linux.cgroupsPath: {error}")),
        };
        if invocation.no_cgroup {
            let path = format!("/no cgroup of container/{}", invocation.state.id);
            return cgroup::GroupPath::parse(&path).map(Self::Nowhere).map_err(wrong);
        }
        if invocation.systemd_cgroup {
            let unit = cgroup::systemd::Unit::parse(Some(path), &invocation.state.id).map_err(wrong)?;
            let unit = unit.with_annotations(&spec.annotations).map_err(Error::invalid)?;
            return Ok(Self::Unit(Box::new(unit)));
        }
        if path.is_empty() {
            return Err(Error::invalid("linux.cgroupsPath: is missing"));
        }
        cgroup::GroupPath::parse(path).map(Self::Group).map_err(wrong)
    }

    /// Where the group is or will be.
    pub(crate) fn path(&self) -> Result<cgroup::GroupPath, Error> {
        match self {
            Self::Group(path) | Self::Nowhere(path) => Ok(path.clone()),
            Self::Unit(unit) => unit.expected_path().map_err(Error::invalid),
        }
    }
}
