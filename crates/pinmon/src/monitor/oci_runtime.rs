//! Containers of OCI runtimes: what the end of a runtime's command means for its container.

use std::os::fd::AsFd;

use cgroup::{Group, GroupPath, Limits};
use monitor_api::{Attachments, ContainerDescription, Failure, Reply};
use rustix::{
    fd::OwnedFd,
    process::{PidfdFlags, pidfd_open},
};

use super::Monitor;
use crate::{
    closing::Terminal,
    containers::{Container, NESTING, Stage},
    failure::system,
    link::RequestId,
    oci_runtime::{
        CommandEnd, CommandFiles, CommandProgram, NewCommand, ProcessLimits, Purpose, Verb, read_pid, receive_terminal,
    },
    output::{Output, Stream, StreamFile},
    removal::AfterRemoval,
    stream::StreamKind,
};

impl Monitor {
    /// Creates a container with its OCI runtime. Answered when the runtime has exited.
    pub(crate) fn create_with_runtime(
        &mut self,
        request_id: RequestId,
        mut container: Container,
        output: Output,
        attachments: Attachments,
        terminal: bool,
    ) -> Result<(), Failure> {
        let serial = self.services.next_serial();
        let cgroup = container.description.cgroup.clone();
        container.stage = Stage::Creating;
        // An existing cgroup with processes is refused: they would be killed with the container.
        container.group = Some(self.make_group(&container.description)?);
        self.oom_kills.add(&self.node.trees, serial, &cgroup);
        self.containers.insert(serial, container);
        self.outputs.map.insert(serial, output);
        let started = self.run_runtime(serial, Verb::Create { terminal }, Some(request_id), attachments);
        started.inspect_err(|_| {
            let group = self.containers.remove(serial).and_then(|container| container.group);
            self.oom_kills.remove(&self.node.trees, serial, &cgroup);
            if let Some(mut output) = self.outputs.map.remove(serial) {
                output.close(false);
            }
            group.into_iter().for_each(|group| self.remove_group(group, AfterRemoval::Nothing));
        })
    }

    /// Creates the cgroup of a container, which its runtime joins and limits.
    pub(super) fn make_group(&self, description: &ContainerDescription) -> Result<Group, Failure> {
        let operation = format!("create container {}", description.id);
        let made = GroupPath::parse(&description.cgroup).and_then(|path| {
            let limits = Limits::from_spec(&oci::Resources::default())?.with_nesting(NESTING);
            Group::create(&self.node.trees, &path, &limits)
        });
        made.map_err(|e| system(operation, e))
    }

    /// Starts a created container with its OCI runtime. Answered when the runtime has exited.
    pub(crate) fn start_with_runtime(&mut self, serial: u64, request_id: RequestId) -> Result<(), Failure> {
        self.run_runtime(serial, Verb::Start, Some(request_id), Attachments::new())?;
        // Its program may run, and exit, before the runtime exits.
        if let Some(container) = self.containers.get_mut(serial) {
            container.stage = Stage::Running;
        }
        Ok(())
    }

    /// Has the OCI runtime of a container delete it. Returns whether it does: a runtime that cannot be executed must not
    /// keep the container from being removed.
    pub(super) fn delete_with_runtime(&mut self, serial: u64, force: bool) -> bool {
        let started = self.run_runtime(serial, Verb::Delete { force }, None, Attachments::new());
        if let Err(failure) = &started {
            eprintln!("pinmon: {failure}");
        }
        started.is_ok()
    }

    /// Returns the limits of a command of an OCI runtime.
    pub(crate) fn runtime_limits(&self) -> ProcessLimits {
        let inherited = &self.node.inherited_limits;
        ProcessLimits { open_files: inherited.open_files, oom_score_adj: inherited.oom_score_adj }
    }

    /// Runs a command of a request. The request is answered when the command has ended.
    pub(crate) fn run_requested_command(&mut self, command: NewCommand<'_>) -> Result<(), Failure> {
        let node = self.hooks.node_mounts.as_ref().map(AsFd::as_fd);
        self.runtime_commands.run(command, node, &mut self.services)
    }

