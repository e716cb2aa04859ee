//! Compiles seccomp profiles to BPF: the default profile, the compiler, and a cache by content.
//!
//! [`compile`] converts `linux.seccomp` of the runtime spec to an array of `struct sock_filter` with the same verdicts
//! as the filter of libseccomp with runc's patch (a test compares both for all numbers), which is shorter, and faster
//! to compile and to load: a binary search over ranges of numbers for each architecture.
//!
//! Compatible with runc, because existing profiles depend on it:
//! - names that are unknown on all supported architectures are ignored;
//! - a rule with the default action is ignored;
//! - two conditions on the same argument in one rule are alternatives;
//! - calls newer than the newest in the profile return `ENOSYS`, unless the default action permits them;
//! - if the flags are absent (not empty), the filter is loaded with `SECCOMP_FILTER_FLAG_SPEC_ALLOW`.
//!
//! Intentionally different from libseccomp:
//! - a call of an architecture that is not in the profile kills the process, not only the thread;
//! - a rule that permits some arguments of `socket` and similar calls does not permit all arguments for i386 programs
//!   through `socketcall`;
//! - if conditions of several rules for one call match, the first rule applies, while libseccomp uses its own order;
//! - calls are known up to Linux 7, independently of the libseccomp version of the machine, which is not needed.
//!
//! ```
//! let profile = seccomp::default_profile(&["CAP_NET_BIND_SERVICE".to_owned()]);
//! let program = seccomp::compile(&profile)?;
//! assert_eq!(seccomp::Program::from_bytes(&program.to_bytes())?, program);
//! # Ok::<(), seccomp::Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod arch;
mod assemble;
mod cache;
mod compile;
mod default_profile;
mod error;
mod policy;
mod program;
mod rule;

pub mod supported;

#[cfg(test)]
mod tests;

pub use arch::system_call_name;
pub use cache::Cache;
pub use compile::compile;
pub use default_profile::default_profile;
pub use error::{Error, ErrorKind};
pub use program::Program;
