use rustix::fd::BorrowedFd;

use crate::{
    Error, Inputs, Invocation, SeccompAgent, Stdio,
    devices::Devices,
    filter::Filter,
    hooks::Hooks,
    host_names::HostNames,
    intel_rdt::IntelRdt,
    masks::Masks,
    mounts::{MountContext, Mounts},
    namespaces::{MountNamespace, Namespaces},
    net_devices::NetDevices,
    placement::Placement,
    privileges::Privileges,
    process::Process,
    rootfs::Root,
    stdio,
    sysctl::Sysctls,
    time_offsets::TimeOffsets,
};

/// A completely checked spec: everything that [`create`](crate::create()) will do, in the kernel's terms. The spec is
/// parsed once; after that, no value that the kernel needs is optional.
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
    pub(crate) net_devices: Option<NetDevices>,
    pub(crate) intel_rdt: Option<IntelRdt>,
    pub(crate) time_offsets: TimeOffsets,
    pub(crate) privileges: Privileges,
    warnings: Vec<String>,
}

impl Plan {
    /// Checks the spec against itself, the inputs and the privileges of this process. Capabilities, `oom_score_adj` and
    /// rlimits are reduced to what this host grants, with a warning each.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the property; nothing was changed.
    pub fn new(spec: &oci::Spec, mut inputs: Inputs) -> Result<Self, Error> {
        let mut warnings = Vec::new();
        let default = oci::Linux::default();
        let linux = spec.linux.as_ref().unwrap_or(&default);
        check_version(spec)?;
        let namespaces = Namespaces::parse(linux, inputs.namespaces)?;
        let time_offsets = TimeOffsets::parse(&linux.time_offsets, &namespaces)?;
        let placement = Placement::parse(spec, linux, &inputs.invocation)?;
        let limits =
            cgroup::Limits::from_spec(&linux.resources.clone().unwrap_or_default()).map_err(|error| match error {
                cgroup::Error::Invalid { .. } => Error::invalid(error.to_string()),
                error => Error::invalid(format!("linux.resources: {error}")),
            })?;
        let limits = match inputs.invocation.nesting {
            Some(nesting) => limits.with_nesting(nesting),
            None => limits,
        };
        let hooks = spec.hooks.as_ref().map(Hooks::parse).transpose()?.unwrap_or_default();
        let hooks = hooks.with_output(std::mem::take(&mut inputs.invocation.hook_output));
        let label = linux.mount_label.as_deref();
        for entry in spec.mounts.iter().filter(|entry| !entry.destination.starts_with('/')) {
            warnings.push(format!(
                "mounts: {:?} is not absolute, which is deprecated; it is resolved relative to /",
                entry.destination
            ));
        }
        let user_namespace = namespaces.user.is_other();
        let context = MountContext { group: &placement.path()?, label, user_namespace };
        let mounts = Mounts::parse(&spec.mounts, inputs.mounts, &context)?;
        let seccomp = match (inputs.seccomp, &linux.seccomp) {
            (Some(program), _) => Some(program),
            (None, Some(profile)) => Some(compile(profile)?),
            (None, None) => None,
        };
        let agent = agent(linux, &inputs.invocation);
        let filter = seccomp.map(|program| Filter::parse(program, agent)).transpose()?;
        let process = match &spec.process {
            Some(process) => Process::parse(process, linux, filter, &mut warnings)?,
            None => Process::absent(linux, filter, &mut warnings)?,
        };
        let process = process.with_callers_groups(inputs.invocation.keep_groups);
        let process = process.with_interpreter(inputs.interpreter)?;
        let privileges = Privileges::detect(process.callers_capabilities, inputs.invocation.staging.is_some())?;
        if let Some(mappings) = namespaces.user.mappings() {
            process.check_mapped(mappings)?;
        }
        check_terminal(&process, &mounts)?;
        Ok(Self {
            root: Root::parse(spec, inputs.rootfs)?,
            devices: Devices::parse(&linux.devices, mounts.bind_dev())?,
            masks: Masks::parse(linux)?,
            sysctls: Sysctls::parse(spec, &namespaces)?,
            host_names: HostNames::parse(spec, &namespaces)?,
            intel_rdt: parse_intel_rdt(linux, &inputs.invocation)?,
            net_devices: NetDevices::parse(&linux.net_devices, &namespaces)?,
            stdio: stdio::move_above_2(inputs.stdio)?,
            namespaces,
            placement,
            limits,
            mounts,
            process,
            invocation: inputs.invocation,
            hooks,
            time_offsets,
            privileges,
            warnings,
        })
    }

