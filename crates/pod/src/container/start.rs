//! `StartContainer`: the monitor releases the waiting init process, which executes the program. The answer arrives when
//! `execve` succeeded or failed.

use std::sync::Arc;

use monitor_api::{CommandError, ExitStatus};
use rustix::process::{Signal, pidfd_send_signal};
use tracing::{Instrument, debug_span};

use super::{Cause, Container, ContainerPhase, ContainerRecord, exit};
use crate::{Error, clock, concurrency::with_timeout, engine::Inner, failpoint, single_flight::Operation};

/// Exit code of a container whose program could not be started, as in containerd.
const NOT_STARTED: i32 = 128;

/// Starts a container, or waits for a start that is in progress. Starting a running container succeeds.
pub(crate) async fn start(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = engine.container(id)?;
    let work = {
        let (engine, container) = (Arc::clone(engine), Arc::clone(&container));
        || async move { start_locked(&engine, &container).await }
    };
    engine.single_flight.run(Operation::StartContainer, container.id(), work).await
}

async fn start_locked(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    let stage = || format!("its stage is {:?}", container.record().stage);
    let _busy = with_timeout(container.busy.lock(), stage).await?;
    let refuse = |reason: &str| Err(Error::state(format!("start container {}: {reason}", container.id())));
    match container.record().phase {
        ContainerPhase::Created => {}
        ContainerPhase::Creating => return refuse("it is still being created"),
        ContainerPhase::Starting | ContainerPhase::Running => return Ok(()),
        ContainerPhase::Exited => return refuse("it exited; create a new container"),
    }
    if let Some(reason) = container.record().refused.clone() {
        let command = container.record().refused_command;
        fail_refused(engine, container)?;
        return Err(Error { command, ..Error::invalid(reason) });
    }
    container.update_anyway(&engine.records, |record| {
        record.phase = ContainerPhase::Starting;
        record.enter("starting");
        true
    });
    failpoint::reach("container.starting");
    let started = engine.monitor.start(container.id()).instrument(debug_span!("start_container")).await;
    failpoint::reach("container.started");
    container.update_anyway(&engine.records, |record| {
        record.started_at = clock::now();
        let early_exit = record.early_exit.take();
        match &started {
            Ok(()) => {
                record.phase = ContainerPhase::Running;
                record.enter("running");
                if let Some(status) = early_exit {
                    exit::mark_exited(record, &status);
                }
            }
            Err(error) => fail(record, error.message.clone(), error.command),
        }
        true
    });
    if started.is_err() {
        // The monitor may have failed before it answered: make sure that nothing runs.
        engine.monitor.custody().with_pidfd(container.id(), |pidfd| pidfd_send_signal(pidfd, Signal::KILL));
    }
    started
}

/// Marks a container as exited whose command cannot be executed.
pub(super) fn fail_refused(engine: &Inner, container: &Container) -> Result<(), Error> {
    container.update(&engine.records, |record| match record.refused.take() {
        Some(reason) => {
            let command = record.refused_command.take();
            fail(record, reason, command);
            true
        }
        None => false,
    })
}

fn fail(record: &mut ContainerRecord, reason: String, command: Option<CommandError>) {
    let status = ExitStatus { code: Some(NOT_STARTED), signal: None, oom_killed: false, at: clock::now() };
    exit::mark_ended(record, &status, Cause::StartFailed { command });
    record.message = reason;
}
