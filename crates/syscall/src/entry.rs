//! A program's entry without the standard library's: for programs that live for a millisecond.
//!
//! What `std` does before `main` (an alternate signal stack and handlers for stack overflows, `SIGPIPE` ignored, the
//! thread's bounds read from `/proc/self/maps`) is twenty system calls. Of it this keeps one: nothing is opened as a
//! standard descriptor that the caller had closed.

use std::io::Write;

/// Gives the program its `main`: `program_entry!(run)` with `fn run() -> u8`, in a crate with `#![no_main]`.
///
/// `SIGPIPE` ends such a program, as it does one in C.
#[macro_export]
macro_rules! program_entry {
    ($run:path) => {
        /// What the C library calls.
        #[unsafe(no_mangle)]
        pub extern "C" fn main() -> i32 {
            $crate::entry::start($run)
        }
    };
}

/// Runs the program and gives its exit code to the C library.
pub fn start(run: impl FnOnce() -> u8) -> ! {
    if open_standard_descriptors().is_err() {
        crate::clone::exit_now(1);
    }
    let code = run();
    // Nobody is left to be told that it could not be written.
    let _ = std::io::stdout().flush();
    crate::clone::exit_now(i32::from(code));
}

/// `/dev/null` in the place of each of 0, 1, 2 that is closed.
fn open_standard_descriptors() -> std::io::Result<()> {
    let mut fds = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: `fds` has three entries and outlives the call.
    if unsafe { libc::poll(fds.as_mut_ptr(), 3, 0) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    for closed in fds.iter().filter(|fd| fd.revents & libc::POLLNVAL != 0) {
        // SAFETY: the path is a C string; the lowest free number is the closed one, as they are looked at in order.
        let opened = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        if opened != closed.fd {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn open_descriptors_stay_as_they_are() {
        let before = std::fs::read_link("/proc/self/fd/0").expect("stdin is open");
        super::open_standard_descriptors().expect("all are open");
        assert_eq!(std::fs::read_link("/proc/self/fd/0").expect("still"), before);
    }
}
