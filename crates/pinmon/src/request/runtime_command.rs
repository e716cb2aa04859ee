use monitor_api::{Attachments, RuntimeCommand};

use super::Answer;
use crate::{
    failure::invalid,
    link::RequestId,
    monitor::Monitor,
    oci_runtime::{CommandProgram, NewCommand, Purpose, Verb},
};

/// Runs a command of a runtime. Answered when it has exited.
pub(super) fn runtime_command(
    monitor: &mut Monitor,
    request_id: RequestId,
    command: &RuntimeCommand,
    attachments: Attachments,
) -> Answer {
    let is_absolute = |path: Option<&str>| path.is_some_and(|path| path.starts_with('/'));
    if !is_absolute(command.arguments.first().map(String::as_str)) || !is_absolute(Some(&command.directory)) {
        return Err(invalid(format!("{}: program and working directory must be absolute paths", command.operation)));
    }
    let command = NewCommand {
        verb: Verb::Plain,
        container: "",
        program: CommandProgram::Plain(command),
        purpose: Purpose::Request(request_id),
        attachments,
        limits: monitor.runtime_limits(),
    };
    monitor.run_requested_command(command).map(|()| None)
}
