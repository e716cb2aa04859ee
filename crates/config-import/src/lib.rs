//! Translates configuration files of containerd and CRI-O to Pinion's.
//!
//! ```text
//! config.toml, its imports        ┐                  rules: key → treatment
//! crio.conf, crio.conf.d          ├─▶ settings ──▶ becomes KEY │ needs nothing │ not served │ unknown
//! registries.conf, certs.d        ┘   (source.rs)              (rule.rs, apply.rs)
//!                                                     │
//!                                                     ▼
//!                                    Import: one finding for each key, and the text of a file
//! ```
//!
//! The translation is a table of rules for each engine, one for each key of its reference (`rules()`), which
//! `docs/migration.md` lists; a test compares. A value that is the default of its engine and that Pinion has no key for
//! is reported as the same behaviour; any other value of such a key is reported as not served, with the reason. A key
//! without a rule is reported as unknown: nothing is dropped silently.
//!
//! Files are bounded in size, number and depth. Only values of keys that are translated are kept: a password in a key
//! that is not appears nowhere. Whether Pinion accepts a translated value is checked by the caller, which owns the
//! types of the configuration.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod apply;
mod containerd;
mod convert;
mod crio;
mod document;
mod engine;
mod finding;
mod handlers;
mod hosts;
mod key;
mod rule;
mod source;
mod wildcard;

pub use document::document;
pub use engine::{Engine, import, rules};
pub use finding::{Finding, Import, Outcome};
pub use rule::{Conversion, Part, Rule, Treatment};
pub use source::ImportError;
