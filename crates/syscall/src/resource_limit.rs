//! Resource limits of this process, with error handling: rustix assumes that `prlimit64` cannot fail, and returns
//! uninitialized memory if it does.

use std::io;

use rustix::process::{Resource, Rlimit};

/// Returns the limits of a resource (getrlimit(2)); `None` in the result means no limit.
///
/// # Errors
/// Those of a seccomp filter or a tracer; the kernel returns no error for a valid resource.
pub fn get(resource: Resource) -> io::Result<Rlimit> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit64 to `limit`, and reads nothing, as the new limit is null.
    let outcome = unsafe { libc::prlimit64(0, resource as _, std::ptr::null(), &raw mut limit) };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    let finite = |value: u64| (value != libc::RLIM64_INFINITY).then_some(value);
    Ok(Rlimit { current: finite(limit.rlim_cur), maximum: finite(limit.rlim_max) })
}

#[cfg(test)]
mod tests {
    use rustix::process::getrlimit;

    use super::*;

    #[test]
    fn limits_are_those_of_getrlimit() {
        for resource in [Resource::Nofile, Resource::Core, Resource::Stack, Resource::As, Resource::Rttime] {
            assert_eq!(get(resource).expect("read"), getrlimit(resource), "{resource:?}");
        }
    }
}
