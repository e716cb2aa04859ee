//! The contract between the daemon (`pinion`) and the monitor (`pinmon`): two processes of different lifetimes.
//!
//! One `SOCK_SEQPACKET` Unix connection carries [`Envelope`]s as JSON, with file descriptors attached (`SCM_RIGHTS`).
//! The daemon sends [`Request`]s, each with a sequence number; the monitor answers each with one [`Reply`] of the same
//! number, and sends [`Event`]s of its own accord. A frame whose JSON is longer than [`INLINE_MAX`] travels in a sealed
//! memfd that is attached first.
//!
//! ```text
//! daemon                                  monitor
//!   │ Hello{major, minor} ───────────────▶ │  refuses another major version
//!   │ ◀──────────────── Welcome{instance}  │
//!   │ Inventory ─────────────────────────▶ │  what do you hold? (after a daemon's restart)
//!   │ ◀─ Holding × n, then Done            │
//!   │ Adopt × n (descriptors) ───────────▶ │  here is what you must hold (after a monitor's death)
//!   │ Mounts × n (descriptors) ──────────▶ │  only where they are too many for one message
//!   │ Create (descriptors) ──────────────▶ │  cgroup, clone3; the child sets itself up and waits
//!   │ ◀───── Created + pidfd, sync, tty    │
//!   │ Start ─────────────────────────────▶ │  one byte; answers when execve succeeded or failed
//!   │ ◀──────────────────────── Done       │
//!   │ ◀─────────────── Event::Exited       │
//!   │ Delete ────────────────────────────▶ │  cgroup removed, record forgotten
//! ```
//!
//! The two meet on [`socket_path`]: the daemon [`connect`]s, and where no monitor answers it [`bind`]s and starts one.
//!
//! Every request is idempotent or says `AlreadyExists`, so that a daemon that died between request and reply can ask
//! again.

#![forbid(unsafe_code)]

mod attach;
mod codec;
mod failure;
mod heartbeat;
mod hooks;
mod message;
mod socket;

pub use attach::{Attachments, Role};
pub use codec::{CodecError, Connection, FRAME_FDS_MAX, FRAME_MAX, Frame, INLINE_MAX};
pub use failure::{Failure, FailureKind};
pub use heartbeat::{LogDevice, Pong, StuckWriter};
pub use hooks::HeldHooks;
pub use message::{
    Adopt, Attach, Create, Created, Envelope, Event, Exec, ExecStarted, ExitStatus, Holding, HoldingState, Kill,
    KillScope, LogOptions, MakeNamespaces, PodInit, PodInitStarted, Reply, Request, Target, TerminalSize, UserMappings,
    Welcome,
};
pub use socket::{SOCKET_NAME, SocketError, accept, bind, connect, socket_path, sweep};

/// Major version of the contract: each side refuses another one.
pub const MAJOR: u32 = 1;
/// Minor version: raised when something was added that the other side may ignore.
///
/// 1.1: `Upgrade`. 1.2: `MakeNamespaces`, `PodInit` with a user namespace. 1.3: `Ping`. 1.4: `Holding::user_namespace`.
/// 1.5: `Mounts`, `LogOptions::awaited`. A request that the other side does not know breaks the connection: ask only
/// what its `Welcome` or `Hello` allows.
pub const MINOR: u32 = 5;

/// Most mounts of one container.
pub const MOUNTS_MAX: usize = 4096;
