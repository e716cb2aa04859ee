//! Fuzz targets for the parsers of untrusted input.
//!
//! Each function takes bytes and panics if a property of its parser does not hold. The fuzz targets call them with
//! inputs from libFuzzer; `tests/replay.rs` calls them with the seeds and random changes of the seeds, so that `make
//! test` runs them without a fuzzer.
//!
//! ```text
//! spec.rs         bytes → oci::Spec → container::Plan: an error or a plan; serialising loses nothing
//! seccomp.rs      bytes → a profile → a filter that agrees with the reference evaluation of the profile
//! dns.rs          bytes → a query of DNS: refused, or answered within 512 bytes
//! spdy.rs         bytes → frames: bounded and deterministic
//! websocket.rs    bytes → data of channels: independent of how the bytes are split
//! answers.rs      bytes of an agent → its introduction, answers to requests: errors are bounded and printable
//! calls.rs        bytes of the daemon → calls to the agent: independent of how the bytes are split; serialising loses nothing
//! qmp.rs          lines → what the driver of QEMU receives: errors are bounded and printable
//! reference.rs    a simple evaluation of seccomp profiles
//! bpf.rs          the kernel's check of a filter, and an interpreter
//! ```

#![forbid(unsafe_code)]

mod answers;
mod bpf;
mod calls;
mod dns;
mod qmp;
mod reference;
mod seccomp;
mod spdy;
mod spec;
mod websocket;

pub use answers::answers;
pub use calls::calls;
pub use dns::dns;
pub use qmp::qmp;
pub use seccomp::seccomp;
pub use spdy::spdy;
pub use spec::spec;
pub use websocket::websocket;
