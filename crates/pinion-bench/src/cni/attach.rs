//! What the ways to attach pods have in common.

use std::path::Path;

use netns::Namespace;

use crate::engine::Failure;

/// A pod that can be attached.
pub(super) struct Pod<'a> {
    pub(super) id: String,
    pub(super) namespace: &'a Namespace,
    pub(super) path: &'a Path,
    /// Port of the node that is mapped to port 80 of the pod.
    pub(super) port: Option<u16>,
}

/// A way to attach pods.
pub(super) trait Attach {
    fn attach(&mut self, pod: &Pod<'_>) -> Result<(), Failure>;
    fn detach(&mut self, pod: &Pod<'_>) -> Result<(), Failure>;
    /// Waits until nothing is left of detached pods.
    fn settle(&mut self) -> Result<(), Failure>;
}
