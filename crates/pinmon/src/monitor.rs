//! The components of the monitor, and what spans them.
//!
//! A component has its own map of objects and knows no other component: what must happen elsewhere, it returns as a
//! value. The flows that span components are here, one file each. The event loop (`event_loop.rs`) calls them, and so
//! do requests (`request.rs`).

mod connection;
mod execs;
mod exit;
mod external;
mod hooks;
mod oci_runtime;
mod reap;
mod removal;
mod setup;
mod writers;

use std::{collections::BTreeMap, io, time::Duration};

use cgroup::Hierarchies;
use rustix::fd::OwnedFd;
use syscall::signal_fd::SignalFd;

use crate::{
    clock, containers::Containers, event::Token, exec::Execs, hooks::HookRunners, inherited_limits::InheritedLimits,
    link::RequestId, mounts::Mounts, namespaces::NamespaceMakers, oci_runtime::RuntimeCommands, oom_kills::OomKills,
    output::Outputs, programs::Programs, removal::Removals, services::Services, thaw::Thaws,
};

/// State of the monitor.
pub(crate) struct Monitor {
    pub(crate) services: Services,
    pub(crate) sources: Sources,
    pub(crate) node: Node,
    pub(crate) containers: Containers,
    pub(crate) oom_kills: OomKills,
    pub(crate) outputs: Outputs,
    pub(crate) execs: Execs,
    pub(crate) hooks: HookRunners,
    pub(crate) runtime_commands: RuntimeCommands,
    pub(crate) namespace_makers: NamespaceMakers,
    pub(crate) mounts: Mounts,
    pub(crate) removals: Removals,
    pub(crate) thaws: Thaws,
    pub(crate) keyed_descriptors: BTreeMap<String, Vec<OwnedFd>>,
    /// A requested upgrade that has not happened yet.
    pub(crate) upgrade: Option<PendingUpgrade>,
    /// Whether more children may have exited than were reaped. No further event reports them.
    pub(crate) reaping: bool,
    /// Whether `Shutdown` or a signal ended the monitor.
    pub(crate) should_exit: bool,
}

/// Descriptors that the event loop itself watches.
pub(crate) struct Sources {
    pub(crate) listener: OwnedFd,
    pub(crate) signals: SignalFd,
}

/// What new containers and execs get from the node.
pub(crate) struct Node {
    pub(crate) trees: Hierarchies,
    pub(crate) inherited_limits: InheritedLimits,
    pub(crate) programs: Programs,
}

/// A requested upgrade.
pub(crate) struct PendingUpgrade {
    pub(crate) request_id: RequestId,
    /// A sealed copy of the program.
    pub(crate) program: OwnedFd,
    /// Moment of [`clock::monotonic`] at which it is given up.
    pub(crate) until: Duration,
}

impl PendingUpgrade {
    /// Whether its time limit is over.
    pub(crate) fn is_late(&self) -> bool {
        clock::monotonic() >= self.until
    }
}

impl Monitor {
    /// Creates a monitor that holds nothing.
    pub(crate) fn new(services: Services, sources: Sources, node: Node, outputs: Outputs, hooks: HookRunners) -> Self {
        Self {
            services,
            sources,
            node,
            containers: Containers::default(),
            oom_kills: OomKills::default(),
            outputs,
            execs: Execs::default(),
            hooks,
            runtime_commands: RuntimeCommands::default(),
            namespace_makers: NamespaceMakers::default(),
            mounts: Mounts::default(),
            removals: Removals::default(),
            thaws: Thaws::default(),
            keyed_descriptors: BTreeMap::new(),
            upgrade: None,
            reaping: false,
            should_exit: false,
        }
    }

    /// Whether the monitor can exit without losing anything.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.containers.is_empty()
            && self.execs.is_empty()
            && self.keyed_descriptors.is_empty()
            && self.removals.is_empty()
            && self.runtime_commands.is_empty()
    }

    /// Whether nothing can be done before the next event or timer.
    pub(crate) fn is_idle(&self) -> bool {
        !self.removals.is_ready() && !self.thaws.is_ready() && !self.reaping && !self.mounts.has_unused()
    }

    /// Watches the descriptors of an object that epoll refused to watch before.
    pub(crate) fn try_watch(&self, token: Token) -> io::Result<()> {
        let epoll = &self.services.epoll;
        match token {
            Token::Link => self.services.link.try_watch(epoll),
            Token::Container(serial) | Token::Pidfd(serial) => self.containers.try_watch(serial, epoll),
            Token::Exec(serial) => self.execs.try_watch(serial, epoll),
            Token::NamespaceMaker(serial) => self.namespace_makers.try_watch(serial, epoll),
            Token::Hooks(serial) => self.hooks.try_watch(serial, epoll),
            Token::Writer(number) | Token::Alarm(number) => self.outputs.try_watch(number, epoll),
            // The monitor does not start without a watch for these, and the others are of log writers.
            Token::Listener | Token::Signals | Token::Stream(..) | Token::Tap(..) => Ok(()),
        }
    }

    /// Starts the next pass of thawing a killed container or exec whose processes have not exited.
    pub(crate) fn thaw_due(&mut self, serial: u64) {
        let group = match self.containers.get(serial) {
            Some(container) => container.unfinished_group(),
            None => self.execs.get(serial).and_then(|exec| exec.unfinished_group()),
        };
        self.thaws.due(serial, group);
    }
}
