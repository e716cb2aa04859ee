//! Exec, attach and port-forward sessions over SPDY/3.1 and WebSocket. Independent of the CRI and of containers.
//!
//! ```text
//! Request ──url()──▶ http://127.0.0.1:port/exec/<token>          returned to the client
//!                                   │ GET or POST, Upgrade: SPDY/3.1 or websocket
//!                 Tokens ──take──▶ Request ──▶ handshake ──▶ 101
//!                                                              │
//!            spdy::Connection ─┐                               ▼
//!       websocket::Connection ─┴─ Inbox, Outlet ─▶ remote_command ─▶ Runtime::{exec, attach} ─▶ Session
//!                                                  forward::relay ─▶ Runtime::connect ─▶ a socket in the pod
//! ```
//!
//! [`Server`] listens and [`Runtime`] provides the sessions. A [`Request`] gets a token, which is random, valid for one
//! minute, and used up by the first connection that presents it. At most a thousand tokens can be unused.
//!
//! # Protocols
//! | session | SPDY/3.1 | WebSocket |
//! |---|---|---|
//! | exec, attach | `v4.channel.k8s.io`, `v3…`, `v2…`, `channel.k8s.io`, or none named | `v5.channel.k8s.io`, `v4…`, `base64.v4…` (also `v4.base64…`), `channel.k8s.io`, `base64…`, or none named |
//! | port-forward | `portforward.k8s.io`, or none named | `SPDY/3.1+portforward.k8s.io` (SPDY within), `v4.channel.k8s.io`, `v4.base64…`, or none named |
//!
//! # Invariants
//! * **A session is one future**: whatever ends it (its end, its client, the idle timeout, the daemon) drops all of it
//!   at once. No task, descriptor or exec'd process outlives it. An attached container does, because dropping its
//!   [`Session`] only detaches.
//! * **Memory is bounded.** Data of a client is buffered in an [inbox](channel) of a few pieces; while it is full the
//!   connection is not read, and TCP flow control makes the client wait. Data for a client is written before more is
//!   read from its source.
//! * **Frames are never interleaved**: a writer locks the connection for one frame; a write that is interrupted ends
//!   the connection.
//! * **Lengths are checked before memory is allocated** ([`spdy::Decoder`], [`websocket::Demultiplexer`]: pure
//!   functions of bytes, and fuzz targets).
//!
//! # Flow control in practice
//! SPDY/3.1 has windows, but the implementation in all Kubernetes clients (moby/spdystream) neither obeys nor opens
//! them. So the windows of a peer are ignored until it sends SETTINGS or WINDOW_UPDATE. From then on they are obeyed,
//! and all data that was sent before counts. Our own windows are opened as data is consumed.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod channel;
mod client;
mod counts;
mod forward;
mod handshake;
mod http;
mod link;
mod options;
mod pending;
mod piece;
mod remote_command;
mod request;
mod runtime;
mod server;
pub mod spdy;
mod state;
mod tokens;
pub mod websocket;

pub use counts::{Counts, KindCounts};
pub use forward::PORTS_MAX;
pub use options::Options;
pub use request::{Attach, Exec, PortForward, Request, Streams};
pub use runtime::{Control, Error, Reader, Runtime, Session, Writer};
pub use server::{BindError, Server};
pub use tokens::TokenError;
