//! The window of a terminal.

use std::sync::{Arc, Weak};

use rustix::termios::Winsize;

use crate::{
    Error,
    container::{driver::Driver, shim, vm},
    error::failed,
    parts::Parts,
    stdio::Terminal,
    store::Container,
};

/// What the size of a terminal is changed with.
#[derive(Clone)]
pub(super) enum Window {
    /// The master of the terminal.
    Terminal(Arc<Terminal>),
    /// The shim of a container, for a process in it; an empty id stands for the first one.
    Shim(Arc<Container>, String),
    /// The guest of a container, for a process in it; an empty id stands for the first one.
    Guest(Weak<Parts>, Arc<Container>, String),
}

impl Window {
    /// Returns what changes the size of the terminal of a process in a container that is not driven by the monitor; an
    /// empty id stands for the first process. `None`: the monitor has the terminal.
    pub(super) fn remote(parts: &Weak<Parts>, container: &Arc<Container>, exec: &str) -> Option<Self> {
        match Driver::of(container) {
            Driver::Monitor => None,
            Driver::Shim => Some(Self::Shim(Arc::clone(container), exec.to_owned())),
            Driver::Vm => Some(Self::Guest(Weak::clone(parts), Arc::clone(container), exec.to_owned())),
        }
    }

    /// Changes its size; does nothing if the terminal is closed.
    pub(super) async fn resize(&self, size: oci::TerminalSize) -> Result<(), Error> {
        match self {
            Self::Shim(container, exec) => shim::resize(container, exec, size).await,
            Self::Guest(parts, container, exec) => {
                let Some(parts) = parts.upgrade() else { return Ok(()) };
                let exec = Some(exec.as_str()).filter(|exec| !exec.is_empty());
                vm::resize(&parts, container, exec, size).await
            }
            Self::Terminal(terminal) => {
                let Some(master) = terminal.master() else { return Ok(()) };
                let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
                rustix::termios::tcsetwinsize(master, size).map_err(failed("resize the terminal"))
            }
        }
    }
}
