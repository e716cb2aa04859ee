use std::time::Duration;

use monitor_api::{Attachments, Role};

use super::Answer;
use crate::{
    event::Timer,
    failure::{invalid, no_container},
    link::RequestId,
    monitor::Monitor,
};

/// Time after which the request is answered although the log hangs. The log continues in the new file as soon as
/// possible.
const ANSWER_AFTER: Duration = Duration::from_secs(2);

/// Continues the log in another file. The switch is between two batches, so every line is in exactly one of the files.
/// Answered after the switch.
pub(super) fn reopen_log(
    monitor: &mut Monitor,
    request_id: RequestId,
    id: &str,
    attachments: &mut Attachments,
) -> Answer {
    let file = attachments
        .take(Role::Log)
        .ok_or_else(|| invalid(format!("reopen log of container {id}: no Log descriptor is attached")))?;
    let (serial, container) = monitor.containers.require("reopen log of", id)?;
    let output = monitor.outputs.map.get_mut(serial).ok_or_else(|| no_container("reopen log of", id))?;
    let had_no_log = output.awaits_log;
    container.description.log.awaited = false;
    output.reopen(file, attachments.take(Role::LOG_DIRECTORY));
    output.reopens.push(request_id);
    if had_no_log {
        // No batch was written to another file.
        monitor.outputs.hand_over(serial, &mut monitor.services);
        monitor.outputs.reopened(serial, &mut monitor.services);
    } else if output.is_open() {
        monitor.services.timers.after(ANSWER_AFTER, Timer::Reopen(serial));
        monitor.outputs.hand_over(serial, &mut monitor.services);
    } else {
        monitor.outputs.reopened(serial, &mut monitor.services);
    }
    Ok(None)
}
