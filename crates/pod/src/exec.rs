//! Commands in containers, and clients that are attached to a container's own streams.

pub(crate) mod attach;
mod attached_input;
mod command;
pub(crate) mod exec_sync;
mod guest_command;
mod kill;
pub(crate) mod open;
mod request;
mod resolve;
mod session;
mod shim_command;
mod streams;
mod window;

pub use request::{ExecOutput, ExecRequest, SessionExit};
pub use session::{Session, SessionControl};
