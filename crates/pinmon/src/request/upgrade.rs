use monitor_api::{Attachments, Role};

use super::Answer;
use crate::{
    clock,
    connection::Asked,
    failure::{invalid, system},
    monitor::Monitor,
    timer::Timer,
    upgrade::{PATIENCE, Pending},
};

impl Monitor {
    /// Executes the attached program in this process as soon as nothing is on its way; answered by it, or by this one
    /// with the reason why it goes on.
    pub(super) fn upgrade(&mut self, asked: Asked, attachments: &mut Attachments) -> Answer {
        let program = attachments
            .take(Role::Program)
            .ok_or_else(|| invalid("upgrade the monitor: no Program descriptor is attached"))?;
        // Whoever opened it may have read from it.
        rustix::fs::seek(&program, rustix::fs::SeekFrom::Start(0))
            .map_err(|error| system("upgrade the monitor: read the program", error))?;
        let program = container::own_program::sealed_copy(program)
            .map_err(|error| system("upgrade the monitor: copy the program into memory", error))?;
        let until = clock::monotonic() + PATIENCE;
        self.timers.at(until, Timer::Upgrade);
        self.upgrade = Some(Pending { asked, program, until });
        Ok(None)
    }
}
