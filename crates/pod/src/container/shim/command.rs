//! The commands of a shim, which the monitor runs in the mount namespace of the pod's shims.

use std::{fs::File, io::Write};

use monitor_api::RuntimeCommand;
use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, memfd_create},
};
use shim::{Bootstrap, Command, CommandInputs, Exit, parse_exit};

use super::shim_of;
use crate::{Error, error::failed, parts::Parts, store::Container};

/// Longest directory of sockets: a socket in it has a name of 64 characters, and a path of 107 bytes.
const SOCKET_DIR_MAX: usize = 107 - 65;

/// Has a shim started for a container; returns how it is reached.
pub(super) async fn start(parts: &Parts, container: &Container, namespace: OwnedFd) -> Result<Bootstrap, Error> {
    let output = run(parts, container, namespace, "start", Command::start).await?;
    Bootstrap::parse(&output).map_err(|error| from_shim(error).during(operation(container, "start")))
}

/// Has a shim remove what a container left behind. Returns its exit status, if the shim knows it.
pub(super) async fn delete(parts: &Parts, container: &Container, namespace: OwnedFd) -> Result<Exit, Error> {
    let output = run(parts, container, namespace, "delete", Command::delete).await?;
    parse_exit(&output).map_err(|error| from_shim(error).during(operation(container, "delete")))
}

fn operation(container: &Container, verb: &str) -> String {
    format!("command {verb} of the shim of container {}", container.id())
}

/// Converts an error of a shim.
pub(crate) fn from_shim(error: shim::Error) -> Error {
    use crate::ErrorKind;
    let kind = match error.kind {
        shim::ErrorKind::NotFound => ErrorKind::NotFound,
        shim::ErrorKind::State => ErrorKind::FailedPrecondition,
        shim::ErrorKind::Timeout => ErrorKind::DeadlineExceeded,
        shim::ErrorKind::Gone => ErrorKind::Unavailable,
        shim::ErrorKind::Unimplemented => ErrorKind::Unimplemented,
        shim::ErrorKind::Protocol | shim::ErrorKind::Refused => ErrorKind::Internal,
    };
    Error::new(kind, error.to_string())
}

async fn run(
    parts: &Parts,
    container: &Container,
    namespace: OwnedFd,
    verb: &str,
    command: impl FnOnce(&CommandInputs<'_>) -> Command,
) -> Result<Vec<u8>, Error> {
    let shim = shim_of(container)?;
    let publisher = std::env::current_exe().map_err(failed("read the path of this program"))?;
    let socket_dir = parts.node.config.state_dir.join("s");
    let socket_dir = socket_dir.to_str().filter(|path| path.len() <= SOCKET_DIR_MAX);
    let command = command(&CommandInputs {
        id: container.id().as_str(),
        bundle: &shim.bundle,
        events: &shim.events,
        publisher: &publisher.to_string_lossy(),
        socket_dir,
        options: shim.options.as_ref(),
    });
    let stdin = match command.stdin.is_empty() {
        true => None,
        false => Some(file_with(&command.stdin).map_err(failed("write the input of the shim"))?),
    };
    let request = RuntimeCommand {
        operation: operation(container, verb),
        arguments: std::iter::once(shim.binary.clone()).chain(command.arguments).collect(),
        environment: shim.environment.iter().cloned().chain(command.environment).collect(),
        directory: shim.bundle.clone(),
        timeout: shim.timeout,
    };
    parts.monitor.runtime_command(request, namespace, stdin).await
}

/// Returns a file with this content, at its beginning.
fn file_with(content: &[u8]) -> std::io::Result<OwnedFd> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::from(memfd_create(c"shim-input", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}
