//! The terminal this program runs on.

use std::{
    io::{self, IsTerminal, stdin, stdout},
    sync::{Mutex, PoisonError},
};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::Failure;

/// What the terminal was before the first [`Raw`]; also read by the panic hook.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// While it lives, every key goes to the container as it is typed.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    /// Switches echo, lines and signals off.
    pub(crate) fn enter() -> Result<Self, Failure> {
        let wrong = |error| Failure::new(format!("set the terminal raw: {}", io::Error::from(error)));
        let before = tcgetattr(stdin()).map_err(wrong)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(wrong)?;
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back; does nothing if it was never changed.
pub(crate) fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // The terminal may be gone; then there is nothing to put back.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// A panic must not leave people without an echo.
pub(crate) fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        report(panic);
    }));
}

/// Columns and rows of the terminal on standard output; `None` where there is none.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Whether people type here.
pub(crate) fn is_input() -> bool {
    stdin().is_terminal()
}

/// Whether people read here.
pub(crate) fn is_output() -> bool {
    stdout().is_terminal()
}
