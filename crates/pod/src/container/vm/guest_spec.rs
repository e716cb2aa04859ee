//! The specification of a container as the agent in the guest gets it.

use agent_api::SHARED;
use monitor_api::{PRIVATE, Role};
use oci::{Mount, NamespaceType, Spec};
use rustix::fd::OwnedFd;

use crate::{Error, store::Container};

/// Namespaces that a container has of its own in the guest. Of the others, the pod has those of the guest.
const OWN: [NamespaceType; 3] = [NamespaceType::Mount, NamespaceType::Pid, NamespaceType::Cgroup];
/// The guest's shared memory, which all containers of the pod use.
const SHM: &str = "/dev/shm";

/// Returns the directory of a container in the guest.
pub(super) fn bundle(container: &Container) -> String {
    format!("{SHARED}/{}", container.guest_id())
}

/// Returns the specification for the guest: mounts that are passed as descriptors on the node have paths there, and what
/// only the node has is left out.
///
/// # Errors
/// `InvalidArgument` for devices of the node.
pub(super) fn guest_spec(
    container: &Container,
    spec: &Spec,
    seccomp: Option<oci::Seccomp>,
    mounts: &[(Role, OwnedFd)],
) -> Result<Spec, Error> {
    let mut spec = spec.clone();
    let config = container.config();
    if !config.devices.is_empty() || !config.cdi_devices.is_empty() {
        return Err(Error::invalid("config.devices: devices of the node are not available in a virtual machine"));
    }
    let bundle = bundle(container);
    for (role, _) in mounts {
        let Role::Mount(index) = role else { continue };
        let entry = usize::try_from(*index).ok().and_then(|index| spec.mounts.get_mut(index));
        let entry = entry.ok_or_else(|| Error::internal("a bug: a mount without an entry"))?;
        entry.source = Some(format!("{bundle}/{PRIVATE}/mount-{index}"));
        entry.uid_mappings.clear();
        entry.gid_mappings.clear();
        // The mount on the node is read-only. In the guest, the mounts below it would inherit that from it.
        entry.options.retain(|option| option != "ro");
    }
    for entry in spec.mounts.iter_mut().filter(|entry| entry.destination == SHM && is_bind(entry)) {
        entry.source = Some(SHM.to_owned());
    }
    spec.hooks = None;
    spec.hostname = None;
    if let Some(process) = &mut spec.process {
        process.apparmor_profile = None;
        process.selinux_label = None;
    }
    if let Some(linux) = &mut spec.linux {
        linux.namespaces.retain(|namespace| OWN.contains(&namespace.kind));
        if config.security.pid == crate::PidMode::Pod {
            linux.namespaces.retain(|namespace| namespace.kind != NamespaceType::Pid);
        }
        linux.seccomp = seccomp;
        linux.mount_label = None;
        linux.uid_mappings.clear();
        linux.gid_mappings.clear();
        // The devices of a privileged container are those of the node.
        linux.devices.clear();
        linux.resources = linux.resources.take().map(guest_resources);
    }
    Ok(spec)
}

/// Returns limits as a guest gets them: processors and memory nodes of the node are not its own.
pub(super) fn guest_resources(mut resources: oci::Resources) -> oci::Resources {
    if let Some(cpu) = &mut resources.cpu {
        (cpu.cpus, cpu.mems) = (None, None);
    }
    resources
}

fn is_bind(entry: &Mount) -> bool {
    entry.kind.as_deref() == Some("bind")
}
