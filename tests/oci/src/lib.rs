//! The same cases against several OCI runtimes: a case that fails on one of them shows who is wrong.
//!
//! ```text
//! Runtime     which program, and how it must be called on this machine
//! Case        one case on one runtime: its directory, ids and cgroups, and the check that nothing stays
//! Bundle      a root file system and a `config.json` that the case changes
//! Container   one id: create, start, state, exec, kill, delete
//! Outcome     how a call ended
//! ```
//!
//! A case is a function that takes a [`Case`]; [`each_runtime!`] makes one test of it for each runtime, so that the
//! list of tests is the table of cases and runtimes. Where a peer is known to differ, [`known`] says why, and an entry
//! that is no longer true fails. `pinrun` has no entry.
//!
//! Specs are JSON here, not the types of crate `oci`: what our types would forget, a case must still see.
//!
//! # What it needs
//! Root; `runc` and `crun` on the `PATH` (or named by `PINION_OCI_RUNC`, `PINION_OCI_CRUN`); `PINION_BIN`, the
//! directory with `pinrun` (or `PINION_OCI_PINRUN`). crun 1.8 refuses hybrid cgroups, so it is called in a mount
//! namespace of its own without the version 2 tree.

#![forbid(unsafe_code)]

mod bundle;
mod case;
mod cgroup;
mod console;
mod container;
mod known;
mod left;
mod mountinfo;
mod outcome;
mod probe;
mod reaper;
mod run;
mod runtime;

pub use bundle::{Bundle, change};
pub use case::{Case, Started};
pub use cgroup::Cgroup;
pub use console::{Agent, Console};
pub use container::Container;
pub use known::{KNOWN, known};
pub use mountinfo::{Mount, mounts_of};
pub use outcome::{Outcome, wait_until};
pub use probe::PROBE;
pub use run::run;
pub use runtime::Runtime;

/// Makes a test of each case for each runtime: `lifecycle::double_create::runc`.
#[macro_export]
macro_rules! each_runtime {
    ($($case:ident),+ $(,)?) => {$(
        mod $case {
            #[test]
            fn pinrun() {
                $crate::run($crate::Runtime::Pinrun, module_path!(), super::$case);
            }
            #[test]
            fn runc() {
                $crate::run($crate::Runtime::Runc, module_path!(), super::$case);
            }
            #[test]
            fn crun() {
                $crate::run($crate::Runtime::Crun, module_path!(), super::$case);
            }
        }
    )+};
}
