//! keyctl(2): session keyrings.

use std::ffi::CStr;

use rustix::io::Errno;

/// `KEYCTL_JOIN_SESSION_KEYRING` of linux/keyctl.h.
const JOIN_SESSION_KEYRING: libc::c_ulong = 1;

/// Joins the session keyring of this name, or a new one (`KEYCTL_JOIN_SESSION_KEYRING`): the caller's keys are no
/// longer the process's.
///
/// # Errors
/// `ENOSYS`: a kernel without keys; `EDQUOT`: the user has too many; `EACCES`, `EPERM`: a policy refuses.
pub fn join_session_keyring(name: &CStr) -> Result<(), Errno> {
    // SAFETY: the name is a C string that outlives the call, which reads nothing else.
    let done = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, name.as_ptr()) };
    match done {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}
