//! Waits for the next events.

use std::{io, time::Duration};

use agent_api::ProcessId;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
    io::Errno,
};

use crate::agent::Agent;

/// What is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Children may have exited.
    Signals,
    /// Ports may have appeared.
    Ports,
    /// A connection, by its number.
    Connection(u64),
    /// A process has reported something.
    Process(ProcessId),
    /// A stream, by its number, and whether its other end is closed.
    Pump(u64, bool),
    /// A forwarded connection, by its number, and whether the other end of its port is closed.
    Forward(u64, bool),
}

/// Waits until something is ready, or for this time.
pub(crate) fn wait(agent: &Agent, timeout: Option<Duration>) -> io::Result<Vec<Event>> {
    let mut fds = vec![
        PollFd::from_borrowed_fd(agent.signals.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(agent.ports.changes(), PollFlags::IN),
    ];
    let mut sources = vec![Event::Signals, Event::Ports];
    for (number, connection) in &agent.connections {
        let output = if connection.has_output() { PollFlags::OUT } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(connection.port(), PollFlags::IN | output));
        sources.push(Event::Connection(*number));
    }
    for process in agent.processes.values().filter(|process| process.reports()) {
        fds.push(PollFd::from_borrowed_fd(process.setup.sync(), PollFlags::IN));
        sources.push(Event::Process(process.id.clone()));
    }
    for (number, pump) in &agent.pumps {
        fds.push(pump.poll_fd());
        sources.push(Event::Pump(*number, false));
    }
    for (number, forward) in &agent.forwards {
        fds.push(forward.poll_port());
        sources.push(Event::Forward(*number, true));
        if let Some(socket) = forward.poll_socket() {
            fds.push(socket);
            sources.push(Event::Forward(*number, false));
        }
    }
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let ready = fds.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
    let events = ready.map(|(fd, source)| match source {
        Event::Pump(number, _) => Event::Pump(number, fd.revents().contains(PollFlags::HUP)),
        Event::Forward(number, is_port) => Event::Forward(number, is_port && fd.revents().contains(PollFlags::HUP)),
        source => source,
    });
    Ok(events.collect())
}
