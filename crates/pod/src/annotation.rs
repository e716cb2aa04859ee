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

/// Reports whether the annotation `name` is set to `true`.
#[must_use]
pub fn is_set(annotations: &BTreeMap<String, String>, name: &str) -> bool {
    annotations.get(name).is_some_and(|value| value == "true")
}
