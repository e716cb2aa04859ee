use monitor_api::{Attachments, Failure, FailureKind, MOUNTS_MAX, Reply, Role};

use super::Answer;
use crate::monitor::Monitor;

impl Monitor {
    /// Holds mounts of a container whose `Create` is to come, for as long as the connection lasts.
    pub(super) fn mounts(&mut self, container: String, attachments: Attachments) -> Answer {
        self.check_new(&container)?;
        let Some(link) = &mut self.link else { return Ok(None) };
        // Of all containers: the daemon sends those of a few at a time.
        let waiting: usize = link.mounts.values().map(Attachments::len).sum();
        if waiting + attachments.len() > 4 * MOUNTS_MAX {
            link.mounts.remove(&container);
            let message = format!("mounts of container {container}: {waiting} mounts wait for a Create already");
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
        // Of one index the later counts.
        attachments.into_iter().for_each(|(role, file)| all.push(role, file));
        all
    }
}