    fn run_runtime(
        &mut self,
        serial: u64,
        verb: Verb,
        request_id: Option<RequestId>,
        attachments: Attachments,
    ) -> Result<(), Failure> {
        let limits = self.runtime_limits();
        let Some(container) = self.containers.get(serial) else { return Ok(()) };
        let description = &container.description;
        let Some(runtime) = &description.runtime else { return Ok(()) };
        let command = NewCommand {
            verb,
            container: &description.id,
            program: CommandProgram::Oci(runtime),
            purpose: Purpose::Container { serial, request_id },
            attachments,
            limits,
        };
        let node = self.hooks.node_mounts.as_ref().map(AsFd::as_fd);
        self.runtime_commands.run(command, node, &mut self.services)
    }

    /// Handles the deadline of a command.
    pub(crate) fn runtime_command_due(&mut self, serial: u64) {
        if let Some(end) = self.runtime_commands.due(serial, &mut self.services.timers) {
            self.runtime_command_ended(end);
        }
    }

    /// Handles the end of a command.
    pub(super) fn runtime_command_ended(&mut self, end: CommandEnd) {
        let CommandEnd { verb, purpose, files, result } = end;
        let output = result.as_ref().ok().filter(|_| verb == Verb::Plain).cloned();
        let result = result.map(drop);
        let (serial, request_id) = match purpose {
            Purpose::Container { serial, request_id } => (serial, request_id),
            Purpose::Request(request_id) => {
                return match result {
                    Ok(()) => match output {
                        Some(output) => {
                            let reply = (Reply::CommandOutput { output }, Attachments::new());
                            self.services.reply(request_id, Ok(reply));
                        }
                        None => self.services.reply_done(request_id),
                    },
                    Err(failure) => self.services.reply(request_id, Err(failure)),
                };
            }
        };
        match (verb, request_id) {
            (Verb::Create { .. }, Some(request_id)) => self.created_by_runtime(serial, request_id, files, result),
            (Verb::Start, Some(request_id)) => match result {
                Ok(()) => self.services.reply_done(request_id),
                Err(failure) => {
                    // It would wait forever if the daemon died in the meantime.
                    self.containers.get(serial).into_iter().for_each(Container::kill);
                    self.services.reply(request_id, Err(failure));
                }
            },
            (Verb::Delete { force }, _) => self.deleted_by_runtime(serial, force, result),
            (Verb::Create { .. } | Verb::Start | Verb::Plain, _) => {}
        }
    }

    fn created_by_runtime(
        &mut self,
        serial: u64,
        request_id: RequestId,
        mut files: CommandFiles,
        result: Result<(), Failure>,
    ) {
        // Taken in any case: the last close of a terminal may wait for processes of the container.
        let terminal = files.console_socket.take().map(|socket| self.receive_terminal(serial, socket));
        let is_deleted = self.containers.get(serial).is_some_and(|container| !container.deletes.is_empty());
        let answer = match result {
            Err(failure) => Err(failure),
            Ok(()) if is_deleted => Err(system("create container", "it was deleted in the meantime")),
            Ok(()) => self.take_created(serial, files, terminal),
        };
        let answer = answer.and_then(|()| {
            let terminal = self.outputs.map.get(serial).and_then(|output| output.terminal());
            let container = self.containers.get(serial);
            let container = container.ok_or_else(|| system("create container", "it is gone"))?;
            container.created_by_runtime(terminal)
        });
        match answer {
            Ok(answer) => {
                if let Some(container) = self.containers.get_mut(serial) {
                    container.stage = Stage::Waiting;
                }
                self.containers.watch(serial, &mut self.services);
                self.outputs.hand_over(serial, &mut self.services);
                self.services.reply(request_id, Ok(answer));
                // It may have been killed before its pid was known.
                self.check_exit(serial, 0);
            }
            Err(failure) => self.undo_creation(serial, request_id, failure),
        }
    }

