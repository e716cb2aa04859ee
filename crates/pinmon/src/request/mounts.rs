use monitor_api::{Attachments, Failure, FailureKind, MOUNTS_MAX, Reply, Role};
use rustix::fd::OwnedFd;

use super::Answer;
use crate::monitor::Monitor;

/// Mounts of all containers that may wait for a `Create`: the daemon sends those of a few at a time.
const WAITING_MAX: usize = 4 * MOUNTS_MAX;
/// Mounts that are closed in one turn of the loop.
const CLOSED_AT_ONCE: usize = 64;

/// Mounts that are to be closed. The last close of a mount that is attached nowhere unmounts it: some 50 µs, and more
/// under load, which thousands of them must not cost in one turn of the loop.
#[derive(Debug, Default)]
pub(crate) struct UnusedMounts(Vec<OwnedFd>);

impl UnusedMounts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, mounts: impl IntoIterator<Item = OwnedFd>) {
        self.0.extend(mounts);
    }

    /// Closes as many as one turn of the loop may.
    pub(crate) fn close_some(&mut self) {
        self.0.truncate(self.0.len().saturating_sub(CLOSED_AT_ONCE));
    }
}

impl Monitor {
    /// Holds mounts of a container whose `Create` is to come, for as long as the connection lasts.
    pub(super) fn mounts(&mut self, container: String, attachments: Attachments) -> Answer {
        self.check_new(&container)?;
        let Some(link) = &mut self.link else { return Ok(None) };
        let waiting: usize = link.mounts.values().map(Attachments::len).sum();
        let of_container = link.mounts.get(&container).map_or(0, Attachments::len) + attachments.len();
        if of_container > MOUNTS_MAX || waiting + attachments.len() > WAITING_MAX {
            self.unused_mounts.add(attachments.into_iter().map(|(_, mount)| mount));
            self.forget_mounts(&container);
            let message = format!(
                "mounts of container {container}: {of_container} of it and {waiting} of all wait for a Create, at most {MOUNTS_MAX} \
                 and {WAITING_MAX} may"
            );
            return Err(Failure::new(FailureKind::State, message));
        }
        let waiting = link.mounts.entry(container).or_default();
        let mounts = attachments.into_iter().filter(|(role, _)| matches!(role, Role::Mount(_)));
        mounts.for_each(|(role, mount)| waiting.push(role, mount));
        Ok(Some(Reply::Done))
    }

    /// The mounts that came before the `Create` of this container, with what came with it.
    pub(super) fn with_mounts(&mut self, container: &str, attachments: Attachments) -> Attachments {
        let waiting = self.link.as_mut().and_then(|link| link.mounts.remove(container));
        let Some(mut all) = waiting else { return attachments };
        // Where the creation fails, these are the last copies.
        self.unused_mounts.add(all.iter().filter_map(|(_, mount)| mount.try_clone().ok()));
        // Of one index the later counts.
        attachments.into_iter().for_each(|(role, file)| all.push(role, file));
        all
    }

    /// No `Create` of this container comes.
    pub(super) fn forget_mounts(&mut self, container: &str) {
        let waiting = self.link.as_mut().and_then(|link| link.mounts.remove(container));
        self.unused_mounts.add(waiting.into_iter().flatten().map(|(_, mount)| mount));
    }
}
