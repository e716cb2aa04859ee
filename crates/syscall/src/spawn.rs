//! Starts a program from a large or multi-threaded process: posix_spawn(3).
//!
//! The child shares the caller's memory until execve (`CLONE_VFORK`), so the cost does not depend on the size of the
//! process, and no code of this crate runs in the child.

use std::{
    ffi::{CStr, CString, c_char},
    io,
    mem::MaybeUninit,
    ptr,
};

use rustix::{
    fd::{AsRawFd, BorrowedFd},
    process::Pid,
};

/// Starts a program in a new session, with an empty signal mask, default signal actions and these descriptors:
/// `files[n]` becomes descriptor `n`. All other descriptors must be close-on-exec.
///
/// # Errors
/// Errors of execve such as `ENOENT` and `EACCES`; `EAGAIN` for too many processes.
pub fn spawn(
    program: &CStr,
    arguments: &[CString],
    environment: &[CString],
    files: &[BorrowedFd<'_>],
) -> io::Result<Pid> {
    // The sources are first duplicated above all targets, because a target could otherwise overwrite a later source.
    let floor = i32::try_from(files.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let high = files.iter().map(|file| rustix::io::fcntl_dupfd_cloexec(file, floor)).collect::<Result<Vec<_>, _>>()?;
    let pointers = |strings: &[CString]| -> Vec<*mut c_char> {
        strings.iter().map(|s| s.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    let mut actions = MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit();
    let mut attributes = MaybeUninit::<libc::posix_spawnattr_t>::uninit();
    let mut pid = 0;
    // SAFETY: both objects are initialized by their init functions before any other use and destroyed once; all
    // pointers (program, NULL-terminated arrays of C strings, signal sets) outlive the call; the descriptors in `high`
    // stay open during the call.
    let outcome = unsafe {
        check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
        let result = check(libc::posix_spawnattr_init(attributes.as_mut_ptr())).and_then(|()| {
            let outcome = (|| {
                for (target, source) in (0..floor).zip(&high) {
                    let source = source.as_raw_fd();
                    check(libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), source, target))?;
                }
                let mut set = MaybeUninit::<libc::sigset_t>::uninit();
                libc::sigemptyset(set.as_mut_ptr());
                check(libc::posix_spawnattr_setsigmask(attributes.as_mut_ptr(), set.as_ptr()))?;
                libc::sigfillset(set.as_mut_ptr());
                check(libc::posix_spawnattr_setsigdefault(attributes.as_mut_ptr(), set.as_ptr()))?;
                let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID;
                check(libc::posix_spawnattr_setflags(attributes.as_mut_ptr(), flags as libc::c_short))?;
                check(libc::posix_spawn(
                    &raw mut pid,
                    program.as_ptr(),
                    actions.as_ptr(),
                    attributes.as_ptr(),
                    arguments.as_ptr(),
                    environment.as_ptr(),
                ))
            })();
            libc::posix_spawnattr_destroy(attributes.as_mut_ptr());
            outcome
        });
        libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
        result
    };
    outcome?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("posix_spawn returned pid 0"))
}

/// The value in glibc since 2.26 and in musl since 1.1.22.
const POSIX_SPAWN_SETSID: libc::c_int = 0x80;

fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use rustix::{
        fd::AsFd,
        pipe::{PipeFlags, pipe_with},
        process::{WaitOptions, waitpid},
    };

    use super::*;

    #[test]
    fn the_program_gets_the_descriptors_in_order() {
        let null = File::open("/dev/null").expect("open /dev/null");
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
        let script = c"readlink /proc/self/fd/0 >&3";
        let arguments = [c"sh".to_owned(), c"-c".to_owned(), script.to_owned()];
        let environment = [c"PATH=/usr/bin:/bin".to_owned()];
        let files = [null.as_fd(), null.as_fd(), null.as_fd(), write.as_fd()];
        let pid = spawn(c"/bin/sh", &arguments, &environment, &files).expect("spawn");
        drop(write);
        let mut output = String::new();
        File::from(read).read_to_string(&mut output).expect("read");
        waitpid(Some(pid), WaitOptions::empty()).expect("wait");
        assert_eq!(output, "/dev/null\n");
        let missing = spawn(c"/does/not/exist", &arguments, &environment, &[null.as_fd()])
            .expect_err("the program does not exist");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
