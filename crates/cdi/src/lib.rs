//! The Container Device Interface: what a device needs in a container, as its vendor has written it into a file.
//!
//! ```text
//! /etc/cdi/*.{json,yaml}  ┐
//! /run/cdi/*.{json,yaml}  ┴─▶ Registry ── resolve(vendor.com/class=name, …) ──▶ Edits
//!      a broken file is told by problems(), and is nobody else's trouble
//! ```
//!
//! A *kind* is `vendor.com/class`; a *device* is a name within a kind, and `vendor.com/class=name` its full name. A
//! file describes devices of one kind: the [`Edits`] of each, and those that every container gets which has any of
//! them.
//!
//! Directories are given from the lowest to the highest priority: a device of `/run/cdi` hides one of the same name in
//! `/etc/cdi`. Two of one name in the same directory are a conflict, and neither of them can be had.
//!
//! Nothing is watched: a [`Registry`] asks the kernel what its directories hold when a device is asked for, which is as
//! often as a container with such a device is made, and reads again what changed.
//!
//! Source: <https://github.com/cncf-tags/container-device-interface>, `SPEC.md` 1.1.0; versions 0.3.0 to 1.1.0 are
//! read. The files are the administrator's, but are bounded and checked as if they were not.

#![forbid(unsafe_code)]

mod check;
mod edits;
mod error;
mod file;
mod name;
mod registry;
mod spec;
mod version;

pub use edits::Edits;
pub use error::Error;
pub use name::Name;
pub use registry::Registry;
pub use spec::{DeviceNode, Hook, IntelRdt, Mount, NetDevice};
