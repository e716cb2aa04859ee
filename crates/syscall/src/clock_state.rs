//! Whether the clock is synchronized: adjtimex(2) without changes. rustix does not have it.

use std::io;

/// The state of the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Whether a daemon (chronyd, systemd-timesyncd, ntpd) keeps the clock synchronized.
    pub is_synchronized: bool,
    /// Estimated error in microseconds.
    pub estimated_error: i64,
}

/// Reads the state of the clock.
///
/// # Errors
/// Those of a seccomp filter; reading needs no privilege.
pub fn read() -> io::Result<ClockState> {
    // SAFETY: a timex of zeros is valid: `modes` 0 reads only.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one timex to `state`, which outlives the call.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        // TIME_ERROR and STA_UNSYNC both mean that nothing disciplines the clock.
        result => Ok(ClockState {
            is_synchronized: result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
            estimated_error: state.esterror,
        }),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_state_of_the_clock_is_readable() {
        let state = super::read().expect("no privilege is needed");
        assert!(state.estimated_error >= 0, "{state:?}");
    }
}
