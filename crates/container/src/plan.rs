use rustix::fd::BorrowedFd;

use crate::{
    Error, Inputs, Invocation, Stdio,
    devices::Devices,
    hooks::Hooks,
    host_names::HostNames,
    masks::Masks,
    mounts::{Mounts, Surroundings},
    namespaces::Namespaces,
    placement::Placement,
    process::Process,
    rootfs::Root,
    standard,
    sysctl::Sysctls,
};

/// A spec that was checked whole: what [`create`](crate::create()) will do, in kernel words. Parsed once; below it nothing
/// is optional that the kernel wants.
#[derive(Debug)]
pub struct Plan {
    pub(crate) namespaces: Namespaces,
    pub(crate) placement: Placement,
    pub(crate) limits: cgroup::Limits,
    pub(crate) root: Root,
    pub(crate) mounts: Mounts,
    pub(crate) devices: Devices,
    pub(crate) masks: Masks,
    pub(crate) sysctls: Sysctls,
    pub(crate) host_names: HostNames,
    pub(crate) process: Process,
    pub(crate) stdio: Stdio,
    pub(crate) invocation: Invocation,
    pub(crate) hooks: Hooks,
    warnings: Vec<String>,
}

impl Plan {
    /// Checks the spec against itself, the inputs and what this process may do: capabilities, `oom_score_adj` and rlimits
    /// are clamped to what this host grants, with a warning each.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the property; nothing was changed.
    pub fn new(spec: &oci::Spec, inputs: Inputs) -> Result<Self, Error> {
        let mut warnings = Vec::new();
        let none = oci::Linux::default();
        let linux = spec.linux.as_ref().unwrap_or(&none);
        refuse_what_is_not_there_yet(spec, linux)?;
        let process = spec.process.as_ref().ok_or_else(|| Error::invalid("process: is missing"))?;
        let namespaces = Namespaces::parse(&linux.namespaces, inputs.namespaces)?;
        let placement = Placement::parse(spec, linux, &inputs.invocation)?;
        let limits = cgroup::Limits::from_spec(&linux.resources.clone().unwrap_or_default())
            .map_err(|error| Error::invalid(format!("linux.resources: {error}")))?;
        let hooks = spec.hooks.as_ref().map(Hooks::parse).transpose()?.unwrap_or_default();
        let label = linux.mount_label.as_deref();
        let mounts = Mounts::parse(&spec.mounts, inputs.mounts, &Surroundings { group: &placement.path()?, label })?;
        let seccomp = match (inputs.seccomp, &linux.seccomp) {
            (Some(program), _) => Some(program),
            (None, Some(profile)) => Some(compile(profile)?),
            (None, None) => None,
        };
        let process = Process::parse(process, linux, seccomp, &mut warnings)?;
        check_terminal(&process, &mounts)?;
        Ok(Self {
            root: Root::parse(spec, inputs.rootfs)?,
            devices: Devices::parse(&linux.devices, mounts.bind_dev())?,
            masks: Masks::parse(linux)?,
            sysctls: Sysctls::parse(&linux.sysctl, &namespaces)?,
            host_names: HostNames::parse(spec, &namespaces)?,
            stdio: standard::move_up(inputs.stdio)?,
            namespaces,
            placement,
            limits,
            mounts,
            process,
            invocation: inputs.invocation,
            hooks,
            warnings,
        })
    }

    /// In the caller, last before the clone: what the child cannot reach by path is opened.
    pub(crate) fn open_sources(&mut self) -> Result<(), Error> {
        if let Some(staging) = self.invocation.staging.take()
            && !self.hooks.before_pivot()
        {
            self.namespaces.stage(staging)?;
            self.root.open()?;
            self.mounts.open_sources(!self.root.wants_shared())?;
        }
        Ok(())
    }

    /// What was clamped, in words for a log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Descriptors the child needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let mounts = self.mounts.descriptors();
        self.namespaces
            .descriptors()
            .chain(self.root.descriptors())
            .chain(mounts)
            .chain(standard::descriptors(&self.stdio))
    }
}

fn refuse_what_is_not_there_yet(spec: &oci::Spec, linux: &oci::Linux) -> Result<(), Error> {
    let version = spec.oci_version.as_str();
    if !(version.is_empty() || version.starts_with("1.")) {
        return Err(Error::invalid(format!("ociVersion: {version:?} is not 1.x")));
    }
    if !linux.uid_mappings.is_empty() || !linux.gid_mappings.is_empty() {
        return Err(Error::invalid("linux.uidMappings: a user namespace is not supported yet"));
    }
    Ok(())
}

pub(crate) fn compile(profile: &oci::Seccomp) -> Result<seccomp::Program, Error> {
    if profile.listener_path.as_deref().is_some_and(|path| !path.is_empty()) {
        return Err(Error::invalid("linux.seccomp.listenerPath: is not supported yet"));
    }
    seccomp::compile(profile).map_err(|error| Error::invalid(error.to_string()))
}

/// Without a devpts of its own a container would get a terminal of the image, or none.
fn check_terminal(process: &Process, mounts: &Mounts) -> Result<(), Error> {
    if process.terminal.is_some() && !mounts.has(c"/dev/pts") && !mounts.bind_dev() {
        return Err(Error::invalid("process.terminal: needs a devpts mounted on /dev/pts"));
    }
    Ok(())
}
