//! Events of a run.

use std::io::{self, Write};

/// Reports an event on standard error. A terminal that is gone must not end a run.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
