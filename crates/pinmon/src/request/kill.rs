use monitor_api::{Failure, FailureKind, Kill, KillScope, Reply, Target};
use rustix::{fd::BorrowedFd, io::Errno};

use super::Answer;
use crate::{
    failure::{invalid, no_container, system},
    monitor::Monitor,
};

const SIGNAL_MAX: i32 = 64;

impl Monitor {
    /// Sends a signal to a container's or command's first process, or to all of its group.
    pub(super) fn kill(&mut self, kill: &Kill) -> Answer {
        if !(1..=SIGNAL_MAX).contains(&kill.signal) {
            return Err(invalid(format!("kill: signal {} is none of 1 to {SIGNAL_MAX}", kill.signal)));
        }
        match &kill.target {
            Target::Container(id) => {
                let serial = self.find(id).ok_or_else(|| no_container("kill", id))?;
                let child = self.containers.get(&serial).ok_or_else(|| no_container("kill", id))?;
                let what = format!("kill container {id}");
                match (kill.scope, child.pidfd(), child.group()) {
                    (KillScope::All, _, Some(group)) => signal_all(&what, group, kill.signal)?,
                    (_, Some(pidfd), _) if !child.has_ended() => signal_one(&what, pidfd, kill.signal)?,
                    _ => return Err(ended(&what)),
                }
                if kill.signal == libc::SIGKILL {
                    self.thaw_later(serial);
                }
            }
            Target::Exec(id) => {
                let what = format!("kill command {id}");
                let serial = self.find_command(id).ok_or_else(|| ended(&what))?;
                let command = &self.commands[&serial];
                match kill.scope {
                    KillScope::All => signal_all(&what, command.group(), kill.signal)?,
                    KillScope::Init => {
                        let nascent = command.nascent().ok_or_else(|| ended(&what))?;
                        signal_one(&what, std::os::fd::AsFd::as_fd(&nascent.pidfd), kill.signal)?;
                    }
                }
                if kill.signal == libc::SIGKILL {
                    self.thaw_later(serial);
                }
                self.sweep_command(serial);
            }
        }
        Ok(Some(Reply::Done))
    }
}

fn ended(what: &str) -> Failure {
    Failure::new(FailureKind::NotFound, format!("{what}: it has ended"))
}

fn signal_one(what: &str, pidfd: BorrowedFd<'_>, signal: i32) -> Result<(), Failure> {
    match syscall::pidfd_signal::pidfd_signal(pidfd, signal) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(ended(what)),
        Err(errno) => Err(system(format!("{what}: pidfd_send_signal {signal}"), errno)),
    }
}

fn signal_all(what: &str, group: &cgroup::Group, signal: i32) -> Result<(), Failure> {
    let result = if signal == libc::SIGKILL { group.kill() } else { group.signal(signal) };
    result.map_err(|e| system(what, e))
}
