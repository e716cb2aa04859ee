use std::time::Duration;

use monitor_api::{Attachments, Role};

use super::Answer;
use crate::{
    clock,
    event::Timer,
    failure::{invalid, system},
    link::RequestId,
    monitor::{Monitor, PendingUpgrade},
};

/// Time limit for children to reach execve, and for the daemon to read its answers.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Executes the attached program in this process as soon as no operation is pending. Answered by the new program,
/// or by this one with the reason why it keeps running.
pub(super) fn upgrade(monitor: &mut Monitor, request_id: RequestId, attachments: &mut Attachments) -> Answer {
    let program = attachments
        .take(Role::Program)
        .ok_or_else(|| invalid("upgrade the monitor: no Program descriptor is attached"))?;
    // The sender may have read from the descriptor.
    rustix::fs::seek(&program, rustix::fs::SeekFrom::Start(0))
        .map_err(|error| system("upgrade the monitor: read the program", error))?;
    let program = container::self_exe::sealed_copy(program)
        .map_err(|error| system("upgrade the monitor: copy the program into memory", error))?;
    let until = clock::monotonic() + TIME_LIMIT;
    monitor.services.timers.at(until, Timer::Upgrade);
    monitor.upgrade = Some(PendingUpgrade { request_id, program, until });
    Ok(None)
}
