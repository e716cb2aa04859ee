use monitor_api::{Attachments, Failure, FailureKind, MOUNTS_MAX, Reply, Role};
use rustix::fd::OwnedFd;

use super::Answer;
use crate::monitor::Monitor;

/// Maximum number of mounts of all containers that wait for their `Create`. The daemon sends those of a few containers
/// at a time.
const PENDING_MAX: usize = 4 * MOUNTS_MAX;
/// Maximum number of mounts closed in one iteration of the event loop.
const CLOSES_PER_TURN: usize = 64;

/// Mounts to be closed.
///
/// The last close of a mount that is not attached unmounts it. That takes about 50 µs, and longer under load, so
/// thousands of them must not be closed in one iteration.
#[derive(Debug, Default)]
pub(crate) struct UnusedMounts(Vec<OwnedFd>);

impl UnusedMounts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, mounts: impl IntoIterator<Item = OwnedFd>) {
        self.0.extend(mounts);
    }

    /// Closes the mounts of one iteration.
    pub(crate) fn close_some(&mut self) {
        self.0.truncate(self.0.len().saturating_sub(CLOSES_PER_TURN));
    }
}

impl Monitor {
    /// Keeps mounts for the `Create` of a container, until the connection closes.
    pub(super) fn mounts(&mut self, container: String, attachments: Attachments) -> Answer {
        self.check_new(&container)?;
        let Some(link) = &mut self.link else { return Ok(None) };
        let pending: usize = link.mounts.values().map(Attachments::len).sum();
        let of_container = link.mounts.get(&container).map_or(0, Attachments::len) + attachments.len();
        if of_container > MOUNTS_MAX || pending + attachments.len() > PENDING_MAX {
            self.unused_mounts.add(attachments.into_iter().map(|(_, mount)| mount));
            self.forget_mounts(&container);
            let message = format!(
                "keep mounts of container {container}: {of_container} of it and {pending} in total wait for a Create; at most \
                 {MOUNTS_MAX} and {PENDING_MAX} are allowed"
            );
            return Err(Failure::new(FailureKind::State, message));
        }
        let pending = link.mounts.entry(container).or_default();
        let mounts = attachments.into_iter().filter(|(role, _)| matches!(role, Role::Mount(_)));
        mounts.for_each(|(role, mount)| pending.push(role, mount));
        Ok(Some(Reply::Done))
    }

    /// Returns the mounts that were sent before the `Create` of this container, together with those attached to it.
    pub(super) fn with_mounts(&mut self, container: &str, attachments: Attachments) -> Attachments {
        let pending = self.link.as_mut().and_then(|link| link.mounts.remove(container));
        let Some(mut pending) = pending else { return attachments };
        // If the creation fails, these are the last copies.
        self.unused_mounts.add(pending.iter().filter_map(|(_, mount)| mount.try_clone().ok()));
        // The last descriptor of an index is used.
        attachments.into_iter().for_each(|(role, file)| pending.push(role, file));
        pending
    }

    /// Drops the mounts of a container that will not be created.
    pub(super) fn forget_mounts(&mut self, container: &str) {
        let pending = self.link.as_mut().and_then(|link| link.mounts.remove(container));
        self.unused_mounts.add(pending.into_iter().flatten().map(|(_, mount)| mount));
    }
}
