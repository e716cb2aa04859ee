//! The connection to the daemon: what its loss and the entries of an `Inventory` mean for other components.

use std::os::fd::AsFd;

use container::ContainerSetup;
use monitor_api::{ContainerDescription, Holding, HoldingState, Role};
use rustix::fd::BorrowedFd;

use super::Monitor;
use crate::{
    containers::Container,
    link::{Entry, EntryContents},
    output::Output,
    programs::Filter,
    stream::StreamKind,
};

impl Monitor {
    /// Completes what the last event or request caused on the connection.
    pub(crate) fn settle_link(&mut self) {
        if self.services.link.awaits_entry() {
            self.flush();
        }
        if self.services.link.take_lost() {
            self.mounts.forget_all();
            // No process is left that owns the pipes and deadlines of execs.
            self.kill_execs(self.execs.unreaped().collect());
        }
    }

    /// Sends queued frames until the socket has no more room.
    pub(crate) fn flush(&mut self) {
        while let Some(entry) = self.services.flush() {
            let Self { services, containers, outputs, keyed_descriptors, .. } = self;
            let contents = match &entry {
                Entry::Container(serial) => containers
                    .get(*serial)
                    .zip(outputs.map.get(*serial))
                    .and_then(|(container, output)| container_entry(container, output)),
                Entry::Key(key) => keyed_descriptors.get(key).map(|files| {
                    let files = (0..).map(Role::Kept).zip(files.iter().map(AsFd::as_fd)).collect();
                    let description = ContainerDescription { id: key.clone(), ..ContainerDescription::default() };
                    let holding = Holding { container: description, state: HoldingState::Kept };
                    EntryContents { holding, files, program: None }
                }),
            };
            if !services.send_entry(contents) {
                return;
            }
        }
    }
}

/// Returns the entry of a container. `None`: the daemon does not know it yet.
fn container_entry<'a>(container: &'a Container, output: &'a Output) -> Option<EntryContents<'a>> {
    let holding = Holding { container: container.description.clone(), state: container.holding_state()? };
    let program = match &container.filter {
        Filter::Known(program) => program.as_deref(),
        Filter::Unknown => None,
    };
    Some(EntryContents { holding, files: descriptors(container, output), program })
}

/// Returns descriptors and roles as in `Adopt`.
fn descriptors<'a>(container: &'a Container, output: &'a Output) -> Vec<(Role, BorrowedFd<'a>)> {
    let stream = |kind| output.stream(kind).filter(|_| output.terminal().is_none()).map(|s| s.file.as_fd());
    let list = [
        (Role::Pidfd, container.pidfd()),
        (Role::Sync, container.setup().map(ContainerSetup::sync)),
        (Role::StdoutRead, stream(StreamKind::Stdout)),
        (Role::StderrRead, stream(StreamKind::Stderr)),
        (Role::StdinHold, container.stdin.as_ref().map(AsFd::as_fd)),
        (Role::Log, output.log.as_ref().map(AsFd::as_fd)),
        (Role::LOG_DIRECTORY, output.limit.as_ref().map(|limit| limit.directory.as_fd())),
        (Role::Terminal, output.terminal().map(AsFd::as_fd)),
    ];
    list.into_iter().filter_map(|(role, fd)| fd.map(|fd| (role, fd))).collect()
}
