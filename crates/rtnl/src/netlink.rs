//! A minimal netlink client: it encodes all messages of a request into one buffer and sends them in one system call.
//!
//! Sources: netlink(7), rtnetlink(7), `linux/netlink.h`.

mod batch;
mod reply;
mod socket;

pub use batch::Batch;
pub use reply::{attributes, find, text};
pub(crate) use socket::messages;
pub use socket::{Refusal, Socket};

/// The flag `NLM_F_REQUEST`.
pub const REQUEST: u16 = 0x1;
/// The flag `NLM_F_ACK`.
pub const ACK: u16 = 0x4;
/// The flag `NLM_F_DUMP`.
pub const DUMP: u16 = 0x300;
/// The flag `NLM_F_REPLACE`.
pub const REPLACE: u16 = 0x100;
/// The flag `NLM_F_EXCL`.
pub const EXCL: u16 = 0x200;
/// The flag `NLM_F_CREATE`.
pub const CREATE: u16 = 0x400;
