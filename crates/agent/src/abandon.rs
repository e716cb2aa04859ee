//! Execs whose client is gone: they are killed and forgotten, as the monitor kills those of a daemon that died.

use agent_api::ProcessId;
use rustix::process::{Signal, pidfd_send_signal};

use crate::{agent::Agent, process::Lifeline};

impl Agent {
    /// Abandons what was requested on a connection that has ended: its execs, and its calls that wait for ports, which the next daemon
    /// undoes.
    pub(crate) fn abandon_requests_of(&mut self, connection: u64) {
        self.parked.retain(|call| call.caller.connection != connection);
        self.abandon(|lifeline| lifeline.connection == connection);
    }

    /// Abandons the execs of which a port was removed: the daemon does so when it has their exit, and when an earlier daemon
    /// left them.
    pub(crate) fn abandon_execs_without_ports(&mut self) {
        if self.processes.values().all(|process| process.lifeline.is_none()) {
            return;
        }
        let existing = crate::ports::names();
        self.abandon(|lifeline| !lifeline.ports.iter().all(|port| existing.contains(port)));
    }

    fn abandon(&mut self, is_abandoned: impl Fn(&Lifeline) -> bool) {
        for process in self.processes.values_mut() {
            if process.abandoned || !process.lifeline.as_ref().is_some_and(&is_abandoned) {
                continue;
            }
            process.abandoned = true;
            if process.is_alive() {
                if let Err(error) = process.group().kill() {
                    eprintln!("pinion-agent: kill {}: {error}", crate::failure::name(&process.id));
                }
                let _ = pidfd_send_signal(&process.setup.pidfd, Signal::KILL);
            }
        }
    }

    /// Forgets the abandoned execs that were reaped.
    pub(crate) fn forget_abandoned(&mut self) {
        let ended = self.processes.values().filter(|process| process.abandoned && !process.is_alive());
        let ids: Vec<ProcessId> = ended.map(|process| process.id.clone()).collect();
        ids.iter().for_each(|id| self.remove(id, None));
    }
}
