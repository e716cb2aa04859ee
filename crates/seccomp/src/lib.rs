//! Seccomp profiles compiled to BPF: the default profile, a range compiler, a cache by content.
//!
//! [`compile`] turns `linux.seccomp` of the runtime spec into an array of `struct sock_filter` that decides as the
//! filter of libseccomp with runc's patch does (a test compares both over all numbers), but is shorter, quicker to make
//! and quicker to load: a binary search over ranges of numbers, per architecture.
//!
//! What is as in runc, because profiles in the field count on it:
//! - names that no architecture here has are ignored;
//! - a rule with the default action is ignored;
//! - two conditions on the same argument of one rule are alternatives;
//! - calls newer than any the profile names get `ENOSYS`, unless the default lets them through;
//! - where the flags are absent (not empty) the filter is loaded with `SECCOMP_FILTER_FLAG_SPEC_ALLOW`.
//!
//! What differs from libseccomp on purpose:
//! - a call of an architecture that is not named kills the process, not just its thread;
//! - a rule that permits some arguments of `socket` & co. does not permit all of them to i386 programs through
//!   `socketcall`;
//! - where conditions of rules for one call overlap the first rule wins, in libseccomp what it sorts first;
//! - calls are known up to Linux 7, whatever libseccomp the machine has, and libseccomp is not needed.
//!
//! ```
//! let profile = seccomp::default_profile(&["CAP_NET_BIND_SERVICE".to_owned()]);
//! let program = seccomp::compile(&profile)?;
//! assert_eq!(seccomp::Program::from_bytes(&program.to_bytes())?, program);
//! # Ok::<(), seccomp::Error>(())
//! ```

#![forbid(unsafe_code)]

mod arch;
mod assemble;
mod cache;
mod compile;
mod default_profile;
mod error;
mod policy;
mod program;
mod rule;
pub mod vocabulary;

#[cfg(test)]
mod tests;

pub use arch::system_call_name;
pub use cache::Cache;
pub use compile::compile;
pub use default_profile::default_profile;
pub use error::Error;
pub use program::Program;
