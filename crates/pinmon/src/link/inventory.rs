//! Entries of `Inventory`.

use std::{
    fs::File,
    io::{self, Write},
};

use monitor_api::{Attachments, CodecError, Envelope, Frame, Holding, Reply, Role};
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{MemfdFlags, memfd_create},
};

/// Name of an entry: a container by its serial number, or a key.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Container(u64),
    Key(String),
}

/// Contents of an entry.
pub(crate) struct EntryContents<'a> {
    pub(crate) holding: Holding,
    /// Descriptors and roles as in `Adopt`.
    pub(crate) files: Vec<(Role, BorrowedFd<'a>)>,
    /// A monitor that adopts the container needs it for execs.
    pub(crate) program: Option<&'a seccomp::Program>,
}

impl EntryContents<'_> {
    /// Encodes the entry as the reply to request `seq`.
    pub(super) fn encode(self, seq: u64) -> Result<Frame, CodecError> {
        let failed = |operation| move |source: io::Error| CodecError::Io { operation, source };
        let program = self.program.map(program_file).transpose().map_err(failed("write a seccomp program"))?;
        let mut attachments = Attachments::new();
        for (role, fd) in self.files {
            attachments.push(role, fd.try_clone_to_owned().map_err(failed("duplicate a descriptor"))?);
        }
        program.into_iter().for_each(|file| attachments.push(Role::Seccomp, file));
        let body = Ok(Reply::Holding(Box::new(self.holding)));
        Frame::new(Envelope::Reply { seq, body, roles: Vec::new() }, attachments)
    }
}

/// Writes a seccomp program to a memfd.
fn program_file(program: &seccomp::Program) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"seccomp", MemfdFlags::CLOEXEC)?);
    file.write_all(&program.to_bytes())?;
    Ok(file.into())
}
