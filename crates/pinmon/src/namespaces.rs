//! Children that create the namespaces of a pod with a user namespace. One takes some milliseconds, and is waited for
//! like every other process: by events and a deadline.

use std::{collections::BTreeMap, io, time::Duration};

use container::{PodNamespaceSetup, PodNamespaces};
use monitor_api::{Attachments, Reply, Role};
use oci::NamespaceType;
use rustix::process::{Signal, kill_process};

use crate::{
    event::{Epoll, Timer, Token},
    failure::{of_container, system},
    link::{Answer, RequestId},
    services::Services,
};

/// Time limit. It usually takes some milliseconds.
const DEADLINE: Duration = Duration::from_secs(60);
/// The operation in failures.
pub(crate) const OPERATION: &str = "create the namespaces of a pod";

/// A child that creates the namespaces of a pod, and the request for them.
struct NamespaceMaker {
    request_id: RequestId,
    setup: PodNamespaceSetup,
}

/// Children that create namespaces, by serial number.
#[derive(Default)]
pub(crate) struct NamespaceMakers(BTreeMap<u64, NamespaceMaker>);

impl NamespaceMakers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a child. The request is answered when the namespaces exist.
    pub(crate) fn add(&mut self, request_id: RequestId, setup: PodNamespaceSetup, services: &mut Services) {
        let serial = services.next_serial();
        self.0.insert(serial, NamespaceMaker { request_id, setup });
        services.poll_unless_watched(Token::NamespaceMaker(serial), self.try_watch(serial, &services.epoll));
        services.timers.after(DEADLINE, Timer::Maker(serial));
    }

    /// Watches the socket of a child.
    pub(crate) fn try_watch(&self, serial: u64, epoll: &Epoll) -> io::Result<()> {
        let token = Token::NamespaceMaker(serial);
        self.0.get(&serial).map_or(Ok(()), |maker| epoll.watch(maker.setup.socket(), token))
    }

    /// Handles a message or the end of a child.
    pub(crate) fn advance(&mut self, serial: u64, services: &mut Services) {
        let Some(maker) = self.0.get_mut(&serial) else { return };
        let answer = match maker.setup.advance() {
            Ok(None) => return,
            Ok(Some(made)) => Ok((Reply::NamespacesMade, attachments(made))),
            Err(error) => Err(of_container(OPERATION, &error)),
        };
        self.finish(serial, answer, services);
    }

    /// Handles the deadline: kills the child.
    pub(crate) fn due(&mut self, serial: u64, services: &mut Services) {
        let Some(maker) = self.0.get(&serial) else { return };
        // The child was not reaped, because its record is removed then.
        let _ = kill_process(maker.setup.pid, Signal::KILL);
        let why = format!("timed out after {} s; the process was killed", DEADLINE.as_secs());
        self.finish(serial, Err(system(OPERATION, why)), services);
    }

    /// Handles a reaped child that may be one of these. It sends no further message.
    pub(crate) fn reaped(&mut self, pid: i32, services: &mut Services) {
        let serial = self.0.iter().find(|(_, maker)| maker.setup.pid.as_raw_pid() == pid).map(|(serial, _)| *serial);
        if let Some(serial) = serial {
            self.advance(serial, services);
        }
    }

    fn finish(&mut self, serial: u64, answer: Answer, services: &mut Services) {
        let Some(maker) = self.0.remove(&serial) else { return };
        services.epoll.forget(maker.setup.socket());
        services.reply(maker.request_id, answer);
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
