//! Containers and pod inits of the node.

mod answers;
mod container;
mod setup;

use std::{collections::BTreeMap, io};

pub(crate) use container::{Container, Stage};
pub(crate) use setup::timeout_error;

use crate::{
    event::{Epoll, Token},
    failure::no_container,
    services::Services,
};
use cgroup::Nesting;
use monitor_api::Failure;

/// Limits of the cgroups that a container may create below its own (v2), including those of its execs. They are enough
/// for an init system or a nested container engine, and removing them takes some tenths of a second.
pub(crate) const NESTING: Nesting = Nesting { depth: 32, descendants: 2048 };

/// Containers and pod inits, by serial number.
#[derive(Default)]
pub(crate) struct Containers(BTreeMap<u64, Container>);

impl Containers {
    pub(crate) fn insert(&mut self, serial: u64, container: Container) {
        self.0.insert(serial, container);
    }

    pub(crate) fn remove(&mut self, serial: u64) -> Option<Container> {
        self.0.remove(&serial)
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&Container> {
        self.0.get(&serial)
    }

    pub(crate) fn get_mut(&mut self, serial: u64) -> Option<&mut Container> {
        self.0.get_mut(&serial)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Container)> {
        self.0.iter().map(|(serial, container)| (*serial, container))
    }

    /// Returns all serial numbers.
    pub(crate) fn serials(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the container with this id, and its serial number.
    pub(crate) fn find(&self, id: &str) -> Option<(u64, &Container)> {
        self.iter().find(|(_, container)| container.description.id == id)
    }

    /// Returns the container with this id, and its serial number; `operation` failed if there is none.
    pub(crate) fn require(&mut self, operation: &str, id: &str) -> Result<(u64, &mut Container), Failure> {
        let found = self.0.iter_mut().find(|(_, container)| container.description.id == id);
        found.map(|(serial, container)| (*serial, container)).ok_or_else(|| no_container(operation, id))
    }

    /// Returns the serial number of the container whose process has this pid and was not reaped.
    pub(crate) fn with_pid(&self, pid: i32) -> Option<u64> {
        let is_reaped = |container: &Container| container.has_ended() || container.is_undone_by_runtime();
        let has_pid = |container: &Container| container.pid() == pid && !is_reaped(container);
        self.iter().find(|(_, container)| has_pid(container)).map(|(serial, _)| serial)
    }

    /// Watches the descriptors of a container. If epoll refuses, a timer polls them.
    pub(crate) fn watch(&self, serial: u64, services: &mut Services) {
        services.poll_unless_watched(Token::Container(serial), self.try_watch(serial, &services.epoll));
    }

    /// Watches the descriptors of a container that are not watched yet.
    pub(crate) fn try_watch(&self, serial: u64, epoll: &Epoll) -> io::Result<()> {
        let Some(container) = self.get(serial) else { return Ok(()) };
        let failing = matches!(container.stage, Stage::Failing(..));
        if let Some(setup) = container.setup().filter(|_| !failing) {
            epoll.watch(setup.sync(), Token::Container(serial))?;
        }
        // The exit of a child is reported by SIGCHLD.
        match container.pidfd().filter(|_| container.adopted && !container.has_ended()) {
            Some(pidfd) => epoll.watch(pidfd, Token::Pidfd(serial)),
            None => Ok(()),
        }
    }
}
