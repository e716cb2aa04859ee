//! Requests of the daemon, one file per verb.

mod adopt;
mod attach;
mod close_stdin;
mod create;
mod delete;
mod end;
mod exec;
mod hello;
mod inventory;
mod keep;
mod kill;
mod make_namespaces;
mod mounts;
mod ping;
mod pod_init;
mod reopen_log;
mod resize_terminal;
mod runtime_command;
mod runtime_delete;
mod shutdown;
mod start;
mod upgrade;

use monitor_api::{Attachments, Failure, FailureKind, Reply, Request};

use crate::{link::RequestId, monitor::Monitor};

/// Result of a request. `None`: the reply is sent later.
type Answer = Result<Option<Reply>, Failure>;

/// Handles a request. Attached descriptors that the verb does not take are closed.
pub(crate) fn handle(monitor: &mut Monitor, request_id: RequestId, request: Request, attachments: Attachments) {
    let is_hello = matches!(request, Request::Hello { .. });
    let answer = if is_hello || monitor.services.link.is_greeted() {
        answer(monitor, request_id, request, attachments)
    } else {
        Err(Failure::new(FailureKind::Version, "the first request of a connection must be Hello"))
    };
    match answer {
        Ok(Some(reply)) => monitor.services.reply(request_id, Ok((reply, Attachments::new()))),
        Ok(None) => {}
        Err(failure) => monitor.services.reply(request_id, Err(failure)),
    }
}

fn answer(monitor: &mut Monitor, request_id: RequestId, request: Request, mut attachments: Attachments) -> Answer {
    match request {
        Request::Hello { major, minor } => hello::hello(monitor, major, minor),
        Request::Inventory => inventory::inventory(monitor, request_id),
        Request::Adopt(adopt) => adopt::adopt(monitor, adopt, attachments),
        Request::Mounts { container } => mounts::mounts(monitor, container, attachments),
        Request::Create(create) => create::create(monitor, request_id, *create, attachments),
        Request::Start { container, has_started } => start::start(monitor, request_id, &container, has_started),
        Request::Kill(kill) => kill::kill(monitor, &kill),
        Request::Exec(exec) => exec::exec(monitor, request_id, *exec, &mut attachments),
        Request::Attach(attach) => attach::attach(monitor, &attach.container, &mut attachments),
        Request::CloseStdin { container } => close_stdin::close_stdin(monitor, &container),
        Request::ReopenLog { container } => reopen_log::reopen_log(monitor, request_id, &container, &mut attachments),
        Request::ResizeTerminal { target, size } => resize_terminal::resize_terminal(monitor, &target, size),
        Request::Delete { container } => delete::delete(monitor, request_id, &container),
        Request::RuntimeDelete { container, runtime } => {
            runtime_delete::runtime_delete(monitor, request_id, &container, &runtime)
        }
        Request::RuntimeCommand(command) => {
            runtime_command::runtime_command(monitor, request_id, &command, attachments)
        }
        Request::End { container, status } => end::end(monitor, &container, status),
        Request::PodInit(init) => pod_init::pod_init(monitor, request_id, init, attachments),
        Request::Keep { key } => keep::keep(monitor, key, attachments),
        Request::Release { key } => keep::release(monitor, &key),
        Request::MakeNamespaces(request) => {
            make_namespaces::make_namespaces(monitor, request_id, request, &mut attachments)
        }
        Request::Shutdown => shutdown::shutdown(monitor),
        Request::Upgrade => upgrade::upgrade(monitor, request_id, &mut attachments),
        Request::Ping => ping::ping(monitor),
    }
}
