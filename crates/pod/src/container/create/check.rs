//! Comparison of a container's configuration with its pod's.

use crate::{Error, PidMode, SandboxConfig, Security};

/// Refuses a configuration that exceeds the pod's: a container never gets more of the node than its pod.
pub(super) fn check_against_pod(security: &Security, pod: &SandboxConfig) -> Result<(), Error> {
    let refuse =
        |field: &str, reason: &str| Err(Error::invalid(format!("config.linux.security_context.{field}: {reason}")));
    if security.privileged && !pod.privileged {
        return refuse("privileged", "the pod is not privileged");
    }
    if security.user_namespace != pod.user_namespace {
        return refuse("namespace_options.userns_options", "must be equal to those of the pod");
    }
    let modes = [("network", security.network, pod.network), ("ipc", security.ipc, pod.ipc)];
    for (name, requested, pods) in modes {
        if let Some(requested) = requested.filter(|requested| *requested != pods) {
            return refuse(
                &format!("namespace_options.{name}"),
                &format!("requested {requested:?}, but the pod has {pods:?}"),
            );
        }
    }
    if security.pid == PidMode::Node && pod.pid != PidMode::Node {
        return refuse("namespace_options.pid", &format!("requested Node, but the pod has {:?}", pod.pid));
    }
    Ok(())
}
