//! The window of a terminal.

use std::sync::Arc;

use rustix::termios::Winsize;

use crate::{Error, container::shim, error::failed, stdio::Terminal, store::Container};

/// What the size of a terminal is changed with.
#[derive(Clone)]
pub(super) enum Window {
    /// The master of the terminal.
    Terminal(Arc<Terminal>),
    /// The shim of a container, for a process in it; an empty id stands for the first one.
    Shim(Arc<Container>, String),
}

impl Window {
    /// Changes its size; does nothing if the terminal is closed.
    pub(super) async fn resize(&self, size: oci::TerminalSize) -> Result<(), Error> {
        match self {
            Self::Shim(container, exec) => shim::resize(container, exec, size).await,
            Self::Terminal(terminal) => {
                let Some(master) = terminal.master() else { return Ok(()) };
                let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
                rustix::termios::tcsetwinsize(master, size).map_err(failed("resize the terminal"))
            }
        }
    }
}
