//! A session keyring of the container's own, so that it does not have its caller's keys.

use std::ffi::CString;

use rustix::io::Errno;

use crate::{arguments::Global, failure::warn};

/// Joins the container's, which the process that is cloned then inherits. Without it the container has the caller's: as
/// with other runtimes this is a warning.
///
/// `label` is the SELinux label of the process, which a new keyring gets too: with this program's own the container
/// could not use it. The label goes with execve.
pub(crate) fn join(global: &Global, id: &str, label: Option<&str>) {
    let Ok(name) = CString::new(format!("_ses.{id}")) else { return };
    if let Some(label) = label.filter(|label| !label.is_empty())
        && let Err(error) = std::fs::write("/proc/self/attr/keycreate", label)
    {
        warn(global, &format!("label the session keyring {label:?}: {error}"));
    }
    match syscall::keyring::join_session_keyring(&name) {
        // Kernels without keys have none to be kept from anybody.
        Ok(()) | Err(Errno::NOSYS) => {}
        Err(errno) => warn(global, &format!("the container has its caller's session keyring: {errno}")),
    }
}
