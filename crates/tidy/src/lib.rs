//! The style of this repository, as tests.
//!
//! Each rule is one file under `tests/`; this library reads the sources. A rule names the trouble that caused it, so
//! that whoever trips over it can judge whether the rule or the code is wrong.

#![forbid(unsafe_code)]

mod function;
mod source;

pub use function::{Function, functions};
pub use source::{Source, rust_sources, tracked_files, workspace_root};