    /// Opens everything that the child cannot reach by path. Runs in the caller, last before the clone.
    pub(crate) fn open_sources(&mut self) -> Result<(), Error> {
        self.process.connect_agent()?;
        let staging = self.invocation.staging.take();
        let host = self.invocation.host_mount_namespace.take();
        let staging = if self.hooks.before_pivot() { host } else { staging };
        let staging = staging.filter(|_| self.namespaces.mount == MountNamespace::New);
        // In a user namespace the container's root may not be able to traverse every directory of a path, and in a
        // joined mount namespace the caller's paths are not visible.
        let paths_unreachable = self.namespaces.user.is_other() || self.namespaces.mount == MountNamespace::Joined;
        let all = staging.is_some() || paths_unreachable && self.privileges.mounts;
        if all {
            self.root.open()?;
        }
        if all || self.mounts.need_caller(self.privileges.mounts) {
            self.mounts.open_sources(all, !self.root.is_shared(), &self.namespaces.user)?;
        }
        match staging {
            Some(staging) => self.namespaces.set_staging(staging),
            None => Ok(()),
        }
    }

    /// Whether the plan mounts file systems made of directories or devices of the host. [`create`](crate::create())
    /// does that in the caller, and may then block on a disk.
    pub fn mounts_host_file_systems(&self) -> bool {
        self.mounts.have_host_file_systems()
    }

    /// Returns warnings for a log: reduced values and deprecated properties.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the descriptors that the child needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let mounts = self.mounts.descriptors();
        self.namespaces
            .descriptors()
            .chain(self.root.descriptors())
            .chain(mounts)
            .chain(stdio::descriptors(&self.stdio))
            .chain(self.process.descriptors())
            .chain(self.hooks.descriptors())
    }
}

fn check_version(spec: &oci::Spec) -> Result<(), Error> {
    let version = spec.oci_version.as_str();
    if !(version.is_empty() || version.starts_with("1.")) {
        return Err(Error::invalid(format!("ociVersion: {version:?} is not 1.x")));
    }
    Ok(())
}

pub(crate) fn compile(profile: &oci::Seccomp) -> Result<seccomp::Program, Error> {
    seccomp::compile(profile).map_err(|error| Error::invalid(error.to_string()))
}

fn parse_intel_rdt(linux: &oci::Linux, invocation: &Invocation) -> Result<Option<IntelRdt>, Error> {
    linux.intel_rdt.as_ref().map(|rdt| IntelRdt::parse(rdt, &invocation.state.id)).transpose()
}

fn agent(linux: &oci::Linux, invocation: &Invocation) -> Option<SeccompAgent> {
    let profile = linux.seccomp.as_ref()?;
    let path = profile.listener_path.clone().filter(|path| !path.is_empty())?;
    let metadata = profile.listener_metadata.clone().unwrap_or_default();
    Some(SeccompAgent { path, metadata, state: invocation.state.clone() })
}

/// Checks that a container with a terminal has its own devpts: otherwise the terminal would come from files of the
/// image, or could not be opened.
fn check_terminal(process: &Process, mounts: &Mounts) -> Result<(), Error> {
    if process.terminal.is_some() && !mounts.has(c"/dev/pts") && !mounts.bind_dev() {
        return Err(Error::invalid("process.terminal: needs a devpts mounted on /dev/pts"));
    }
    Ok(())
}
