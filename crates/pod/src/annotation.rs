//! Annotations by which `pinion run` requests what the CRI has no field for. They are part of the records: what they
//! request holds over a restart of the daemon.

use std::collections::BTreeMap;

/// On a pod: its host ports are refused where a process of the node listens on them.
pub const FREE_PORTS: &str = "io.pinion.free-ports";
/// On a container: when the pull of its image began, nanoseconds since the epoch. It was pulled for this container,
/// although before its pod was made.
pub const PULLED_SINCE: &str = "io.pinion.pulled-since";
/// On a container: its pod, which was made for it alone, is stopped when it ended, and gives back its address and
/// ports.
pub const RELEASE_ENDED: &str = "io.pinion.release-ended";
/// On a container: it is removed when it ended. On a pod: it is removed with its last container.
pub const REMOVE_ENDED: &str = "io.pinion.remove-ended";

/// Whether an annotation says `true`.
#[must_use]
pub fn is_set(annotations: &BTreeMap<String, String>, name: &str) -> bool {
    annotations.get(name).is_some_and(|value| value == "true")
}
