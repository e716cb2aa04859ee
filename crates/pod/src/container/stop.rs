//! `StopContainer`: sends the stop signal, waits for the grace period, then sends SIGKILL to every process.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use monitor_api::KillScope;
use rustix::process::Signal;

use super::{driver, shim, start, vm};
use crate::{
    ContainerId, Error, ErrorKind, Selects,
    operation::with_timeout,
    parts::Parts,
    process,
    store::{Container, ContainerPhase, Sent},
};

/// How long the kernel may take to terminate killed processes before that is reported as a failure.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a shim may take to report the exit of a killed container, if its own time limit is not shorter.
const SHIM_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a program that has no handler for the stop signal yet is checked again.
const HANDLER_POLL: Duration = Duration::from_millis(20);

/// Stops a container. Succeeds for one that exited or does not exist.
pub(crate) async fn stop(
    parts: &Arc<Parts>,
    id: &(impl Selects<ContainerId> + ?Sized),
    grace: Duration,
) -> Result<(), Error> {
    let container = match parts.registry.container(id) {
        Ok(container) => container,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let with_context = |e: Error| e.during(format_args!("stop container {}", container.id()));
    // Waits for create and start only: a stop with a short grace period must not wait for one with a longer period.
    let stage = || format!("its stage is {:?}", container.record().stage);
    drop(with_timeout(container.busy.lock(), stage).await.map_err(with_context)?);
    match container.record().phase {
        ContainerPhase::Exited | ContainerPhase::Creating => return Ok(()),
        ContainerPhase::Created => return kill(parts, &container).await.map_err(with_context),
        ContainerPhase::Starting | ContainerPhase::Running => {}
    }
    if !grace.is_zero() {
        match stop_gracefully(parts, &container, grace).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // Its processes are killed without the shim, or end with the virtual machine.
            Err(error) if driver::Driver::of(&container) != driver::Driver::Monitor => {
                tracing::warn!(container = container.id().as_str(), "{error}");
            }
            Err(error) => return Err(with_context(error)),
        }
    }
    kill(parts, &container).await.map_err(with_context)
}

/// Sends the stop signal and waits for the grace period. Returns whether the container exited.
async fn stop_gracefully(parts: &Arc<Parts>, container: &Arc<Container>, grace: Duration) -> Result<bool, Error> {
    let signal = container.metadata.stop_signal;
    if container.stop_signal_sent.swap(true, Ordering::AcqRel) {
        // Many programs take a second signal as a request to exit at once.
        return Ok(wait(container, grace).await);
    }
    let pid = container.record().pid;
    container.stopping(&format!("stop: signal {signal} sent, {} s to end", grace.as_secs()), Sent::Stop(signal));
    // For a process that is gone the signal is harmless, hence true.
    let is_handled = || offload::in_place(|| process::is_signal_effective(pid, signal)).unwrap_or(true);
    let was_handled = is_handled();
    // If sending fails, the next stop request sends the signal.
    let send = || async {
        let sent = driver::signal(parts, container, signal, KillScope::Init).await;
        sent.inspect_err(|_| container.stop_signal_sent.store(false, Ordering::Release))
    };
    send().await?;
    let exited = wait(container, grace);
    if was_handled {
        return Ok(exited.await);
    }
    // The init process of a PID namespace that has just started has no handler yet, and the kernel drops the signal. It
    // is sent again once there is a handler.
    let resend = async {
        while !is_handled() {
            tokio::time::sleep(HANDLER_POLL).await;
        }
        send().await
    };
    tokio::pin!(exited);
    tokio::select! {
        exited = &mut exited => return Ok(exited),
        resent = resend => resent?,
    }
    Ok(exited.await)
}

/// Sends SIGKILL to every process and waits until the container exited.
pub(crate) async fn kill(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    if container.record().refused.is_some() {
        return start::fail_refused(parts, container);
    }
    container.stopping("stop: every process is killed", Sent::Kill);
    driver::signal(parts, container, Signal::KILL.as_raw(), KillScope::All).await?;
    let shim_timeout = container.metadata.shim.as_ref().map(|shim| Duration::from_secs(shim.timeout.into()));
    if let Some(timeout) = shim_timeout
        && !wait(container, timeout.min(SHIM_TIMEOUT)).await
    {
        shim::give_up(parts, container, "it has not ended a killed container").await;
    }
    if container.metadata.vm.is_some() && !wait(container, SHIM_TIMEOUT).await {
        vm::give_up(parts, container, "the guest has not ended a killed container").await;
    }
    if wait(container, KILL_TIMEOUT).await {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::DeadlineExceeded,
        format!(
            "still running {} s after SIGKILL: a process may hang in the kernel; try again",
            KILL_TIMEOUT.as_secs()
        ),
    ))
}

/// Waits until the container exited, for at most `time`. Returns whether it did.
async fn wait(container: &Container, time: Duration) -> bool {
    let mut watch = container.watch();
    let exited = watch.wait_for(|record| record.phase == ContainerPhase::Exited);
    tokio::time::timeout(time, exited).await.is_ok_and(|exited| exited.is_ok())
}
