//! Compiled seccomp programs. Containers with equal programs share one copy. Execs in a container get its program.

use std::rc::{Rc, Weak};

use monitor_api::{Failure, FailureKind};
use rustix::fd::OwnedFd;
use seccomp::Program;

/// Maximum length: the flags and BPF_MAXINSNS instructions of eight bytes.
const PROGRAM_MAX: usize = 4 + 4096 * 8;

/// Seccomp program of a container.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    /// This program, or none.
    Known(Option<Rc<Program>>),
    /// Unknown, because a monitor that died created the container.
    Unknown,
}

/// All programs in use.
#[derive(Debug, Default)]
pub(crate) struct Programs(Vec<Weak<Program>>);

impl Programs {
    /// Returns the shared copy of a program.
    pub(crate) fn share(&mut self, program: Program) -> Rc<Program> {
        self.0.retain(|weak| weak.strong_count() > 0);
        if let Some(known) = self.0.iter().filter_map(Weak::upgrade).find(|known| **known == program) {
            return known;
        }
        let program = Rc::new(program);
        self.0.push(Rc::downgrade(&program));
        program
    }

    /// Reads an attached memfd.
    pub(crate) fn read(&mut self, file: &OwnedFd) -> Result<Rc<Program>, Failure> {
        let invalid = |why: String| Failure::new(FailureKind::Invalid, format!("attached seccomp program: {why}"));
        let mut bytes = vec![0; PROGRAM_MAX + 1];
        let mut length = 0;
        loop {
            match rustix::io::pread(file, &mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(n) => length += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(invalid(format!("pread: {errno}"))),
            }
        }
        if length > PROGRAM_MAX {
            return Err(invalid(format!("longer than {PROGRAM_MAX} bytes")));
        }
        Program::from_bytes(&bytes[..length]).map(|program| self.share(program)).map_err(|e| invalid(e.to_string()))
    }
}
