//! Versioned contract between the daemon and `pinion-agent`, the first process of a microVM's guest.
//!
//! A connection is a byte stream that the virtual machine monitor carries: a virtio-serial port whose name begins with
//! [`CONNECTION_PREFIX`], or a vsock connection. There may be several at a time; each is independent. What crosses it are
//! frames: the length in bytes as a little-endian `u32`, at most [`FRAME_MAX`], and as much JSON.
//!
//! ```text
//! daemon                                   agent
//!   │ ◀──────────────────────────── Hello  │  on every new connection
//!   │ Call { id, request } ──────────────▶ │  many at a time
//!   │ ◀───────────── Answer { id, result } │  in any order
//! ```
//!
//! All requests are answered at once, except [`Request::Wait`], which is answered when the process has exited. A process
//! that has exited is kept with its status until [`Request::Delete`], so that no exit is lost with a connection.
//!
//! The streams of a process are ports of their own, named in the request. They outlive connections: a container is
//! not disturbed while no daemon is running.
//!
//! Each side treats the other one as hostile: a frame that is too long or malformed ends the connection, nothing else.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod chunk;
mod frame;
mod message;
mod network;

pub use frame::{Decoder, FRAME_MAX, FrameError, encode};
pub use message::{
    Answer, Call, Capacity, Configuration, CreateContainer, Exec, Exit, Failure, FailureKind, Hello, ProcessId,
    ProcessState, Reply, Request, Statistics, Status, Streams,
};
pub use network::{Interface, Neighbor, Network, Route};

/// Version of the contract. The daemon refuses an agent of another version: kernel and agent are made from one
/// installation, and an old guest keeps its old agent until the pod ends.
pub const VERSION: u32 = 3;

/// Beginning of the name of a port that carries a connection.
pub const CONNECTION_PREFIX: &str = "agent-";

/// Beginning of the name of a port that carries a forwarded TCP connection.
pub const FORWARD_PREFIX: &str = "forward-";

/// Tag of the virtiofs file system with the files of all containers of the pod.
pub const SHARED_TAG: &str = "pod";

/// Where the agent mounts it. Paths in requests are absolute paths in the guest.
pub const SHARED: &str = "/run/pod";
