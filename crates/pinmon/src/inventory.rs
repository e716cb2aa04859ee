//! Entries of `Inventory`.

use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use monitor_api::{Attachments, CodecError, Envelope, Frame, Holding, HoldingState, LogOptions, Reply, Role};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::{child::Child, monitor::Monitor, programs::Filter, stream::StreamKind};

impl Monitor {
    /// Encodes the entry of a container. `None`: it was removed, or is not set up yet.
    pub(crate) fn holding_frame(&self, seq: u64, serial: u64) -> Option<Result<Frame, CodecError>> {
        let child = self.containers.get(&serial)?;
        let filter = match &child.filter {
            Filter::Known(Some(program)) => match program_file(program) {
                Ok(file) => Some(file),
                Err(source) => return Some(Err(CodecError::Io { operation: "write a seccomp program", source })),
            },
            _ => None,
        };
        let mut files = descriptors(child);
        files.extend(filter.as_ref().map(|file| (Role::Seccomp, file.as_fd())));
        Some(frame(seq, child.holding()?, files))
    }

    /// Encodes the entry of a key. `None`: it was released.
    pub(crate) fn key_frame(&self, seq: u64, key: &str) -> Option<Result<Frame, CodecError>> {
        let files = self.keyed_descriptors.get(key)?;
        let holding = Holding {
            id: key.to_owned(),
            sandbox: String::new(),
            cgroup: String::new(),
            pid: 0,
            start_time: 0,
            log: LogOptions::default(),
            state: HoldingState::Kept,
            hooks: None,
            user_namespace: None,
        };
        Some(frame(seq, holding, (0..).map(Role::Kept).zip(files.iter().map(AsFd::as_fd)).collect()))
    }
}

/// Returns descriptors and roles as in `Adopt`.
fn descriptors(child: &Child) -> Vec<(Role, BorrowedFd<'_>)> {
    let stream = |kind| child.output.stream(kind).filter(|_| child.output.terminal().is_none()).map(|s| s.file.as_fd());
    let list = [
        (Role::Pidfd, child.pidfd()),
        (Role::Sync, child.setup().map(container::ContainerSetup::sync)),
        (Role::StdoutRead, stream(StreamKind::Stdout)),
        (Role::StderrRead, stream(StreamKind::Stderr)),
        (Role::StdinHold, child.stdin.as_ref().map(AsFd::as_fd)),
        (Role::Log, child.output.log.as_ref().map(AsFd::as_fd)),
        (Role::Terminal, child.output.terminal().map(AsFd::as_fd)),
    ];
    list.into_iter().filter_map(|(role, fd)| fd.map(|fd| (role, fd))).collect()
}

/// Writes the seccomp program to a memfd: a monitor that adopts the container needs it for execs.
fn program_file(program: &seccomp::Program) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"seccomp", MemfdFlags::CLOEXEC)?);
    file.write_all(&program.to_bytes())?;
    Ok(file.into())
}

fn frame(seq: u64, holding: Holding, files: Vec<(Role, BorrowedFd<'_>)>) -> Result<Frame, CodecError> {
    let mut attachments = Attachments::new();
    for (role, fd) in files {
        let fd =
            fd.try_clone_to_owned().map_err(|source| CodecError::Io { operation: "duplicate a descriptor", source })?;
        attachments.push(role, fd);
    }
    Frame::new(Envelope::Reply { seq, body: Ok(Reply::Holding(Box::new(holding))), roles: Vec::new() }, attachments)
}
