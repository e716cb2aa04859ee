use crate::{Error, Invocation};

/// Who makes the container's group, and where.
#[derive(Debug)]
pub(crate) enum Placement {
    /// We do, at `linux.cgroupsPath`.
    Group(cgroup::GroupPath),
    /// systemd does, as a scope, once there is a process to put into it.
    Unit(Box<cgroup::systemd::Unit>),
}

impl Placement {
    pub(crate) fn parse(spec: &oci::Spec, linux: &oci::Linux, invocation: &Invocation) -> Result<Self, Error> {
        let path = linux.cgroups_path.as_deref().unwrap_or("");
        let wrong = |error| Error::invalid(format!("linux.cgroupsPath: {error}"));
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
            Self::Group(path) => Ok(path.clone()),
            Self::Unit(unit) => unit.expected_path().map_err(Error::invalid),
        }
    }
}
