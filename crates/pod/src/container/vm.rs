//! Containers in a virtual machine: created by the agent in its guest, to which this process sends requests.
//!
//! ```text
//! boot     sandbox containers of the pod: the file server, and the virtual machine monitor         (`sandbox/vm.rs`)
//! create   mounts below the directory of the file server, a port for each stream, Create           ─▶ the guest has it
//! watch    Wait, over the connection of this process; again after a restart of the daemon
//!   exited: its output has reached the FIFOs, status on record, Delete                             ─▶ monitor: End
//!   the virtual machine ended: status unknown                                                      ─▶ monitor: End
//! ```
//! A container that was restored from a checkpoint (`sandbox/restore.rs`) keeps the id in its guest that it was saved with, and is
//! frozen there until it is started.
//!
//! The monitor keeps output and cgroup, and reports the exit like that of any other container. What a guest answers is
//! bounded and has a deadline ([`vm::guest`]); one that does not keep to it harms only its pod.

mod connection;
mod create;
mod end;
mod forward;
mod guest_spec;
mod health;
mod mounts;
mod pause;
mod ports;
mod process;
mod requests;
mod size;
mod sockets;
mod watch;

use crate::{Error, ErrorKind};

pub(crate) use connection::{connect_agent, connection};
pub(crate) use create::create;
pub(crate) use end::{give_up, remove};
pub(crate) use forward::forward;
pub(crate) use health::check_health;
pub(crate) use mounts::prepare_shared;
pub(crate) use pause::{continue_paused, freeze, pause};
pub(crate) use ports::{PortPipes, SavedPorts, drain, remove_ports};
pub(crate) use process::find_process;
pub(crate) use requests::{connection_of, kill, kill_exec, resize, revert, settle, start, update};
pub(crate) use size::{
    Change, SizeLock, check as check_size, grow, is_vm, limit_monitor, monitor_limit, shrink, shrink_for_pod,
};
pub(crate) use sockets::{SocketDirectory, log_directory, prepare_sockets};
pub(crate) use watch::watch;

/// Directory with the socket of a process of the virtual machine, in its container.
pub(crate) const SOCKETS: &str = "/run/vm";
/// Directory that the file server serves, in its container.
pub(crate) const SHARED: &str = "/shared";
/// Name of the socket of the file server.
pub(crate) const FILE_SERVER_SOCKET: &str = "fs";

/// Converts an error of a request to a guest.
pub(crate) fn from_guest(error: vm::guest::Error) -> Error {
    use vm::guest::ErrorKind as Kind;
    let kind = match error.kind {
        Kind::NotFound => ErrorKind::NotFound,
        Kind::Exists => ErrorKind::AlreadyExists,
        Kind::State => ErrorKind::FailedPrecondition,
        Kind::Invalid | Kind::CommandNotFound | Kind::CommandNotExecutable => ErrorKind::InvalidArgument,
        Kind::Timeout => ErrorKind::DeadlineExceeded,
        Kind::Gone | Kind::Unreachable | Kind::Absent => ErrorKind::Unavailable,
        Kind::Protocol | Kind::Refused => ErrorKind::Internal,
    };
    let command = match error.kind {
        Kind::CommandNotFound => Some(monitor_api::CommandError::NotFound),
        Kind::CommandNotExecutable => Some(monitor_api::CommandError::NotExecutable),
        _ => None,
    };
    Error { command, ..Error::new(kind, error.to_string()) }
}

/// Converts an error of a virtual machine monitor.
pub(crate) fn from_vmm(error: vm::Error) -> Error {
    let kind = match &error.kind {
        vm::ErrorKind::Gone => ErrorKind::Unavailable,
        vm::ErrorKind::Timeout => ErrorKind::DeadlineExceeded,
        vm::ErrorKind::Invalid => ErrorKind::InvalidArgument,
        vm::ErrorKind::Protocol | vm::ErrorKind::Refused { .. } | vm::ErrorKind::System => ErrorKind::Internal,
    };
    Error::new(kind, error.to_string())
}