    /// Records the process and the terminal of a container that its OCI runtime has created.
    fn take_created(
        &mut self,
        serial: u64,
        files: CommandFiles,
        terminal: Option<std::io::Result<Terminal>>,
    ) -> Result<(), Failure> {
        let Some(container) = self.containers.get(serial) else { return Ok(()) };
        let operation = format!("create container {}", container.description.id);
        let failed = |step: &str, cause: &dyn std::fmt::Display| system(format!("{operation}: {step}"), cause);
        let bundle = files.bundle.ok_or_else(|| failed("read its pid", &"no Bundle is attached"))?;
        let pid = read_pid(&bundle).map_err(|e| failed("read its pid", &e))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| failed("open its process", &e))?;
        // A process in the container's cgroup is none of the monitor, of another container or of a command.
        let is_inside = container.group.as_ref().map(|group| group.complete(pid)).transpose();
        if is_inside.map_err(|e| failed("find its cgroup", &e))? != Some(true) {
            return Err(failed(
                "read its pid",
                &format_args!(
                    "process {pid} is not in the cgroup of the container, which the runtime has to join (linux.cgroupsPath)"
                ),
            ));
        }
        if let Some(terminal) = terminal {
            let terminal = terminal.map_err(|e| failed("receive its terminal", &e))?;
            if let Some(output) = self.outputs.map.get_mut(serial) {
                output.streams.push(Stream { kind: StreamKind::Stdout, file: StreamFile::Terminal(terminal) });
            }
        }
        if let Some(container) = self.containers.get_mut(serial) {
            container.set_pid(pid.as_raw_pid());
            // Its parent may be an intermediate process of the runtime until that exits.
            (container.pidfd, container.adopted) = (Some(pidfd), true);
        }
        Ok(())
    }

    /// Receives the terminal of a container from its runtime.
    fn receive_terminal(&self, serial: u64, socket: OwnedFd) -> std::io::Result<Terminal> {
        let sandbox = self.containers.get(serial).map_or("", |container| container.description.sandbox.as_str());
        let close_queue = self.services.closers.queue.for_pod(sandbox);
        receive_terminal(socket, |master| Terminal::new(master, &close_queue))
    }

    /// Deletes what a failed `create` left behind.
    fn undo_creation(&mut self, serial: u64, request_id: RequestId, failure: Failure) {
        let Some(container) = self.containers.get_mut(serial) else { return };
        container.kill();
        container.stage = Stage::Undoing(request_id, failure);
        if !self.delete_with_runtime(serial, true) {
            self.creation_undone(serial);
        }
    }

    fn deleted_by_runtime(&mut self, serial: u64, force: bool, result: Result<(), Failure>) {
        if let Err(failure) = result {
            // Its cgroup is removed in any case, and its state in the runtime by the daemon.
            eprintln!("pinmon: {failure}");
            if !force && self.delete_with_runtime(serial, true) {
                return;
            }
        }
        let Some(container) = self.containers.get_mut(serial) else { return };
        if matches!(container.stage, Stage::Undoing(..)) {
            return self.creation_undone(serial);
        }
        (container.runtime_deleted, container.removing) = (true, false);
        self.try_remove(serial);
    }

    /// Removes a container whose creation failed, and answers its requests.
    fn creation_undone(&mut self, serial: u64) {
        let Some(mut container) = self.containers.remove(serial) else { return };
        self.oom_kills.remove(&self.node.trees, serial, &container.description.cgroup);
        if let Some(mut output) = self.outputs.map.remove(serial) {
            output.close(false);
        }
        let mut answers: Vec<_> = container.deletes.iter().map(|request_id| (*request_id, Ok(()))).collect();
        if let Stage::Undoing(request_id, failure) = container.change() {
            answers.push((request_id, Err(failure)));
        }
        match container.group.take() {
            Some(group) => {
                let _ = group.kill();
                self.remove_group(group, AfterRemoval::Answer(None, answers));
            }
            None => self.stop_with_hooks(None, answers),
        }
    }
}
