//! Comparison of a container's configuration with its pod's.

use crate::{ContainerConfig, Error, PidMode, RuntimeFacts, SandboxConfig, SeccompChoice, Security};

/// Refuses a container that needs what the runtime of its pod's handler lacks.
pub(super) fn check_against_runtime(config: &ContainerConfig, facts: &RuntimeFacts) -> Result<(), Error> {
    let runtime = if facts.version.is_empty() { "the runtime of the pod's handler" } else { &facts.version };
    let refuse = |field: &str, lack: &str, remedy: &str| {
        let remedy = format!("{remedy}, install a newer release, or choose another RuntimeClass");
        Err(Error::invalid(format!("config.{field}: {runtime} {lack}; {remedy}")))
    };
    let features = facts.features.as_ref();
    let has_rro = features.is_some_and(|features| features.recursive_readonly_mounts);
    if !has_rro && config.volumes.iter().any(|volume| volume.recursive_readonly) {
        let lack = "does not support mounts that are read-only recursively";
        return refuse("mounts.recursive_read_only", lack, "remove recursiveReadOnly from the volume");
    }
    let is_filtered = !config.security.privileged && config.security.seccomp != SeccompChoice::Unconfined;
    if is_filtered && features.and_then(|features| features.seccomp) == Some(false) {
        let lack = "was built without seccomp";
        return refuse("linux.security_context.seccomp", lack, "set the seccomp profile Unconfined");
    }
    Ok(())
}

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
