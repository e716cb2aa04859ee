//! `StartContainer`: one byte through the gate, answered when `execve` succeeded or failed.

use std::sync::Arc;

use monitor_api::ExitStatus;
use rustix::process::{Signal, pidfd_send_signal};
use tracing::{Instrument, debug_span};

use super::{Container, ContainerPhase, ContainerRecord, end};
use crate::{Error, clock, engine::Inner, failpoint, joined::Operation, lanes::patiently};

/// Reason of a container whose program could not be started: kubelet's word.
pub const START_ERROR: &str = "StartError";
/// Exit code that other engines give such a container.
const NOT_STARTED: i32 = 128;

/// Starts it; one that runs is started already. Who asks again joins.
pub(crate) async fn start(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = engine.container(id)?;
    let work = {
        let (engine, container) = (Arc::clone(engine), Arc::clone(&container));
        || async move { begin(&engine, &container).await }
    };
    engine.joined.join(Operation::StartContainer, container.id(), work).await
}

async fn begin(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    let doing = || format!("it is at {:?}", container.record().stage);
    let _alone = patiently(container.busy.lock(), doing).await?;
    let wrong = |why: &str| Err(Error::state(format!("start container {}: {why}", container.id())));
    match container.record().phase {
        ContainerPhase::Created => {}
        ContainerPhase::Creating => return wrong("it is still being made"),
        ContainerPhase::Starting | ContainerPhase::Running => return Ok(()),
        ContainerPhase::Exited => return wrong("it ended; make another one"),
    }
    if let Some(why) = container.record().refused.clone() {
        refuse(engine, container)?;
        return Err(Error::invalid(why));
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
        let early_end = record.early_end.take();
        match &started {
            Ok(()) => {
                record.phase = ContainerPhase::Running;
                record.enter("running");
                if let Some(status) = early_end {
                    end::finish(record, &status);
                }
            }
            Err(error) => fail(record, error.message.clone()),
        }
        true
    });
    if started.is_err() {
        // Whatever the monitor could not tell any more: it does not run.
        engine.monitor.custody().of_pidfd(container.id(), |pidfd| pidfd_send_signal(pidfd, Signal::KILL));
    }
    started
}

/// Ends a container whose command cannot be executed.
pub(super) fn refuse(engine: &Inner, container: &Container) -> Result<(), Error> {
    container.update(&engine.records, |record| match record.refused.take() {
        Some(why) => {
            fail(record, why);
            true
        }
        None => false,
    })
}

fn fail(record: &mut ContainerRecord, why: String) {
    let status = ExitStatus { code: Some(NOT_STARTED), signal: None, oom_killed: false, at: clock::now() };
    end::finish(record, &status);
    record.reason = START_ERROR.into();
    record.message = why;
}
