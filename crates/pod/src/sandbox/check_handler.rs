//! Whether the runtime handler of a pod can run it.

use crate::{
    Error, PidMode, RuntimeFacts, RuntimeFeatures, SandboxConfig, SharedMode,
    node::{Demand, Handler, Hypervisor, Node},
    parts::Parts,
};

/// Refuses a runtime handler that is not configured, whose runtime is not usable, or that lacks what this pod needs.
pub(super) async fn check_handler(parts: &Parts, config: &SandboxConfig) -> Result<(), Error> {
    let name = &config.runtime_handler;
    let program = match parts.node.handlers.get(name)? {
        Handler::Native => return Ok(()),
        Handler::Vm(vm) => return check_vm(vm, config),
        Handler::Wasm(wasm) => {
            let version = wasm.version().await;
            return version.map(drop).map_err(|error| error.during(format_args!("runtime handler {name:?}")));
        }
        Handler::Shim(_) => "shim",
        Handler::Oci(_) => "runtime",
    };
    let facts = parts.node.handlers.facts(name).await?.unwrap_or_default();
    let features = facts.features.as_ref();
    let lacks = || lacks_cgroups(&parts.node, features).or_else(|| lacks_user_namespaces(config, features));
    match needs_shim(program, &facts).or_else(lacks) {
        None => Ok(()),
        Some(text) => {
            let program = if facts.version.is_empty() { format!("its {program}") } else { facts.version };
            Err(Error::invalid(format!("runtime handler {name:?}: {program} {text}")))
        }
    }
}

/// Refuses a pod that a virtual machine cannot be.
fn check_vm(hypervisor: &Hypervisor, config: &SandboxConfig) -> Result<(), Error> {
    let refused = [
        (config.network == SharedMode::Node, "the network of the node (hostNetwork)"),
        (config.ipc == SharedMode::Node, "the IPC namespace of the node (hostIPC)"),
        (config.pid == PidMode::Node, "the PID namespace of the node (hostPID)"),
        (config.user_namespace.is_some(), "a user namespace (hostUsers: false), which its kernel makes unnecessary"),
    ];
    let name = &hypervisor.handler.name;
    if let Some((_, what)) = refused.iter().find(|(is_requested, _)| *is_requested) {
        return Err(Error::invalid(format!(
            "runtime handler {name:?}: a virtual machine cannot have {what}; remove it from the pod, or choose another \
             RuntimeClass"
        )));
    }
    let checked = offload::in_place(|| {
        hypervisor.check()?;
        hypervisor.bounds().target(Demand::new(config.resources.as_ref(), &[]))
    });
    checked.map_err(|error| error.during(format_args!("runtime handler {name:?}")))?;
    warn_of_overhead(hypervisor, config);
    Ok(())
}

/// Logs a warning if the limit of a pod does not include what its virtual machine needs: the kernel of the node could kill it.
fn warn_of_overhead(hypervisor: &Hypervisor, config: &SandboxConfig) {
    let limit =
        |resources: &Option<oci::Resources>| resources.as_ref()?.memory.as_ref()?.limit.filter(|limit| *limit > 0);
    let overhead = limit(&config.overhead).unwrap_or(0).unsigned_abs();
    let memory = hypervisor.handler.memory;
    if limit(&config.resources).is_some() && overhead < memory {
        tracing::warn!(
            pod = config.name.name,
            namespace = config.name.namespace,
            overhead,
            memory,
            "the memory limit of the pod does not include that of its virtual machine; set overhead.podFixed.memory of its \
             RuntimeClass"
        );
    }
}

/// Returns why a runtime cannot run the containers of a pod by itself: those of gVisor are in a sandbox.
fn needs_shim(program: &str, facts: &RuntimeFacts) -> Option<String> {
    (program == "runtime" && facts.version.starts_with("runsc")).then(|| {
        "runs the containers of a pod in a sandbox, which its shim starts; set kind = \"shim\" and binary = \
         \"io.containerd.runsc.v1\" for this handler"
            .to_owned()
    })
}

/// Returns why the runtime cannot manage the cgroups of this node. One that does not report this may be able to. With
/// the systemd driver, too, it only joins and limits a cgroup: the engine registers the scope.
fn lacks_cgroups(node: &Node, features: Option<&RuntimeFeatures>) -> Option<String> {
    let features = features?;
    let (version, supported) = match node.trees.is_unified() {
        true => (2, features.cgroup_v2),
        false => (1, features.cgroup_v1),
    };
    (supported == Some(false)).then(|| {
        format!(
            "was built without support for cgroup v{version}, which this node uses; install another build, or choose \
             another RuntimeClass"
        )
    })
}

fn lacks_user_namespaces(config: &SandboxConfig, features: Option<&RuntimeFeatures>) -> Option<String> {
    config.user_namespace.as_ref()?;
    (!features.is_some_and(|features| features.user_namespaces)).then(|| {
        "does not support user namespaces of pods (its features do not include id-mapped mounts); install a newer \
         release, such as runc 1.2 or crun 1.9, remove hostUsers: false from the pod, or choose another RuntimeClass"
            .to_owned()
    })
}
