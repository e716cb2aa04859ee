//! A program that is not in the root file system and runs the container's command, which is not a program for this
//! machine: a WebAssembly module.

use std::ffi::CString;

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::{FdFlags, fcntl_setfd},
};
use syscall::exec::StringArray;

use crate::{Error, error::During, spec_string::c_string};

/// A program that is executed in place of the process's, by its descriptor (execveat(2), which the seccomp profile must
/// allow), with the arguments `arguments… [--code-fd=N] -- process.args…`.
#[derive(Debug)]
pub struct Interpreter {
    /// The program. A process in the container can open it through `/proc/<pid>/exe`, so it must be a file on a
    /// read-only mount, or sealed.
    pub program: OwnedFd,
    /// Its first arguments, from `argv[0]` on.
    pub arguments: Vec<String>,
    /// A file that it inherits, as descriptor N. For the same reason on a read-only mount, or sealed.
    pub code: Option<OwnedFd>,
}

/// An interpreter with all of its arguments.
#[derive(Debug)]
pub(crate) struct Invocation {
    interpreter: Interpreter,
    arguments: StringArray,
}

impl Interpreter {
    /// Adds the arguments of the process.
    pub(crate) fn invoke(self, process: &[CString]) -> Result<Invocation, Error> {
        let code = self.code.as_ref().map(|code| format!("--code-fd={}", code.as_raw_fd()));
        let own = self.arguments.iter().chain(&code).map(|argument| c_string("interpreter", argument));
        let mut arguments = own.collect::<Result<Vec<_>, _>>()?;
        arguments.push(c"--".into());
        arguments.extend_from_slice(process);
        Ok(Invocation { interpreter: self, arguments: StringArray::new(arguments) })
    }
}

impl Invocation {
    /// Returns the descriptors that the child needs until execve.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.interpreter.program.as_fd()].into_iter().chain(self.interpreter.code.as_ref().map(AsFd::as_fd))
    }

    /// Marks the code to be inherited.
    pub(crate) fn inherit(&self) -> Result<(), Error> {
        match &self.interpreter.code {
            Some(code) => fcntl_setfd(code, FdFlags::empty()).during(|| "let the interpreter inherit the code"),
            None => Ok(()),
        }
    }

    /// Executes the interpreter; returns only with an error.
    pub(crate) fn execute(&self, environment: &StringArray) -> Error {
        let program = self.interpreter.program.as_fd();
        let cause = syscall::exec::execve_file(program, &self.arguments, environment);
        let name = self.interpreter.arguments.first().map_or("", String::as_str);
        Error::system(format!("execute the interpreter {name:?} by its descriptor"), cause)
    }
}
