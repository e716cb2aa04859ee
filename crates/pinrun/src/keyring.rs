//! A session keyring of the container's own, so that it does not have its caller's keys.

use std::ffi::CString;

use rustix::io::Errno;

use crate::{arguments::Global, failure::warn};

/// Joins the container's, which the process that is cloned then inherits. Without it the container has the caller's: as with
/// other runtimes this is a warning.
pub(crate) fn join(global: &Global, id: &str) {
    let Ok(name) = CString::new(format!("_ses.{id}")) else { return };
    match syscall::keyring::join_session_keyring(&name) {
        // Kernels without keys have none to be kept from anybody.
        Ok(()) | Err(Errno::NOSYS) => {}
        Err(errno) => warn(global, &format!("the container has its caller's session keyring: {errno}")),
    }
}
