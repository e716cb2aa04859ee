//! What the event loops of the monitor and of its log writers consist of: epoll, the tokens of its events, and timers.

mod epoll;
mod timer;
mod token;

pub(crate) use epoll::{Epoll, EpollEvent, POLL_INTERVAL};
pub(crate) use timer::{Timer, Timers};
pub(crate) use token::Token;
