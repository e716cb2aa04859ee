//! The session keyring of a container, which keeps the caller's keys out of the container.

use std::ffi::CString;

use rustix::io::Errno;

use crate::{arguments::Global, log::warn};

/// Joins the session keyring of the container, which the cloned process inherits. If that fails, the container has the
/// caller's keyring: as with other runtimes, this is only a warning.
///
/// `label` is the SELinux label of the process, which a new keyring gets, too: with the label of this program the
/// container could not use it. The kernel resets `keycreate` at execve.
pub(crate) fn join(global: &Global, id: &str, label: Option<&str>) {
    let Ok(name) = CString::new(format!("_ses.{id}")) else { return };
    if let Some(label) = label.filter(|label| !label.is_empty())
        && let Err(error) = std::fs::write("/proc/self/attr/keycreate", label)
    {
        warn(global, &format!("label the session keyring {label:?}: {error}"));
    }
    match syscall::keyring::join_session_keyring(&name) {
        // A kernel without keyrings has no keys to protect.
        Ok(()) | Err(Errno::NOSYS) => {}
        Err(errno) => warn(global, &format!("join a session keyring: {errno}; the container uses its caller's")),
    }
}
