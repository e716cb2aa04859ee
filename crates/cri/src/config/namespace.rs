use cri_proto::v1::{NamespaceMode, NamespaceOption};
use pod::{PidMode, SharedMode, UserMappings};

use super::{field, user_namespace};
use crate::Failure;

/// Namespaces that all containers of a pod share, or that are the node's.
pub(super) struct PodNamespaces {
    pub(super) network: SharedMode,
    pub(super) ipc: SharedMode,
    pub(super) pid: PidMode,
    pub(super) user: Option<UserMappings>,
}

/// Namespaces of a container.
pub(super) struct ContainerNamespaces {
    pub(super) pid: PidMode,
    /// The container whose PID namespace it joins.
    pub(super) target: Option<String>,
    pub(super) user: Option<UserMappings>,
    /// Of the node, where it says so; POD is also what a message has that says nothing.
    pub(super) network: Option<SharedMode>,
    pub(super) ipc: Option<SharedMode>,
}

/// The namespaces of a pod.
pub(super) fn of_pod(at: &str, options: &NamespaceOption) -> Result<PodNamespaces, Failure> {
    let pid = match field::known(&format!("{at}.pid"), options.pid)? {
        NamespaceMode::Target => return Err(Failure::invalid(&format!("{at}.pid"), "TARGET is for containers only")),
        mode => pid(mode),
    };
    let user = user_namespace::mappings(&format!("{at}.userns_options"), options.userns_options.as_ref())?;
    let ipc = shared(&format!("{at}.ipc"), options.ipc)?;
    if user.is_some() {
        not_the_nodes(at, pid == PidMode::Node, ipc == SharedMode::Node)?;
    }
    Ok(PodNamespaces { network: shared(&format!("{at}.network"), options.network)?, ipc, pid, user })
}

/// A pod's root has no rights over what all of the node share (as Kubernetes has it: not with hostPID or hostIPC).
fn not_the_nodes(at: &str, pid: bool, ipc: bool) -> Result<(), Failure> {
    let why = "NODE cannot be with a user namespace; POD or CONTAINER";
    match (pid, ipc) {
        (true, _) => Err(Failure::invalid(&format!("{at}.pid"), why)),
        (_, true) => Err(Failure::invalid(&format!("{at}.ipc"), why)),
        _ => Ok(()),
    }
}

/// What a container says of its namespaces.
pub(super) fn of_container(at: &str, options: &NamespaceOption) -> Result<ContainerNamespaces, Failure> {
    let user = user_namespace::mappings(&format!("{at}.userns_options"), options.userns_options.as_ref())?;
    let mode: NamespaceMode = field::known(&format!("{at}.pid"), options.pid)?;
    let target = match mode {
        NamespaceMode::Target => Some(field::name(&format!("{at}.target_id"), &options.target_id)?),
        _ => None,
    };
    let pid = pid(mode);
    if user.is_some() {
        not_the_nodes(at, pid == PidMode::Node, false)?;
    }
    let of_node = |name: &str, mode: i32| {
        shared(&format!("{at}.{name}"), mode).map(|mode| Some(mode).filter(|mode| *mode == SharedMode::Node))
    };
    let (network, ipc) = (of_node("network", options.network)?, of_node("ipc", options.ipc)?);
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
        other => Err(Failure::invalid(at, format_args!("{} is not allowed here; POD or NODE", other.as_str_name()))),
    }
}
