use cri_proto::v1::{NamespaceMode, NamespaceOption};
use pod::{PidMode, SharedMode, UserMappings};

use super::{field, user_namespace};
use crate::Failure;

/// Namespaces that a pod's containers share, or that are the node's.
pub(super) struct PodNamespaces {
    pub(super) network: SharedMode,
    pub(super) ipc: SharedMode,
    pub(super) pid: PidMode,
    pub(super) user: Option<UserMappings>,
}

/// Namespaces of a container.
pub(super) struct ContainerNamespaces {
    pub(super) pid: PidMode,
    /// The container whose PID namespace is joined.
    pub(super) target: Option<String>,
    pub(super) user: Option<UserMappings>,
    /// `Some(Node)` if the container requests the node's namespace. `None` otherwise: POD is also the value of a
    /// message that does not set it.
    pub(super) network: Option<SharedMode>,
    pub(super) ipc: Option<SharedMode>,
}

/// Validates the namespaces of a pod.
pub(super) fn of_pod(at: &str, options: &NamespaceOption) -> Result<PodNamespaces, Failure> {
    let pid = match field::known(&format!("{at}.pid"), options.pid)? {
        NamespaceMode::Target => return Err(Failure::invalid(&format!("{at}.pid"), "TARGET is for containers only")),
        mode => pid(mode),
    };
    let user = user_namespace::mappings(&format!("{at}.userns_options"), options.userns_options.as_ref())?;
    let ipc = shared(&format!("{at}.ipc"), options.ipc)?;
    if user.is_some() {
        reject_node_namespaces(at, pid == PidMode::Node, ipc == SharedMode::Node)?;
    }
    Ok(PodNamespaces { network: shared(&format!("{at}.network"), options.network)?, ipc, pid, user })
}

/// Rejects namespaces of the node for a pod with a user namespace, whose root has no privileges over them. Kubernetes
/// too refuses hostPID and hostIPC with a user namespace.
fn reject_node_namespaces(at: &str, pid: bool, ipc: bool) -> Result<(), Failure> {
    let reason = "NODE cannot be combined with a user namespace; use POD or CONTAINER";
    match (pid, ipc) {
        (true, _) => Err(Failure::invalid(&format!("{at}.pid"), reason)),
        (_, true) => Err(Failure::invalid(&format!("{at}.ipc"), reason)),
        _ => Ok(()),
    }
}

/// Validates the namespaces of a container.
pub(super) fn of_container(at: &str, options: &NamespaceOption) -> Result<ContainerNamespaces, Failure> {
    let user = user_namespace::mappings(&format!("{at}.userns_options"), options.userns_options.as_ref())?;
    let mode: NamespaceMode = field::known(&format!("{at}.pid"), options.pid)?;
    let target = match mode {
        NamespaceMode::Target => Some(field::name(&format!("{at}.target_id"), &options.target_id)?),
        _ => None,
    };
    let pid = pid(mode);
    if user.is_some() {
        reject_node_namespaces(at, pid == PidMode::Node, false)?;
    }
    let node_only = |name: &str, mode: i32| {
        shared(&format!("{at}.{name}"), mode).map(|mode| Some(mode).filter(|mode| *mode == SharedMode::Node))
    };
    let (network, ipc) = (node_only("network", options.network)?, node_only("ipc", options.ipc)?);
    Ok(ContainerNamespaces { pid, target, user, network, ipc })
}

fn pid(mode: NamespaceMode) -> PidMode {
    match mode {
        NamespaceMode::Pod => PidMode::Pod,
        NamespaceMode::Node => PidMode::Node,
        NamespaceMode::Container | NamespaceMode::Target => PidMode::Container,
    }
}

fn shared(at: &str, mode: i32) -> Result<SharedMode, Failure> {
    match field::known(at, mode)? {
        NamespaceMode::Pod => Ok(SharedMode::Pod),
        NamespaceMode::Node => Ok(SharedMode::Node),
        other => {
            Err(Failure::invalid(at, format_args!("{} is not allowed here; use POD or NODE", other.as_str_name())))
        }
    }
}
