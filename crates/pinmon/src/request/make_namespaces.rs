use std::time::Duration;

use container::{MadeNamespaces, OwnedNamespaces};
use monitor_api::{Attachments, Failure, MakeNamespaces, Reply, Role};
use oci::NamespaceType;
use rustix::fd::BorrowedFd;

use super::Answer;
use crate::{connection::Asked, failure::of_container, monitor::Monitor, timer::Timer};

/// A child that makes the namespaces of a pod, and who asked for them.
pub(crate) struct Maker {
    asked: Asked,
    making: container::Making,
}

impl Maker {
    /// For the event loop.
    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.making.line()
    }
}

/// Longest that it may take: some milliseconds.
const DEADLINE: Duration = Duration::from_secs(60);
const WHAT: &str = "make the namespaces of a pod";

impl Monitor {
    /// Has a child make namespaces that a user namespace owns; answered when they are there.
    pub(super) fn make_namespaces(
        &mut self,
        asked: Asked,
        wanted: MakeNamespaces,
        attachments: &mut Attachments,
    ) -> Answer {
        let MakeNamespaces { user, network, ipc, hostname } = wanted;
        let joined = attachments.take(Role::Namespace(NamespaceType::User));
        let wanted = OwnedNamespaces { uids: user.uids, gids: user.gids, user: joined, network, ipc, hostname };
        let making = wanted.make();
        self.terminals.cloned();
        let making = making.map_err(|error| of_container(WHAT, &error))?;
        let serial = self.next_serial();
        self.makers.insert(serial, Maker { asked, making });
        self.watch(serial);
        self.timers.after(DEADLINE, Timer::Maker(serial));
        Ok(None)
    }

    /// A maker may have something to say.
    pub(crate) fn advance_maker(&mut self, serial: u64) {
        let Some(maker) = self.makers.get_mut(&serial) else { return };
        let answer = match maker.making.advance() {
            Ok(None) => return,
            Ok(Some(made)) => Ok((Reply::NamespacesMade, attachments(made))),
            Err(error) => Err(of_container(WHAT, &error)),
        };
        self.maker_ended(serial, answer);
    }

    /// It took too long: its process is killed.
    pub(crate) fn maker_due(&mut self, serial: u64) {
        let Some(maker) = self.makers.get(&serial) else { return };
        // Not reaped yet, or it would not be here.
        if let Some(pid) = rustix::process::Pid::from_raw(maker.making.pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let why = format!("it took more than {} s and was killed", DEADLINE.as_secs());
        self.maker_ended(serial, Err(crate::failure::system(WHAT, why)));
    }

    /// A child was reaped that may be a maker: it says nothing any more.
    pub(crate) fn maker_reaped(&mut self, pid: i32) {
        let of_pid = |(serial, maker): (&u64, &Maker)| (maker.making.pid == pid).then_some(*serial);
        if let Some(serial) = self.makers.iter().find_map(of_pid) {
            self.advance_maker(serial);
        }
    }

    fn maker_ended(&mut self, serial: u64, answer: Result<(Reply, Attachments), Failure>) {
        let Some(maker) = self.makers.remove(&serial) else { return };
        self.epoll.forget(maker.making.line());
        self.reply(maker.asked, answer);
    }
}

fn attachments(made: MadeNamespaces) -> Attachments {
    let MadeNamespaces { user, network, ipc, uts } = made;
    let mut attachments = Attachments::new().with(Role::Namespace(NamespaceType::User), user);
    for (kind, file) in [(NamespaceType::Network, network), (NamespaceType::Ipc, ipc), (NamespaceType::Uts, uts)] {
        if let Some(file) = file {
            attachments.push(Role::Namespace(kind), file);
        }
    }
    attachments
}
