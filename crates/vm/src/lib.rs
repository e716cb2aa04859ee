//! MicroVM sandboxes, host side: a pod in a kernel of its own.
//!
//! ```text
//! coupling      taps for the interfaces of a pod's network namespace, and the network as the guest configures it
//! guest         requests to the agent in the guest
//! guest_image   the distribution's kernel and an initramfs with the agent, made once per node
//! template      the saved state of a booted guest, from which others begin
//! qmp           the protocol of QEMU's monitor socket
//! vmm           the driver of a virtual machine monitor, as a trait
//! qemu          QEMU as such a driver, and its command line
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod coupling;
mod error;
pub mod guest;
pub mod guest_image;
pub mod qemu;
pub mod qmp;
pub mod template;
pub mod vmm;

pub use error::{Error, ErrorKind};
