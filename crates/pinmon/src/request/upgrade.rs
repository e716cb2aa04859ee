use monitor_api::{Attachments, Role};

use super::Answer;
use crate::{
    clock,
    connection::RequestId,
    failure::{invalid, system},
    monitor::Monitor,
    timer::Timer,
    upgrade::{Pending, TIME_LIMIT},
};

impl Monitor {
    /// Executes the attached program in this process as soon as no operation is pending. Answered by the new program,
    /// or by this one with the reason why it keeps running.
    pub(super) fn upgrade(&mut self, request_id: RequestId, attachments: &mut Attachments) -> Answer {
        let program = attachments
            .take(Role::Program)
            .ok_or_else(|| invalid("upgrade the monitor: no Program descriptor is attached"))?;
        // The sender may have read from the descriptor.
        rustix::fs::seek(&program, rustix::fs::SeekFrom::Start(0))
            .map_err(|error| system("upgrade the monitor: read the program", error))?;
        let program = container::self_exe::sealed_copy(program)
            .map_err(|error| system("upgrade the monitor: copy the program into memory", error))?;
        let until = clock::monotonic() + TIME_LIMIT;
        self.timers.at(until, Timer::Upgrade);
        self.upgrade = Some(Pending { request_id, program, until });
        Ok(None)
    }
}
