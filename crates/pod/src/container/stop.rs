//! `StopContainer`: the stop signal, the grace, then SIGKILL to every process.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use monitor_api::{KillScope, Target};
use rustix::process::Signal;

use super::{Container, ContainerPhase, start};
use crate::{Error, ErrorKind, engine::Inner, lanes::patiently, process};

/// How long the kernel may take to end what was killed, before it is told as a failure.
const KILLED: Duration = Duration::from_secs(30);
/// How often a program that does not listen yet is looked at.
const LISTEN: Duration = Duration::from_millis(20);

/// Stops it; one that ended or is unknown succeeds.
pub(crate) async fn stop(engine: &Arc<Inner>, id: &str, grace: Duration) -> Result<(), Error> {
    let container = match engine.container(id) {
        Ok(container) => container,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let told = |e: Error| e.during(format_args!("stop container {}", container.id()));
    // A stop with a shorter grace must not wait for one with a longer: only start and create are waited for.
    let doing = || format!("it is at {:?}", container.record().stage);
    drop(patiently(container.busy.lock(), doing).await.map_err(told)?);
    match container.record().phase {
        ContainerPhase::Exited | ContainerPhase::Creating => return Ok(()),
        ContainerPhase::Created => return kill(engine, &container).await.map_err(told),
        ContainerPhase::Starting | ContainerPhase::Running => {}
    }
    if !grace.is_zero() && ask(engine, &container, grace).await.map_err(told)? {
        return Ok(());
    }
    kill(engine, &container).await.map_err(told)
}

/// Sends the stop signal and waits; whether it ended.
async fn ask(engine: &Inner, container: &Container, grace: Duration) -> Result<bool, Error> {
    let signal = container.metadata.stop_signal;
    if container.asked.swap(true, Ordering::AcqRel) {
        // Programs take a second signal for impatience.
        return Ok(wait(container, grace).await);
    }
    let target = Target::Container(container.id().to_owned());
    let pid = container.record().pid;
    container.stopping(&format!("stop: signal {signal} sent, {} s to end", grace.as_secs()));
    // A process that is gone hears as well as any: the signal then does no harm.
    let hears = || offload::here(|| process::hears(pid, signal)).unwrap_or(true);
    let heard = hears();
    // A signal that could not be sent is sent by the next stop.
    let send = || async {
        let sent = engine.monitor.kill(&target, signal, KillScope::Init).await;
        sent.inspect_err(|_| container.asked.store(false, Ordering::Release))
    };
    send().await?;
    let ended = wait(container, grace);
    if heard {
        return Ok(ended.await);
    }
    // The first process of a PID namespace that only just started has no handler yet, and the kernel drops the signal:
    // it is sent again once there is one.
    let again = async {
        while !hears() {
            tokio::time::sleep(LISTEN).await;
        }
        send().await
    };
    tokio::pin!(ended);
    tokio::select! {
        ended = &mut ended => return Ok(ended),
        again = again => again?,
    }
    Ok(ended.await)
}

/// SIGKILL to every process, and waits for the end.
pub(crate) async fn kill(engine: &Inner, container: &Container) -> Result<(), Error> {
    if container.record().refused.is_some() {
        return start::refuse(engine, container);
    }
    let target = Target::Container(container.id().to_owned());
    container.stopping("stop: every process is killed");
    engine.monitor.kill(&target, Signal::KILL.as_raw(), KillScope::All).await?;
    if wait(container, KILLED).await {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::DeadlineExceeded,
        format!("it was killed {} s ago and did not end: a process may hang in the kernel", KILLED.as_secs()),
    ))
}

/// Whether it ended within this time.
async fn wait(container: &Container, time: Duration) -> bool {
    let mut watch = container.watch();
    let ended = watch.wait_for(|record| record.phase == ContainerPhase::Exited);
    tokio::time::timeout(time, ended).await.is_ok_and(|ended| ended.is_ok())
}
