//! The terminal that this program runs on.

use std::{
    io::{self, IsTerminal, stdin, stdout},
    sync::{Mutex, PoisonError},
};

use pod::oci::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::Failure;

/// The terminal settings before the first [`Raw`]. The panic hook reads them, too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A guard for raw mode, in which every key is sent to the container as it is typed.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    /// Enters raw mode: no echo, no line editing, no signals from keys.
    pub(crate) fn enter() -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("set the terminal to raw mode: {}", io::Error::from(error)));
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal settings. Does nothing if they were not changed.
pub(crate) fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // The terminal may be gone; then there is nothing to restore.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// Installs a panic hook that restores the terminal, so that the user is not left without echo.
pub(crate) fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        report(panic);
    }));
}

/// Returns the size of the terminal on standard output, or `None` if it is not a terminal.
pub(crate) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(TerminalSize { width: size.ws_col, height: size.ws_row })
}

/// Whether standard input is a terminal.
pub(crate) fn is_input() -> bool {
    stdin().is_terminal()
}

/// Whether standard output is a terminal.
pub(crate) fn is_output() -> bool {
    stdout().is_terminal()
}
