//! Mounts of containers that are not created yet, and mounts to be closed.

use std::collections::BTreeMap;

use monitor_api::{Attachments, MOUNTS_MAX, Role};
use rustix::fd::OwnedFd;

/// Maximum number of mounts of all containers that wait for their `Create`. The daemon sends those of a few containers
/// at a time.
const PENDING_MAX: usize = 4 * MOUNTS_MAX;
/// Maximum number of mounts closed in one iteration of the event loop.
const CLOSES_PER_TURN: usize = 64;

/// Mounts that no container uses.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// Mounts that the current connection sent for containers that are not created yet, by container id.
    pending: BTreeMap<String, Attachments>,
    /// Mounts to be closed.
    ///
    /// The last close of a mount that is not attached unmounts it. That takes about 50 µs, and longer under load, so
    /// thousands of them must not be closed in one iteration.
    unused: Vec<OwnedFd>,
}

impl Mounts {
    /// Whether mounts wait for the creation of their container.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether mounts wait to be closed.
    pub(crate) fn has_unused(&self) -> bool {
        !self.unused.is_empty()
    }

    /// Closes the mounts of one iteration.
    pub(crate) fn close_some(&mut self) {
        self.unused.truncate(self.unused.len().saturating_sub(CLOSES_PER_TURN));
    }

    /// Keeps mounts for the `Create` of a container. Fails if there are too many; then those of the container are
    /// dropped.
    pub(crate) fn keep(&mut self, container: String, attachments: Attachments) -> Result<(), String> {
        let pending: usize = self.pending.values().map(Attachments::len).sum();
        let of_container = self.pending.get(&container).map_or(0, Attachments::len) + attachments.len();
        if of_container > MOUNTS_MAX || pending + attachments.len() > PENDING_MAX {
            self.unused.extend(attachments.into_iter().map(|(_, mount)| mount));
            self.forget(&container);
            return Err(format!(
                "keep mounts of container {container}: {of_container} of it and {pending} in total wait for a Create; \
                 at most {MOUNTS_MAX} and {PENDING_MAX} are allowed"
            ));
        }
        let pending = self.pending.entry(container).or_default();
        let mounts = attachments.into_iter().filter(|(role, _)| matches!(role, Role::Mount(_)));
        mounts.for_each(|(role, mount)| pending.push(role, mount));
        Ok(())
    }

    /// Returns the mounts that were sent before the `Create` of this container, together with those attached to it.
    pub(crate) fn take(&mut self, container: &str, attachments: Attachments) -> Attachments {
        let Some(mut pending) = self.pending.remove(container) else { return attachments };
        // If the creation fails, these are the last copies.
        self.unused.extend(pending.iter().filter_map(|(_, mount)| mount.try_clone().ok()));
        // The last descriptor of an index is used.
        attachments.into_iter().for_each(|(role, file)| pending.push(role, file));
        pending
    }

    /// Drops the mounts of a container that will not be created.
    pub(crate) fn forget(&mut self, container: &str) {
        let pending = self.pending.remove(container);
        self.unused.extend(pending.into_iter().flatten().map(|(_, mount)| mount));
    }

    /// Drops all mounts of a connection that was closed.
    pub(crate) fn forget_all(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.unused.extend(pending.into_values().flatten().map(|(_, mount)| mount));
    }
}
