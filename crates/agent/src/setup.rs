//! What a process reports while it is set up and started.

use agent_api::{Failure, ProcessId, Reply};
use container::Progress;
use rustix::{
    fd::OwnedFd,
    process::{Signal, pidfd_send_signal},
};

use crate::{
    agent::Agent,
    create::nonblocking,
    failure::{of_container, state, system, unknown},
    process::{Outcome, PendingStreams, Process, Stage},
    pump::{Direction, Pump},
};

impl Agent {
    /// Handles what a process has reported.
    pub(crate) fn advance(&mut self, id: &ProcessId) {
        let Some(process) = self.processes.get_mut(id) else { return };
        match process.setup.advance() {
            Ok(Progress::Pending) => {}
            // Hooks are not passed to guests.
            Ok(Progress::NamespacesCreated) => {
                if let Err(error) = process.setup.continue_setup() {
                    self.fail(id, of_container("create", id, &error));
                }
            }
            Ok(Progress::Ready { terminal }) => {
                if let Err(failure) = self.ready(id, terminal) {
                    self.fail(id, failure);
                }
            }
            Ok(Progress::Executed) => {
                process.stage = Stage::Running;
                self.answer_pending(id, Ok(Reply::Done));
            }
            Err(error) => {
                let operation = if process.stage == Stage::Starting { "start" } else { "create" };
                self.fail(id, of_container(operation, id, &error));
            }
        }
    }

    /// Begins the streams of a process that is set up. An exec continues by itself.
    fn ready(&mut self, id: &ProcessId, terminal: Option<OwnedFd>) -> Outcome<()> {
        let Some(process) = self.processes.get_mut(id) else { return Ok(()) };
        process.terminal = terminal.map(nonblocking).transpose()?;
        let pumps = pumps(process)?;
        for pump in pumps {
            self.pumps.insert(self.next_pump, pump);
            self.next_pump += 1;
        }
        if id.exec.is_some() {
            process.stage = Stage::Starting;
        } else {
            process.stage = Stage::Created;
            self.answer_pending(id, Ok(Reply::Done));
        }
        Ok(())
    }

    /// Starts the program of a container.
    pub(crate) fn start(&mut self, caller: crate::connection::Caller, container: &str) -> Outcome<Option<Reply>> {
        let id = ProcessId::container(container);
        let process = self.processes.get_mut(&id).ok_or_else(|| unknown("start", &id))?;
        match process.stage {
            Stage::Running => return Ok(Some(Reply::Done)),
            Stage::Created => {}
            Stage::SettingUp | Stage::Starting => return Err(state("start", &id, "another call changes it")),
            Stage::Failed | Stage::Exited(_) => return Err(state("start", &id, "it has exited")),
        }
        process.stage = Stage::Starting;
        process.pending = Some(caller);
        if let Err(error) = process.setup.start() {
            let failure = of_container("start", &id, &error);
            self.fail(&id, failure);
        }
        Ok(None)
    }

    /// Kills a process of which a step failed, and answers its caller. It is removed when it was reaped.
    pub(crate) fn fail(&mut self, id: &ProcessId, failure: Failure) {
        let Some(process) = self.processes.get_mut(id) else { return };
        let _ = pidfd_send_signal(&process.setup.pidfd, Signal::KILL);
        if process.is_alive() {
            process.stage = Stage::Failed;
        }
        self.answer_pending(id, Err(failure));
    }

    fn answer_pending(&mut self, id: &ProcessId, result: Result<Reply, Failure>) {
        if let Some(caller) = self.processes.get_mut(id).and_then(|process| process.pending.take()) {
            self.answer(caller, result);
        }
    }
}

/// Returns the streams of a process.
fn pumps(process: &mut Process) -> Outcome<Vec<Pump>> {
    let PendingStreams { stdin, stdout, stderr } = std::mem::take(&mut process.streams);
    let terminal = || match &process.terminal {
        Some(terminal) => terminal.try_clone().map_err(|error| system("duplicate the terminal", error)),
        None => Err(system("connect the terminal", "the process has no terminal")),
    };
    let mut pumps = Vec::new();
    let mut add = |direction, from, to| pumps.push(Pump::new(process.id.clone(), direction, from, to));
    if let Some((port, end)) = stdin {
        add(Direction::Input, port, end.map_or_else(terminal, Ok)?);
    }
    if let Some((port, end)) = stdout {
        add(Direction::Output, end.map_or_else(terminal, Ok)?, port);
    }
    if let Some((port, end)) = stderr {
        add(Direction::Output, end, port);
    }
    Ok(pumps)
}
