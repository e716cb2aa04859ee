//! Exec, attach and port-forward to a client, over SPDY/3.1 and WebSocket. Knows neither the CRI nor containers.
//!
//! ```text
//! Request ──url()──▶ http://127.0.0.1:port/exec/<token>          the client is told this
//!                                   │ GET or POST, Upgrade: SPDY/3.1 or websocket
//!                 Tokens ──take──▶ Request ──▶ handshake ──▶ 101
//!                                                              │
//!            spdy::Connection ─┐                               ▼
//!       websocket::Connection ─┴─ Inbox, Outlet ─▶ command::run   ─▶ Runtime::{exec, attach} ─▶ Session
//!                                                  forward::relay ─▶ Runtime::connect ─▶ a socket in the pod
//! ```
//!
//! [`Server`] listens, [`Runtime`] is what it serves, and a [`Request`] is worth one token: random, valid for a minute,
//! taken by the first connection that names it, at most a thousand in waiting.
//!
//! # What is spoken
//! | what | SPDY/3.1 | WebSocket |
//! |---|---|---|
//! | exec, attach | `v4.channel.k8s.io`, `v3…`, `v2…`, `channel.k8s.io`, or none named | `v5.channel.k8s.io`, `v4…`, `base64.v4…` (also `v4.base64…`), `channel.k8s.io`, `base64…`, or none named |
//! | port-forward | `portforward.k8s.io`, or none named | `SPDY/3.1+portforward.k8s.io` (SPDY within), `v4.channel.k8s.io`, `v4.base64…`, or none named |
//!
//! # Rules that hold here
//! * **A session is one future**: whatever ends it (its end, its client, idleness, the daemon) drops all of it at once.
//!   No task, descriptor or command outlives it; an attached container does, for dropping its [`Session`] only
//!   detaches.
//! * **Memory is bounded.** What a client sends waits in an [inbox](channel) of a few pieces; when it is full the
//!   connection is not read, and TCP tells the client to wait. What goes to a client is written before more is read
//!   from its source.
//! * **Frames are never mixed**: who writes holds the connection for one frame, in turns; a write that is cut off ends
//!   the connection.
//! * **Lengths are checked before memory is taken** ([`spdy::Decoder`], [`websocket::Demultiplexer`]: pure functions of
//!   bytes, and fuzz targets).
//!
//! # Flow control, as it is in the field
//! SPDY/3.1 has windows, but the one implementation behind every Kubernetes client (moby/spdystream) neither obeys nor
//! opens them. So a peer is held to have no windows until it sends SETTINGS or WINDOW_UPDATE; from then on they are
//! obeyed, with everything counted that was sent before. We open ours as pieces are consumed.

#![forbid(unsafe_code)]

mod channel;
mod command;
mod counts;
mod forward;
mod handshake;
mod http;
mod link;
mod request;
mod runtime;
mod server;
pub mod spdy;
mod tokens;
mod undecided;
pub mod websocket;

pub use counts::{Counts, KindCounts};
pub use forward::PORTS_MAX;
pub use request::{Attach, Exec, PortForward, Request, Streams};
pub use runtime::{Control, Error, Reader, Runtime, Session, Size, Writer};
pub use server::{BindError, Options, Server};
pub use tokens::TooMany;
