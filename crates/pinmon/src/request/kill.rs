use monitor_api::{Failure, FailureKind, Kill, KillScope, Reply, Target};
use rustix::{fd::BorrowedFd, io::Errno};

use super::Answer;
use crate::{
    failure::{invalid, no_container, system},
    monitor::Monitor,
};

const SIGNAL_MAX: i32 = 64;

/// Sends a signal to the first process of a container or exec, or to all processes of its cgroup.
pub(super) fn kill(monitor: &mut Monitor, kill: &Kill) -> Answer {
    if !(1..=SIGNAL_MAX).contains(&kill.signal) {
        return Err(invalid(format!("kill: invalid signal {}; must be 1 to {SIGNAL_MAX}", kill.signal)));
    }
    match &kill.target {
        Target::Container(id) => {
            let (serial, container) = monitor.containers.find(id).ok_or_else(|| no_container("kill", id))?;
            let operation = format!("kill container {id}");
            match (kill.scope, container.pidfd(), container.group()) {
                (KillScope::All, _, Some(group)) => signal_all(&operation, group, kill.signal)?,
                (_, Some(pidfd), _) if !container.has_ended() => signal_one(&operation, pidfd, kill.signal)?,
                _ => return Err(ended(&operation)),
            }
            if kill.signal == libc::SIGKILL {
                monitor.thaws.schedule(serial, &mut monitor.services.timers);
            }
        }
        Target::Exec(id) => {
            let operation = format!("kill exec {id}");
            let (serial, exec) = monitor.execs.find(id).ok_or_else(|| ended(&operation))?;
            match kill.scope {
                KillScope::All => signal_all(&operation, exec.group(), kill.signal)?,
                KillScope::Init => {
                    let setup = exec.setup().ok_or_else(|| ended(&operation))?;
                    signal_one(&operation, std::os::fd::AsFd::as_fd(&setup.pidfd), kill.signal)?;
                }
            }
            if kill.signal == libc::SIGKILL {
                monitor.thaws.schedule(serial, &mut monitor.services.timers);
            }
            monitor.sweep_exec(serial);
        }
    }
    Ok(Some(Reply::Done))
}

fn ended(operation: &str) -> Failure {
    Failure::during(FailureKind::NotFound, operation, "it has exited")
}

fn signal_one(operation: &str, pidfd: BorrowedFd<'_>, signal: i32) -> Result<(), Failure> {
    match syscall::pidfd_signal::pidfd_signal(pidfd, signal) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(ended(operation)),
        Err(errno) => Err(system(format!("{operation}: pidfd_send_signal {signal}"), errno)),
    }
}

fn signal_all(operation: &str, group: &cgroup::Group, signal: i32) -> Result<(), Failure> {
    let result = if signal == libc::SIGKILL { group.kill() } else { group.signal(signal) };
    result.map_err(|e| system(operation, e))
}
