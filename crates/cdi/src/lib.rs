//! The Container Device Interface: vendors describe in files how a container must be changed to use their devices.
//!
//! ```text
//! /etc/cdi/*.{json,yaml}  ┐
//! /run/cdi/*.{json,yaml}  ┴─▶ Registry ── resolve(vendor.com/class=name, …) ──▶ Edits
//!      an invalid file is reported by problems() and does not affect devices of other files
//! ```
//!
//! A *kind* is `vendor.com/class`; a *device* is a name within a kind, and `vendor.com/class=name` its fully-qualified
//! name. A file defines devices of one kind: the [`Edits`] of each device, and those for every container that uses any
//! of them.
//!
//! Directories are listed from the lowest to the highest priority: a device in `/run/cdi` overrides one of the same
//! name in `/etc/cdi`. Two devices with the same name in one directory are a conflict, and neither can be used.
//!
//! Directories are not watched: a [`Registry`] lists them whenever a device is resolved, which is once for each created
//! container with such a device, and reads files that have changed again.
//!
//! Source: <https://github.com/cncf-tags/container-device-interface>, `SPEC.md` 1.1.0; versions 0.3.0 to 1.1.0 are
//! supported. The files belong to the administrator, but their size is limited and they are validated as untrusted
//! input.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod check;
mod edits;
mod error;
mod file;
mod name;
mod registry;
mod spec;
mod version;

pub use edits::Edits;
pub use error::{Error, ErrorKind};
pub use name::Name;
pub use registry::Registry;
pub use spec::{DeviceNode, Hook, IntelRdt, Mount, NetDevice};
