//! Annotations with which `pinion run` requests behaviour that the CRI has no field for. They are stored in the
//! records, so they stay in effect after the daemon restarts.

use std::collections::BTreeMap;

/// On a pod: the sandbox is refused if a process of the node already listens on one of its host ports.
pub const FREE_PORTS: &str = "io.pinion.free-ports";
/// On a container: the time at which the pull of its image began, in nanoseconds since the epoch. The image was pulled
/// for this container, although the pull began before the pod was created.
pub const PULLED_SINCE: &str = "io.pinion.pulled-since";
/// On a container: when it has exited, its pod, which was created only for it, is stopped and releases its address and
/// ports.
pub const RELEASE_ENDED: &str = "io.pinion.release-ended";
/// On a container: it is removed when it has exited. On a pod: it is removed together with its last container.
pub const REMOVE_ENDED: &str = "io.pinion.remove-ended";

/// On a pod: further networks that it is attached to, of the Network Plumbing Working Group's standard.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Key under which the status of all networks of a pod is shown, of the same standard.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// On a pod: what it requests of its primary network, for example an address.
pub const NETWORK: &str = "io.pinion.network";

/// Reports whether the annotation `name` is set to `true`.
#[must_use]
pub fn is_set(annotations: &BTreeMap<String, String>, name: &str) -> bool {
    annotations.get(name).is_some_and(|value| value == "true")
}
