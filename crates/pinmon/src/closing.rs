//! Descriptors that the monitor must not close itself: masters of terminals, and pipes that are shared with containers.
//! This process never performs the last close of either.
//!
//! The last close of a master hangs up the terminal (`__tty_hangup`) and waits, uninterruptibly and without a limit,
//! for every process that is inside read(2) or write(2) on the slave. A process whose buffer cannot be paged in stays
//! there as long as a FUSE server or a holder of userfaultfd(2) does not answer. The last close of a pipe waits for its
//! lock (`closing/pipe.rs`). So other processes close them:
//!
//! ```text
//!  Terminal or Pipe dropped ─▶ CloseQueue ─end of the iteration─▶ clone: closer, with a copy of the descriptor
//!                                 │ no closer can be cloned: stays   │ waits until the monitor closed its copy
//!                                 │ open, retried by a timer         │ GRACE later: exits, which may hang in the kernel
//!                                 └──────────────────────────────────┘
//! ```
//!
//! A closer that hangs exits as soon as the process that it waits for is gone. Killing it, reaping it and the limit of
//! closers block nobody.

mod closers;
mod pipe;
mod queue;
mod terminal;

pub(crate) use closers::Closers;
pub(crate) use pipe::{Pipe, are_empty};
pub(crate) use queue::CloseQueue;
pub(crate) use terminal::{Terminal, take_unread_terminal};
