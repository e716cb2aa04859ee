//! Containers of a containerd shim: started by the monitor, controlled by requests to it.
//!
//! ```text
//! create   mounts in the namespace of the pod's shims, `start` of the shim, Create        ─▶ the shim's pid and address on record
//! watch    Wait, over a connection of its own; again after a restart of the daemon
//!   exited: status on record, Delete (all output is in the FIFOs then), Shutdown if it is the last one, unmount ─▶ monitor: End
//!   died:   the shim is killed, `delete` of the shim, cgroup killed by the monitor, unmount                    ─▶ monitor: End
//! ```
//! The monitor keeps output and cgroup, and reports the exit like that of any other container. A shim may hang, die or
//! lie: each request has a deadline, a pid counts only if the kernel agrees, and whatever fails ends with "died".

mod command;
mod connection;
mod create;
mod end;
mod events;
mod leftover_exec;
mod log;
mod namespace;
mod requests;
mod resume;
mod watch;

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    ContainerId, Error, ShimHandler,
    store::{Container, ContainerShim},
};

pub(crate) use command::from_shim;
pub(crate) use connection::task;
pub(crate) use create::create;
pub(crate) use end::{give_up, remove};
pub(crate) use events::{handle as handle_events, listen};
pub(crate) use leftover_exec::exec_path;
pub(crate) use namespace::{kill_pod, kill_unowned};
pub(crate) use requests::{close_stdin, kill, resize, start, update};
pub(crate) use resume::resume;

/// Where a shim and its programs are looked up.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Name of the socket in the state directory that receives the events of shims.
const EVENTS: &str = "shim-events";

/// Returns the shim of a container that a shim drives.
fn shim_of(container: &Container) -> Result<&ContainerShim, Error> {
    container.metadata.shim.as_ref().ok_or_else(|| Error::internal("a bug: the container has no shim"))
}

/// Returns the shim of a new container with this state directory.
pub(crate) fn shim_for(
    handler: &ShimHandler,
    state_dir: &Path,
    id: &ContainerId,
    container: &Path,
) -> Result<ContainerShim, Error> {
    let text = |path: &Path| {
        let message = || Error::invalid(format!("runtime handler {}: {path:?} is not valid UTF-8", handler.name));
        path.to_str().map(str::to_owned).ok_or_else(message)
    };
    let mut options = handler.options.clone();
    if let Some(shim::Options::Runc { root, .. }) = &mut options
        && root.is_empty()
    {
        *root = text(&state_dir.join("runtime").join(&handler.name))?;
    }
    let environment = std::iter::once(format!("PATH={PATH}")).chain(handler.environment.iter().cloned()).collect();
    Ok(ContainerShim {
        handler: handler.name.clone(),
        binary: text(&find_binary(handler)?)?,
        environment,
        options,
        bundle: text(&container.join("bundle").join(id.as_str()))?,
        events: text(&state_dir.join(EVENTS))?,
        timeout: u32::try_from(handler.timeout.as_secs()).unwrap_or(u32::MAX),
        allowed_annotations: handler.allowed_annotations.clone(),
    })
}

/// Returns the path of a handler's shim.
///
/// # Errors
/// `FailedPrecondition` if it does not exist, or is not executable.
pub(crate) fn find_binary(handler: &ShimHandler) -> Result<PathBuf, Error> {
    let is_executable = |path: &PathBuf| {
        let metadata = offload::in_place(|| std::fs::metadata(path));
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let missing = |what: String| {
        Err(Error::state(format!("runtime handler {:?}: {what}; install the shim, or correct binary", handler.name)))
    };
    if handler.binary.is_absolute() {
        return match is_executable(&handler.binary) {
            true => Ok(handler.binary.clone()),
            false => missing(format!("{} is not an executable file", handler.binary.display())),
        };
    }
    let name = handler.binary.to_string_lossy();
    let program = program_name(&name);
    let found = PATH.split(':').map(|directory| Path::new(directory).join(&program)).find(is_executable);
    match found {
        Some(path) => Ok(path),
        None => missing(format!("{program} is not in {PATH}")),
    }
}

/// Returns the name of a shim's program: `io.containerd.runc.v2` is `containerd-shim-runc-v2`.
fn program_name(name: &str) -> String {
    match name.rsplitn(3, '.').collect::<Vec<_>>()[..] {
        [version, runtime, _] => format!("containerd-shim-{runtime}-{version}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shims_have_the_names_of_containerd() {
        assert_eq!(program_name("io.containerd.runc.v2"), "containerd-shim-runc-v2");
        assert_eq!(program_name("io.containerd.runsc.v1"), "containerd-shim-runsc-v1");
        assert_eq!(program_name("containerd-shim-kata-v2"), "containerd-shim-kata-v2");
    }

    #[test]
    fn a_missing_shim_is_refused() {
        let handler = |binary: &str| ShimHandler { name: "x".into(), binary: binary.into(), ..ShimHandler::default() };
        assert!(find_binary(&handler("/bin/sh")).is_ok());
        let file = tempfile::NamedTempFile::new().expect("a file that is not executable");
        let file = file.path().to_str().expect("UTF-8");
        for missing in ["/no/such/shim", "/etc", file, "io.example.missing.v9"] {
            let error = find_binary(&handler(missing)).expect_err("refused");
            assert!(error.message.contains("runtime handler \"x\""), "{error}");
        }
    }
}
