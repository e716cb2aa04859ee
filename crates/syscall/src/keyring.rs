//! Session keyrings: keyctl(2).

use std::ffi::CStr;

use rustix::io::Errno;

/// `KEYCTL_JOIN_SESSION_KEYRING` of linux/keyctl.h.
const JOIN_SESSION_KEYRING: libc::c_ulong = 1;

/// Joins the session keyring with this name, or creates it (`KEYCTL_JOIN_SESSION_KEYRING`). The process loses access to
/// the keys of its former session keyring.
///
/// # Errors
/// `ENOSYS`: the kernel does not support keys; `EDQUOT`: the quota of the user is exceeded; `EACCES`, `EPERM`: refused
/// by a security policy.
pub fn join_session_keyring(name: &CStr) -> Result<(), Errno> {
    // SAFETY: the name is a C string that outlives the call, which reads nothing else.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, name.as_ptr()) };
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}
