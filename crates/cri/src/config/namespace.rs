use cri_proto::v1::{NamespaceMode, NamespaceOption};
use pod::{PidMode, SharedMode};

use super::field;
use crate::Failure;

/// Namespaces that all containers of a pod share, or that are the node's.
pub(super) struct PodNamespaces {
    pub(super) network: SharedMode,
    pub(super) ipc: SharedMode,
    pub(super) pid: PidMode,
}

/// The namespaces of a pod.
pub(super) fn of_pod(at: &str, options: &NamespaceOption) -> Result<PodNamespaces, Failure> {
    no_user_namespace(at, options)?;
    let pid = match field::known(&format!("{at}.pid"), options.pid)? {
        NamespaceMode::Target => return Err(Failure::invalid(&format!("{at}.pid"), "TARGET is for containers only")),
        mode => pid(mode),
    };
    Ok(PodNamespaces {
        network: shared(&format!("{at}.network"), options.network)?,
        ipc: shared(&format!("{at}.ipc"), options.ipc)?,
        pid,
    })
}

/// The PID namespace of a container, and the container whose namespace it joins.
pub(super) fn of_container(at: &str, options: &NamespaceOption) -> Result<(PidMode, Option<String>), Failure> {
    no_user_namespace(at, options)?;
    let mode: NamespaceMode = field::known(&format!("{at}.pid"), options.pid)?;
    let target = match mode {
        NamespaceMode::Target => Some(field::name(&format!("{at}.target_id"), &options.target_id)?),
        _ => None,
    };
    Ok((pid(mode), target))
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

/// `Status` says that no handler has them; a caller who asks all the same must not get a pod without.
fn no_user_namespace(at: &str, options: &NamespaceOption) -> Result<(), Failure> {
    let Some(user) = &options.userns_options else { return Ok(()) };
    let at = format!("{at}.userns_options.mode");
    match field::known(&at, user.mode)? {
        NamespaceMode::Node => Ok(()),
        _ => Err(Failure::invalid(&at, "no runtime handler supports user namespaces yet; use NODE")),
    }
}
