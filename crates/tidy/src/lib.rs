//! The style of this repository, as tests.
//!
//! Each rule is one file under `tests/`; this library reads the sources. A rule names the problem that caused it, so
//! that the reader of a failure can judge whether the rule or the code is wrong.

#![forbid(unsafe_code)]

mod function;
mod modules;
mod source;

pub use function::{Function, functions};
pub use modules::{Cycle, ModulePath, cycles};
pub use source::{Source, rust_sources, tracked_files, workspace_root};
