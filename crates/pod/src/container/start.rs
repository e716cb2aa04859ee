//! `StartContainer`: the monitor releases the waiting init process, which executes the program. The answer arrives when
//! `execve` succeeded or failed.

use std::sync::Arc;

use monitor_api::{CommandError, ExitStatus};
use nri::Event;
use rustix::process::{Signal, pidfd_send_signal};
use tracing::{Instrument, debug_span};

use super::driver;
use crate::{
    Cause, Error, clock,
    operation::{failpoint, with_timeout},
    parts::{Change, Parts},
    plugins,
    store::{Container, ContainerPhase, ContainerRecord},
};

/// Exit code of a container whose program could not be started, as in containerd.
const NOT_STARTED: i32 = 128;

/// Starts a container, or waits for a start that is in progress. Starting a running container succeeds.
pub(crate) async fn start(parts: &Arc<Parts>, id: &str) -> Result<(), Error> {
    let container = parts.registry.container(id)?;
    let work = {
        let (parts, container) = (Arc::clone(parts), Arc::clone(&container));
        || async move { start_locked(&parts, &container).await }
    };
    parts.flights.change.run(Change::StartContainer(container.id().clone()), work).await
}

async fn start_locked(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
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
        fail_refused(parts, container)?;
        return Err(Error { command, ..Error::invalid(reason) });
    }
    plugins::start_container(parts, container).await?;
    parts.registry.update_container_anyway(container, |record| {
        record.phase = ContainerPhase::Starting;
        record.enter("starting");
        true
    });
    failpoint::reach("container.starting");
    let started = driver::start(parts, container).instrument(debug_span!("start_container")).await;
    failpoint::reach("container.started");
    parts.registry.update_container_anyway(container, |record| {
        record.started_at = clock::now();
        let early_exit = record.early_exit.take();
        match &started {
            Ok(()) => {
                record.mark_started();
                if let Some(status) = early_exit {
                    record.mark_exited(&status);
                }
            }
            Err(error) => fail(record, error.message.clone(), error.command),
        }
        true
    });
    if started.is_err() {
        // The monitor may have failed before it answered: make sure that nothing runs.
        parts.monitor.custody().with_pidfd(container.id().as_str(), |pidfd| pidfd_send_signal(pidfd, Signal::KILL));
        return started;
    }
    plugins::container_event(parts, Event::PostStartContainer, container).await;
    Ok(())
}

/// Marks a container as exited whose command cannot be executed.
pub(super) fn fail_refused(parts: &Parts, container: &Container) -> Result<(), Error> {
    parts.registry.update_container(container, |record| match record.refused.take() {
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
    record.mark_ended(&status, Cause::StartFailed { command });
    record.message = reason;
}
