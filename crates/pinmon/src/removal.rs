//! The last of a container: its group and its record.

use std::time::Duration;

use crate::{child::Stage, failure, monitor::Monitor, timer::Timer};

/// How long killed processes may take until their group is empty.
const TRIES: u32 = 2000;
const APART: Duration = Duration::from_millis(5);

impl Monitor {
    /// Removes the group and the record of a container that ended, as soon as the group is empty, and answers the `Delete`s.
    pub(crate) fn try_remove(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        if !matches!(child.stage, Stage::Exited(_)) || child.deletes.is_empty() {
            return;
        }
        if let Some(group) = &child.group
            && !group.is_empty().unwrap_or(true)
        {
            if child.removals == 0 {
                let _ = group.kill();
            }
            child.removals += 1;
            if child.removals < TRIES {
                return self.timers.after(APART, Timer::Remove(serial));
            }
            child.removals = 0;
            let asked = std::mem::take(&mut child.deletes);
            let pids = group.pids().unwrap_or_default();
            let why =
                format!("processes {pids:?} of its cgroup do not end; see what they wait for in /proc/<pid>/stack");
            let failure = failure::state("delete", &child.id, &why);
            return asked.into_iter().for_each(|asked| self.reply(asked, Err(failure.clone())));
        }
        let Some(mut child) = self.containers.remove(&serial) else { return };
        self.commands.retain(|_, command| command.container != child.id);
        if let Some(group) = child.group.take() {
            self.remove_group(group);
        }
        if let Some(pidfd) = &child.pidfd {
            self.epoll.forget(pidfd);
        }
        child.output.close(&self.epoll);
        self.journals.forget(&child.id);
        let answers = child.deletes.into_iter().map(|asked| (asked, Ok(()))).collect();
        self.stop_with_hooks(child.hooks.as_deref(), answers);
    }
}
