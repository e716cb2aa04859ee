//! The state of the agent.

use std::{collections::BTreeMap, io, time::Duration};

use agent_api::{Failure, ProcessId, Reply, Request};
use cgroup::{Hierarchies, Removal};
use rustix::process::Signal;
use syscall::signal_fd::SignalFd;

use crate::{
    capacity,
    connection::{Caller, Connection},
    during,
    forward::Forward,
    ports::Ports,
    process::Process,
    pump::Pump,
};

/// A cgroup that is being removed, and the call that is answered then.
pub(crate) struct GroupRemoval {
    pub(crate) removal: Removal,
    pub(crate) caller: Option<Caller>,
    pub(crate) until: Duration,
}

/// A call that waits for its ports.
pub(crate) struct ParkedCall {
    pub(crate) caller: Caller,
    pub(crate) request: Request,
    pub(crate) until: Duration,
}

/// The agent.
pub(crate) struct Agent {
    pub(crate) trees: Hierarchies,
    /// Memory of the guest before any was added, in bytes.
    pub(crate) boot_memory: u64,
    pub(crate) ports: Ports,
    pub(crate) signals: SignalFd,
    /// By number, in the order in which they began.
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) next_connection: u64,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    /// By number.
    pub(crate) pumps: BTreeMap<u64, Pump>,
    pub(crate) next_pump: u64,
    /// Forwarded connections, by number.
    pub(crate) forwards: BTreeMap<u64, Forward>,
    pub(crate) next_forward: u64,
    pub(crate) parked: Vec<ParkedCall>,
    pub(crate) removals: Vec<GroupRemoval>,
    /// Whether the guest is to be powered off.
    pub(crate) should_end: bool,
}

impl Agent {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            trees: Hierarchies::open().map_err(io::Error::other)?,
            boot_memory: capacity::memory(),
            ports: Ports::new()?,
            signals: SignalFd::block(&[Signal::CHILD.as_raw()]).map_err(during("block signals"))?,
            connections: BTreeMap::new(),
            next_connection: 0,
            processes: BTreeMap::new(),
            pumps: BTreeMap::new(),
            next_pump: 0,
            forwards: BTreeMap::new(),
            next_forward: 0,
            parked: Vec::new(),
            removals: Vec::new(),
            should_end: false,
        })
    }

    /// Answers a call, if its connection still exists.
    pub(crate) fn answer(&mut self, caller: Caller, result: Result<Reply, Failure>) {
        let Some(connection) = self.connections.get_mut(&caller.connection) else { return };
        if let Err(error) = connection.answer(caller.call, result) {
            self.disconnect(caller.connection, &error);
        }
    }

    pub(crate) fn disconnect(&mut self, number: u64, error: &io::Error) {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            eprintln!("pinion-agent: a connection ends: {error}");
        }
        self.connections.remove(&number);
        for process in self.processes.values_mut() {
            process.waiting.retain(|caller| caller.connection != number);
        }
        self.abandon_requests_of(number);
    }
}
