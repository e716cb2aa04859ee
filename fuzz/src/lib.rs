//! What parses a stranger's bytes must neither panic nor be wrong.
//!
//! Each body takes bytes and panics if something does not hold; the fuzz targets hand them what libFuzzer finds, and
//! `tests/replay.rs` the seeds and what chance makes of them, so that `make test` runs them without a fuzzer.
//!
//! ```text
//! spec.rs         bytes → oci::Spec → container::Plan: an error or a plan, and nothing changed
//! seccomp.rs      bytes → a profile → a filter, which is compared with a plain reading of the profile
//! spdy.rs         bytes → frames: the same, bounded, however often they are read
//! websocket.rs    bytes → pieces of channels: the same, however they are cut
//! reading.rs      that plain reading
//! bpf.rs          the kernel's check of a filter, and its interpreter
//! ```

#![forbid(unsafe_code)]

mod bpf;
mod reading;
mod seccomp;
mod spdy;
mod spec;
mod websocket;

pub use seccomp::seccomp;
pub use spdy::spdy;
pub use spec::spec;
pub use websocket::websocket;
