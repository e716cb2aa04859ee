//! The event loop.

use std::{io, time::Duration};

use crate::{
    agent::Agent,
    connection::Connection,
    during,
    forward::Forward,
    poll::{Event, wait},
};

/// How soon something that is not ready is tried again, of which no descriptor reports that it is.
const RETRY: Duration = Duration::from_millis(10);

impl Agent {
    /// Serves until a call ends it.
    ///
    /// # Errors
    /// poll(2) failed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.should_end {
            self.connect();
            self.unpark();
            self.forget_abandoned();
            self.remove_groups();
            self.answer_waiting();
            self.connect_forwards();
            let must_retry = !self.parked.is_empty()
                || !self.removals.is_empty()
                || self.ports.is_opening()
                || self.forwards.values().any(Forward::is_connecting);
            let events = wait(&self, must_retry.then_some(RETRY)).map_err(during("wait for events"))?;
            for event in events {
                self.react(event);
            }
            self.pumps.retain(|_, pump| !pump.is_done());
        }
        Ok(())
    }

    fn react(&mut self, event: Event) {
        match event {
            Event::Signals => {
                while let Ok(Some(_)) = self.signals.read() {}
                self.reap();
            }
            Event::Ports => {
                self.ports.read_changes();
                self.abandon_execs_without_ports();
            }
            Event::Connection(number) => self.serve(number),
            Event::Process(id) => self.advance(&id),
            Event::Pump(number, hung_up) => {
                if let Some(pump) = self.pumps.get_mut(&number) {
                    pump.run(hung_up);
                }
            }
            Event::Forward(number, hung_up) => self.run_forward(number, hung_up),
        }
    }

    /// Begins the connections for which the daemon has made ports.
    fn connect(&mut self) {
        for port in self.ports.new_connections() {
            match Connection::new(port) {
                Ok(connection) => {
                    self.connections.insert(self.next_connection, connection);
                    self.next_connection += 1;
                }
                Err(error) => eprintln!("pinion-agent: begin a connection: {error}"),
            }
        }
    }

    /// Reads and writes what a connection is ready for.
    fn serve(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let calls = connection.write().and_then(|()| connection.read());
        match calls {
            Ok(calls) => calls.into_iter().for_each(|call| self.handle(number, call)),
            Err(error) => self.disconnect(number, &error),
        }
    }
}
