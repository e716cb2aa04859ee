//! Versioned contract between the daemon (`pinion`) and the monitor (`pinmon`), two processes of different lifetimes.
//!
//! One `SOCK_SEQPACKET` Unix connection carries [`Envelope`]s as JSON, with file descriptors attached (`SCM_RIGHTS`).
//! The daemon sends [`Request`]s, each with a sequence number. The monitor answers each of them with one [`Reply`] of
//! the same number, and sends [`Event`]s unsolicited. JSON that is longer than [`INLINE_MAX`] is sent in a sealed
//! memfd, which is the first attached descriptor.
//!
//! ```text
//! daemon                                  monitor
//!   │ Hello{major, minor} ───────────────▶ │  refuses another major version
//!   │ ◀──────────────── Welcome{instance}  │
//!   │ Inventory ─────────────────────────▶ │  after a restart of the daemon: lists all objects
//!   │ ◀─ Holding × n, then Done            │
//!   │ Adopt × n (descriptors) ───────────▶ │  after the death of a monitor: restores its objects
//!   │ Mounts × n (descriptors) ──────────▶ │  only if they do not fit into one message
//!   │ Create (descriptors) ──────────────▶ │  cgroup, clone3; the child sets itself up and waits
//!   │ ◀───── Created + pidfd, sync, tty    │
//!   │ Start ─────────────────────────────▶ │  one byte; answered when execve succeeded or failed
//!   │ ◀──────────────────────── Done       │
//!   │ ◀─────────────── Event::Exited       │
//!   │ Delete ────────────────────────────▶ │  removes the cgroup and the record
//! ```
//!
//! The socket is at [`socket_path`]. The daemon [`connect`]s to it; if no monitor listens, it [`bind`]s the socket and
//! starts one.
//!
//! Every request is idempotent or fails with `AlreadyExists`, so that a daemon that died between request and reply can
//! repeat it.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attach;
mod codec;
mod envelope;
mod failure;
mod heartbeat;
mod hooks;
mod message;
mod oci_runtime;
mod reply;
mod runtime_command;
mod socket;

pub use attach::{Attachments, Role};
pub use codec::{CodecError, Connection, FRAME_FDS_MAX, FRAME_MAX, Frame, INLINE_MAX};
pub use envelope::Envelope;
pub use failure::{CommandError, Failure, FailureKind};
pub use heartbeat::{LogDevice, Pong, StuckWriter};
pub use hooks::PendingHooks;
pub use message::{
    Adopt, Attach, ContainerDescription, Create, Created, Event, Exec, ExecStarted, ExitStatus, Holding, HoldingState,
    Kill, KillScope, LogLimit, LogOptions, MakeNamespaces, PodInit, PodInitStarted, Request, Target, UserMappings,
    Welcome,
};
pub use oci_runtime::{CREATE_LOCK, DELETE_LOCK, OciRuntime, PRIVATE, START_LOCK};
pub use reply::Reply;
pub use runtime_command::RuntimeCommand;
pub use socket::{SOCKET_NAME, SocketError, accept, bind, connect, socket_path, sweep};

/// Major version of the contract. Each side refuses a peer with another one.
pub const MAJOR: u32 = 1;
/// Minor version of the contract, raised for additions that the other side may ignore.
///
/// 1.1: `Upgrade`. 1.2: `MakeNamespaces`, `PodInit` with a user namespace. 1.3: `Ping`. 1.4: `Holding::user_namespace`.
/// 1.5: `Mounts`, `LogOptions::awaited`. 1.6: `Failure::command` and `Failure::operation`. 1.7: `LogOptions::limit`, and
/// containers of OCI runtimes. 1.8: containers without a process of their own, `RuntimeCommand`, and
/// `Create::interpreter`. A request that the peer does not know breaks the connection, so send only requests of the
/// version in its `Welcome` or `Hello`.
pub const MINOR: u32 = 8;
/// First minor version of a monitor that creates containers with an OCI runtime.
pub const MINOR_OCI_RUNTIMES: u32 = 7;
/// First minor version of a monitor that keeps containers without a process of their own, and runs `RuntimeCommand`.
pub const MINOR_SHIMS: u32 = 8;
/// First minor version of a monitor that starts containers with an interpreter.
pub const MINOR_INTERPRETERS: u32 = 8;

/// Maximum number of mounts of one container.
pub const MOUNTS_MAX: usize = 4096;
