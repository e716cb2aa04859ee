//! A program entry without that of the standard library, for programs that run for a millisecond.
//!
//! Before `main`, `std` makes about twenty system calls: it installs an alternate signal stack and handlers for stack
//! overflows, ignores `SIGPIPE`, and reads the bounds of the stack from `/proc/self/maps`. This entry only makes sure
//! that no other file is opened as a standard descriptor that the caller has closed.

use std::io::Write;

/// Defines `main` of a program: `program_entry!(run)` with `fn run() -> u8`, in a crate with `#![no_main]`.
///
/// `SIGPIPE` terminates such a program, as it does a C program.
#[macro_export]
macro_rules! program_entry {
    ($run:path) => {
        /// The function that the C library calls.
        #[unsafe(no_mangle)]
        pub extern "C" fn main() -> i32 {
            $crate::entry::start($run)
        }
    };
}

/// Runs the program and exits with its exit code.
pub fn start(run: impl FnOnce() -> u8) -> ! {
    if open_standard_descriptors().is_err() {
        crate::clone::exit_now(1);
    }
    let code = run();
    // A failure to write the output cannot be reported anymore.
    let _ = std::io::stdout().flush();
    crate::clone::exit_now(i32::from(code));
}

/// Opens `/dev/null` for each of the descriptors 0, 1 and 2 that is closed.
fn open_standard_descriptors() -> std::io::Result<()> {
    let mut fds = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: `fds` has three entries and outlives the call.
    if unsafe { libc::poll(fds.as_mut_ptr(), 3, 0) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    for closed in fds.iter().filter(|fd| fd.revents & libc::POLLNVAL != 0) {
        // SAFETY: the path is a C string. The lowest free number is the closed one, as they are checked in order.
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
    fn open_descriptors_are_not_changed() {
        let before = std::fs::read_link("/proc/self/fd/0").expect("read the link of stdin");
        super::open_standard_descriptors().expect("open the standard descriptors");
        assert_eq!(std::fs::read_link("/proc/self/fd/0").expect("read the link of stdin"), before);
    }
}
