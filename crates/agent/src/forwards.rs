//! The calls that forward connections, and the progress of these.

use agent_api::Reply;
use rustix::fd::OwnedFd;

use crate::{agent::Agent, connection::Caller, failure::system, forward::Forward, process::Outcome};

impl Agent {
    /// Connects a port to a TCP port. The caller is answered when it is connected.
    pub(crate) fn forward(&mut self, caller: Caller, tcp_port: u16, port: OwnedFd) -> Outcome<()> {
        self.forwards.insert(self.next_forward, Forward::connect(caller, tcp_port, port)?);
        self.next_forward += 1;
        self.run_forward(self.next_forward - 1, false);
        Ok(())
    }

    /// Moves what can be moved. `hung_up`: the other end of the port is closed.
    pub(crate) fn run_forward(&mut self, number: u64, hung_up: bool) {
        let Some(forward) = self.forwards.get_mut(&number) else { return };
        let connecting = forward.caller();
        let outcome = if hung_up { Err(system("forward a connection", "its port was removed")) } else { forward.run() };
        let is_connected = !forward.is_connecting();
        if outcome.is_err() {
            self.forwards.remove(&number);
        }
        match (connecting, outcome) {
            (Some(caller), Err(failure)) => self.answer(caller, Err(failure)),
            (Some(caller), Ok(())) if is_connected => self.answer(caller, Ok(Reply::Done)),
            _ => {}
        }
    }

    /// Continues the connections that are being made, whose time may be over.
    pub(crate) fn connect_forwards(&mut self) {
        let connecting = self.forwards.iter().filter(|(_, forward)| forward.is_connecting());
        let numbers: Vec<u64> = connecting.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.run_forward(number, false));
    }
}
