//! Requests of the daemon, one file per verb.

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

pub(crate) use make_namespaces::NamespaceMaker;
pub(crate) use mounts::UnusedMounts;

use crate::{connection::RequestId, monitor::Monitor};

/// Result of a request. `None`: the reply is sent later.
type Answer = Result<Option<Reply>, Failure>;

impl Monitor {
    /// Dispatches a request. Attached descriptors that the verb does not take are closed.
    pub(crate) fn handle(&mut self, request_id: RequestId, request: Request, mut attachments: Attachments) {
        let is_hello = matches!(request, Request::Hello { .. });
        if !is_hello && !self.link.as_ref().is_some_and(|link| link.greeted) {
            let failure = Failure::new(FailureKind::Version, "the first request of a connection must be Hello");
            return self.reply(request_id, Err(failure));
        }
        let answer = match request {
            Request::Hello { major, minor } => self.hello(major, minor),
            Request::Inventory => return self.send_inventory(request_id),
            Request::Adopt(adopt) => {
                let answer = self.adopt(adopt, &mut attachments);
                // Descriptors of a refused adoption.
                self.terminals.release(attachments);
                answer
            }
            Request::Mounts { container } => self.mounts(container, attachments),
            Request::Create(create) => self.create(request_id, *create, attachments),
            Request::Start { container } => self.start(request_id, &container),
            Request::Kill(kill) => self.kill(&kill),
            Request::Exec(exec) => self.exec(request_id, *exec, &mut attachments),
            Request::Attach(attach) => self.attach(&attach.container, &mut attachments),
            Request::CloseStdin { container } => self.close_stdin(&container),
            Request::ReopenLog { container } => self.reopen_log(request_id, &container, &mut attachments),
            Request::ResizeTerminal { target, size } => self.resize_terminal(&target, size),
            Request::Delete { container } => self.delete(request_id, &container),
            Request::PodInit(init) => self.pod_init(request_id, init, attachments),
            Request::Keep { key } => self.keep(key, attachments),
            Request::Release { key } => self.release(&key),
            Request::MakeNamespaces(request) => self.make_namespaces(request_id, request, &mut attachments),
            Request::Shutdown => self.shutdown(),
            Request::Upgrade => self.upgrade(request_id, &mut attachments),
            Request::Ping => self.ping(),
        };
        match answer {
            Ok(Some(reply)) => self.reply(request_id, Ok((reply, Attachments::new()))),
            Ok(None) => {}
            Err(failure) => self.reply(request_id, Err(failure)),
        }
    }
}
