//! The specification of a container without descriptors: everything that the monitor is sent as a descriptor has a path
//! in the bundle.

use std::collections::BTreeMap;

use monitor_api::{Attachments, PRIVATE, Role};
use oci::{NamespaceType, Root, Spec};

use super::{base_spec, privileges::limit_to_own};
use crate::{
    ContainerId,
    namespaces::hostname,
    store::{Container, Sandbox},
};

/// Version of the specification: the newest that runtimes of 2023 accept. Newer properties are ignored by them.
const VERSION: &str = "1.0.2";

/// What the specification in the bundle is made of.
pub(crate) struct BundleInputs<'a> {
    /// The specification for the monitor.
    pub(crate) spec: &'a Spec,
    /// Seccomp profile.
    pub(crate) seccomp: Option<oci::Seccomp>,
    /// A namespace of the pod that is attached later.
    pub(crate) joins: Option<NamespaceType>,
    /// Specification of the handler whose properties the container gets if the request does not determine them.
    pub(crate) base: Option<&'a Spec>,
    /// Whether huge pages can be limited. The kubelet sets limits also where they cannot, and runtimes fail then.
    pub(crate) limits_huge_pages: bool,
    /// The process of a sandbox whose PID namespace the container joins.
    pub(crate) sandbox_process: Option<u32>,
}

/// What reads the bundle.
#[derive(Clone, Copy)]
pub(super) enum BundleUser<'a> {
    /// An OCI runtime.
    Oci {
        /// Annotations that it gets.
        allowed_annotations: &'a [String],
        /// Annotations of all its containers.
        default_annotations: &'a BTreeMap<String, String>,
    },
    /// A containerd shim.
    Shim {
        /// Annotations that it gets.
        allowed_annotations: &'a [String],
        /// The sandbox container of the pod.
        sandbox_container: Option<&'a ContainerId>,
    },
}

/// Returns a specification with which an OCI runtime creates the same container as the monitor does with descriptors.
pub(super) fn standalone(
    bundle: &str,
    user: BundleUser<'_>,
    (sandbox, container): (&Sandbox, &Container),
    inputs: BundleInputs<'_>,
    attachments: &Attachments,
) -> Spec {
    let BundleInputs { spec, seccomp, joins, base, limits_huge_pages, sandbox_process } = inputs;
    let mut spec = spec.clone();
    let private = format!("{bundle}/{PRIVATE}");
    spec.oci_version = VERSION.to_owned();
    let readonly = spec.root.as_ref().is_some_and(|root| root.readonly);
    spec.root = Some(Root { path: format!("{bundle}/rootfs"), readonly });
    let joined = joins.map(Role::Namespace);
    for role in attachments.iter().map(|(role, _)| role).chain(&joined) {
        match role {
            Role::Mount(index) => {
                if let Some(mount) = spec.mounts.get_mut(*index as usize) {
                    // The runtime makes the mount id-mapped if it has mappings: only pods with user namespaces have any.
                    mount.source = Some(format!("{private}/mount-{index}"));
                }
            }
            Role::Namespace(kind) => {
                let namespaces = spec.linux.iter_mut().flat_map(|linux| &mut linux.namespaces);
                for namespace in namespaces.filter(|namespace| namespace.kind == *kind) {
                    namespace.path = Some(format!("{private}/namespace-{}", kind.name()));
                }
            }
            _ => {}
        }
    }
    if let Some(base) = base {
        base_spec::add(&mut spec, base);
    }
    if let Some(linux) = &mut spec.linux {
        linux.seccomp = seccomp;
        let namespaces = linux.namespaces.iter_mut().filter(|namespace| namespace.kind == NamespaceType::Pid);
        if let Some(pid) = sandbox_process {
            // The shim knows the process of its sandbox by this path.
            namespaces.for_each(|namespace| namespace.path = Some(format!("/proc/{pid}/ns/pid")));
        }
        if let (false, Some(resources)) = (limits_huge_pages, &mut linux.resources) {
            resources.hugepage_limits.clear();
        }
        linux.rootfs_propagation = linux.rootfs_propagation.take().or_else(|| propagation(&spec.mounts));
    }
    spec.annotations.extend(annotations(user, sandbox, container));
    if let BundleUser::Shim { sandbox_container: Some(_), .. } = user {
        // The kernel of the sandbox does not see the name in the UTS namespace of the pod.
        spec.hostname = Some(hostname(sandbox.config()));
    }
    if let Some(process) = &mut spec.process {
        limit_to_own(process);
    }
    spec
}

/// Returns the propagation that the root needs for these mounts: without it, runtimes cut the mounts of the node off
/// before they attach the volumes.
fn propagation(mounts: &[oci::Mount]) -> Option<String> {
    let has = |wanted: [&str; 2]| {
        mounts.iter().flat_map(|mount| &mount.options).any(|option| wanted.contains(&option.as_str()))
    };
    let needed = match (has(["rshared", "shared"]), has(["rslave", "slave"])) {
        (true, _) => "rshared",
        (_, true) => "rslave",
        _ => return None,
    };
    Some(needed.to_owned())
}

/// Returns the annotations of all containers of the handler, those that the administrator allows, and those that
/// runtimes know of containerd.
fn annotations(user: BundleUser<'_>, sandbox: &Sandbox, container: &Container) -> BTreeMap<String, String> {
    let (allowed, default) = match user {
        BundleUser::Oci { allowed_annotations, default_annotations } => {
            (allowed_annotations, Some(default_annotations))
        }
        BundleUser::Shim { allowed_annotations, .. } => (allowed_annotations, None),
    };
    let (pod, config) = (sandbox.config(), container.config());
    let is_allowed = |name: &String| {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        allowed.iter().any(matches)
    };
    let requested = pod.annotations.iter().chain(&config.annotations).filter(|(name, _)| is_allowed(name));
    let requested = requested.map(|(name, value)| (name.clone(), value.clone()));
    let mut annotations = default.cloned().unwrap_or_default();
    annotations.extend(requested);
    let known = [
        ("container-type", "container"),
        ("sandbox-id", sandbox.id().as_str()),
        ("sandbox-name", &pod.name.name),
        ("sandbox-namespace", &pod.name.namespace),
        ("sandbox-uid", &pod.name.uid),
        ("container-name", &config.name),
        ("image-name", &config.user_specified_image),
    ];
    let known = known.map(|(name, value)| (format!("io.kubernetes.cri.{name}"), value.to_owned()));
    annotations.extend(known);
    if let BundleUser::Shim { sandbox_container, .. } = user {
        const TYPE: &str = "io.kubernetes.cri.container-type";
        match sandbox_container {
            // With it, shims of sandboxes expect that a container of type "sandbox" was created before.
            None => drop(annotations.remove(TYPE)),
            Some(sandbox) => {
                // Shims find the sandbox by the id of the container.
                annotations.insert("io.kubernetes.cri.sandbox-id".to_owned(), sandbox.to_string());
                if sandbox == container.id() {
                    annotations.insert(TYPE.to_owned(), "sandbox".to_owned());
                }
            }
        }
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_propagates_what_a_volume_needs() {
        let mount = |option: &str| oci::Mount { options: vec!["rbind".into(), option.into()], ..oci::Mount::default() };
        assert_eq!(propagation(&[mount("rprivate")]), None);
        assert_eq!(propagation(&[mount("rslave"), mount("rprivate")]).as_deref(), Some("rslave"));
        assert_eq!(propagation(&[mount("rslave"), mount("rshared")]).as_deref(), Some("rshared"));
    }
}
