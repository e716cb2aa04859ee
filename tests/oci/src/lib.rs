//! Runs the same test cases against several OCI runtimes, so that a failure on one of them shows which one is wrong.
//!
//! ```text
//! Runtime     the program, and how it must be called on this machine
//! Case        one case on one runtime: its directory, ids and cgroups, and the check for leftovers
//! Bundle      a root file system and a `config.json` that the case changes
//! Container   one id: create, start, state, exec, kill, delete
//! Outcome     exit code and output of a call
//! ```
//!
//! A case is a function that takes a [`Case`]; [`each_runtime!`] defines one test for each runtime, so that the list of
//! tests is the table of cases and runtimes. [`known_failure`] gives the reason if a case is known to fail with runc or
//! crun; an entry whose case passes is a failure too. `pinrun` has no entries.
//!
//! Specs are JSON here and not the types of crate `oci`, so that cases also cover properties that the types lack.
//!
//! # Requirements
//! Root; `runc` and `crun` in `/usr/bin`, `/usr/sbin` or below `/usr/local` (or the paths `PINION_OCI_RUNC` and
//! `PINION_OCI_CRUN`); `PINION_BIN`, the directory with `pinrun` (or the path `PINION_OCI_PINRUN`). crun 1.8 refuses
//! hybrid cgroups, so on such machines it is called in a new mount namespace without the v2 tree.

#![forbid(unsafe_code)]

mod bundle;
mod case;
mod cgroup;
mod console;
mod container;
mod known_failures;
mod leftovers;
mod mountinfo;
mod outcome;
mod probe;
mod reaper;
mod run;
mod runtime;

pub use bundle::{Bundle, change};
pub use case::{BackgroundProcess, Case};
pub use cgroup::Cgroup;
pub use console::{Agent, Console};
pub use container::Container;
pub use known_failures::{KNOWN_FAILURES, known_failure};
pub use mountinfo::{Mount, mounts_of};
pub use outcome::{Outcome, wait_until};
pub use probe::PROBE;
pub use run::run;
pub use runtime::Runtime;

/// Defines a test of each case for each runtime, such as `lifecycle::double_create::runc`.
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
