//! Requests of the daemon: one verb, one file.

mod adopt;
mod attach;
mod close_stdin;
mod create;
mod delete;
mod exec;
mod hello;
mod keep;
mod kill;
mod make_namespaces;
mod mounts;
mod ping;
mod pod_init;
mod reopen_log;
mod resize_terminal;
mod shutdown;
mod start;
mod upgrade;

use monitor_api::{Attachments, Failure, FailureKind, Reply, Request};

pub(crate) use make_namespaces::Maker;
pub(crate) use mounts::UnusedMounts;

use crate::{connection::Asked, monitor::Monitor};

/// What a verb gives: an answer, or `None` where it comes later.
type Answer = Result<Option<Reply>, Failure>;

impl Monitor {
    /// Does what is asked. Attached descriptors that no verb takes are closed.
    pub(crate) fn handle(&mut self, asked: Asked, request: Request, mut attachments: Attachments) {
        let greets = matches!(request, Request::Hello { .. });
        if !greets && !self.link.as_ref().is_some_and(|link| link.greeted) {
            let failure = Failure::new(FailureKind::Version, "the first request of a connection is Hello");
            return self.reply(asked, Err(failure));
        }
        let answer = match request {
            Request::Hello { major, minor } => self.hello(major, minor),
            Request::Inventory => return self.send_inventory(asked),
            Request::Adopt(adopt) => {
                let answer = self.adopt(adopt, &mut attachments);
                // Of one that was refused.
                self.terminals.release(attachments);
                answer
            }
            Request::Mounts { container } => self.mounts(container, attachments),
            Request::Create(create) => self.create(asked, *create, attachments),
            Request::Start { container } => self.start(asked, &container),
            Request::Kill(kill) => self.kill(&kill),
            Request::Exec(exec) => self.exec(asked, *exec, &mut attachments),
            Request::Attach(attach) => self.attach(&attach.container, &mut attachments),
            Request::CloseStdin { container } => self.close_stdin(&container),
            Request::ReopenLog { container } => self.reopen_log(asked, &container, &mut attachments),
            Request::ResizeTerminal { target, size } => self.resize_terminal(&target, size),
            Request::Delete { container } => self.delete(asked, &container),
            Request::PodInit(init) => self.pod_init(asked, init, attachments),
            Request::Keep { key } => self.keep(key, attachments),
            Request::Release { key } => self.release(&key),
            Request::MakeNamespaces(wanted) => self.make_namespaces(asked, wanted, &mut attachments),
            Request::Shutdown => self.shutdown(),
            Request::Upgrade => self.upgrade(asked, &mut attachments),
            Request::Ping => self.ping(),
        };
        match answer {
            Ok(Some(reply)) => self.reply(asked, Ok((reply, Attachments::new()))),
            Ok(None) => {}
            Err(failure) => self.reply(asked, Err(failure)),
        }
    }
}
