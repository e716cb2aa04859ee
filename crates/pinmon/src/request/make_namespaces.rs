use std::time::Duration;

use container::{PodNamespaceRequest, PodNamespaces};
use monitor_api::{Attachments, Failure, MakeNamespaces, Reply, Role};
use oci::NamespaceType;
use rustix::fd::BorrowedFd;

use super::Answer;
use crate::{connection::RequestId, failure::of_container, monitor::Monitor, timer::Timer};

/// A child that creates the namespaces of a pod, and the request for them.
pub(crate) struct NamespaceMaker {
    request_id: RequestId,
    making: container::PodNamespaceSetup,
}

impl NamespaceMaker {
    /// Returns the socket of the child, for the event loop.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.making.socket()
    }
}

/// Time limit. It usually takes some milliseconds.
const DEADLINE: Duration = Duration::from_secs(60);
const OPERATION: &str = "create the namespaces of a pod";

impl Monitor {
    /// Lets a child create namespaces that a user namespace owns. Answered when they exist.
    pub(super) fn make_namespaces(
        &mut self,
        request_id: RequestId,
        request: MakeNamespaces,
        attachments: &mut Attachments,
    ) -> Answer {
        let MakeNamespaces { user, network, ipc, hostname } = request;
        let joined = attachments.take(Role::Namespace(NamespaceType::User));
        let request = PodNamespaceRequest { uids: user.uids, gids: user.gids, user: joined, network, ipc, hostname };
        let making = request.make();
        self.terminals.cloned();
        let making = making.map_err(|error| of_container(OPERATION, &error))?;
        let serial = self.next_serial();
        self.makers.insert(serial, NamespaceMaker { request_id, making });
        self.watch(serial);
        self.timers.after(DEADLINE, Timer::Maker(serial));
        Ok(None)
    }

    /// Handles a message or the end of the child.
    pub(crate) fn advance_maker(&mut self, serial: u64) {
        let Some(maker) = self.makers.get_mut(&serial) else { return };
        let answer = match maker.making.advance() {
            Ok(None) => return,
            Ok(Some(made)) => Ok((Reply::NamespacesMade, attachments(made))),
            Err(error) => Err(of_container(OPERATION, &error)),
        };
        self.finish_maker(serial, answer);
    }

    /// Handles the deadline: kills the child.
    pub(crate) fn maker_due(&mut self, serial: u64) {
        let Some(maker) = self.makers.get(&serial) else { return };
        // The child was not reaped, because its record is removed then.
        let _ = rustix::process::kill_process(maker.making.pid, rustix::process::Signal::KILL);
        let why = format!("timed out after {} s; the process was killed", DEADLINE.as_secs());
        self.finish_maker(serial, Err(crate::failure::system(OPERATION, why)));
    }

    /// Handles a reaped child that may be one of these. It sends no further message.
    pub(crate) fn maker_reaped(&mut self, pid: i32) {
        let of_pid =
            |(serial, maker): (&u64, &NamespaceMaker)| (maker.making.pid.as_raw_pid() == pid).then_some(*serial);
        if let Some(serial) = self.makers.iter().find_map(of_pid) {
            self.advance_maker(serial);
        }
    }

    fn finish_maker(&mut self, serial: u64, answer: Result<(Reply, Attachments), Failure>) {
        let Some(maker) = self.makers.remove(&serial) else { return };
        self.epoll.forget(maker.making.socket());
        self.reply(maker.request_id, answer);
    }
}

fn attachments(made: PodNamespaces) -> Attachments {
    let PodNamespaces { user, network, ipc, uts } = made;
    let mut attachments = Attachments::new().with(Role::Namespace(NamespaceType::User), user);
    for (kind, file) in [(NamespaceType::Network, network), (NamespaceType::Ipc, ipc), (NamespaceType::Uts, uts)] {
        if let Some(file) = file {
            attachments.push(Role::Namespace(kind), file);
        }
    }
    attachments
}
