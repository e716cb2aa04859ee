//! User namespaces: which one a container has, and the maps of a new one.

use std::{ffi::CString, io::Read};

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{CWD, Mode, OFlags, accessat, openat},
    net::{RecvFlags, recv},
    pipe::{PipeFlags, pipe_with},
    process::{WaitId, WaitIdOptions, WaitOptions, getegid, geteuid, waitid, waitpid},
    thread::{CapabilitySet, UnshareFlags},
};
use syscall::clone::Clone3;

use crate::{
    Error, capabilities,
    error::During,
    id_mappings::{IdMappings, lines},
    sync,
    text::c_string,
};

/// The container's.
#[derive(Debug)]
pub(crate) enum UserNamespace {
    /// The caller's.
    Same,
    /// A new one with these maps.
    New(IdMappings),
    /// This one, and its maps where the spec tells them.
    Join(OwnedFd, Option<IdMappings>),
}

impl UserNamespace {
    /// Whether it is another one than the caller's.
    pub(crate) fn is_other(&self) -> bool {
        !matches!(self, Self::Same)
    }

    /// Its maps, where they are known.
    pub(crate) fn mappings(&self) -> Option<&IdMappings> {
        match self {
            Self::New(mappings) | Self::Join(_, Some(mappings)) => Some(mappings),
            _ => None,
        }
    }
}

/// Most mappings that a message shows: there may be 340.
const SHOWN_MAX: usize = 4;

/// One map of a user namespace.
struct Map<'a> {
    /// In `/proc/<pid>`.
    file: &'static str,
    /// Writes it for users without privileges (shadow's uidmap package).
    helper: &'static str,
    /// Of the specification, for errors.
    field: &'static str,
    lines: &'a [oci::IdMapping],
    /// The caller's own id.
    own: u32,
}

/// In the parent: writes the maps of the user namespace that `pid` made. Who has the privileges writes them; who has
/// not may map the own ids, and for more needs `newuidmap` and `newgidmap`, which ask `/etc/subuid` and `/etc/subgid`.
pub(crate) fn write_maps(mappings: &IdMappings, pid: i32) -> Result<(), Error> {
    let own = capabilities::own()?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let uids =
        Map { file: "uid_map", helper: "newuidmap", field: "linux.uidMappings", lines: &mappings.uids, own: uid };
    let gids =
        Map { file: "gid_map", helper: "newgidmap", field: "linux.gidMappings", lines: &mappings.gids, own: gid };
    if own.contains(CapabilitySet::SETUID) {
        uids.write(pid)?
    } else {
        uids.write_as_user(pid)?
    }
    if own.contains(CapabilitySet::SETGID) { gids.write(pid) } else { gids.write_as_user(pid) }
}

impl Map<'_> {
    fn write(&self, pid: i32) -> Result<(), Error> {
        // In one write, as the kernel wants it.
        std::fs::write(format!("/proc/{pid}/{}", self.file), lines(self.lines))
            .during(|| format!("{}: write {:?} to {} of the new user namespace", self.field, self.shown(), self.file))
    }

    fn write_as_user(&self, pid: i32) -> Result<(), Error> {
        if !matches!(self.lines, [line] if line.size == 1 && line.host_id == self.own) {
            return self.help(pid);
        }
        if self.file == "gid_map" {
            // Or a process could leave a group that a file denies something to (user_namespaces(7)).
            std::fs::write(format!("/proc/{pid}/setgroups"), "deny").during(|| "deny setgroups")?;
        }
        self.write(pid)
    }

    fn help(&self, pid: i32) -> Result<(), Error> {
        let program = find(self.helper).ok_or_else(|| {
            Error::invalid(format!(
                "{}: more than the own id is mapped, and {} is not installed (Debian: uidmap)",
                self.field, self.helper
            ))
        })?;
        let mut words = vec![self.helper.to_owned(), pid.to_string()];
        for line in self.lines {
            words.extend([line.container_id, line.host_id, line.size].map(|number| number.to_string()));
        }
        let words = words.iter().map(|word| c_string(self.field, word)).collect::<Result<Vec<_>, _>>()?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).during(|| "make a pipe")?;
        let null =
            openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).during(|| "open /dev/null")?;
        let started = syscall::spawn::spawn(&program, &words, &[], &[null.as_fd(), null.as_fd(), write.as_fd()])
            .during(|| format!("execute {program:?}"))?;
        drop(write);
        let mut said = String::new();
        // What it says beyond that is no reason.
        let _ = std::fs::File::from(read).take(1024).read_to_string(&mut said);
        let status = waitpid(Some(started), WaitOptions::empty()).during(|| format!("wait for {program:?}"))?;
        if status.is_some_and(|(_, status)| status.exit_status() == Some(0)) {
            return Ok(());
        }
        Err(Error::invalid(format!("{}: {} {}: {}", self.field, self.helper, self.shown(), said.trim())))
    }

    /// For messages: the first, and how many there are.
    fn shown(&self) -> String {
        let first = &self.lines[..self.lines.len().min(SHOWN_MAX)];
        let text = lines(first).trim_end().replace('\n', ", ");
        match self.lines.len() {
            ..=SHOWN_MAX => text,
            all => format!("{text}, … ({all} mappings)"),
        }
    }
}

/// As execvp(3) of a sane PATH.
fn find(program: &str) -> Option<CString> {
    let directories = ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"];
    let paths = directories.iter().filter_map(|directory| CString::new(format!("{directory}/{program}")).ok());
    let executable = rustix::fs::Access::EXEC_OK;
    { paths }.find(|path| accessat(CWD, path.as_c_str(), executable, rustix::fs::AtFlags::empty()).is_ok())
}

/// A user namespace with these maps that nobody is in.
pub(crate) fn make(mappings: &IdMappings) -> Result<OwnedFd, Error> {
    let (ours, childs) = sync::pair()?;
    let end = ours.as_raw_fd();
    let child = Clone3 { namespaces: Some(UnshareFlags::NEWUSER), ..Clone3::default() }
        .fork(|| {
            // Its copy of the parent's end would keep it alive.
            let closed = syscall::descriptors::close_all_but(&mut [0, 1, 2, childs.as_raw_fd()]);
            debug_assert_ne!(end, childs.as_raw_fd());
            if closed.is_ok() {
                // Until the parent closes its end.
                let _ = recv(&childs, &mut [0u8; 1], RecvFlags::empty());
            }
            0
        })
        .during(|| "make a user namespace for id-mapped mounts")?;
    drop(childs);
    let made = write_maps(mappings, child.pid).and_then(|()| {
        let path = format!("/proc/{}/ns/user", child.pid);
        openat(CWD, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).during(|| format!("open {path}"))
    });
    drop(ours);
    waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)
        .during(|| "wait for the end of the user namespace's maker")?;
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_a_few_mappings() {
        let lines: Vec<_> = (0..340).map(|id| oci::IdMapping { container_id: id, host_id: id, size: 1 }).collect();
        let map = |lines| Map { file: "uid_map", helper: "newuidmap", field: "linux.uidMappings", lines, own: 0 };
        assert_eq!(map(&lines).shown(), "0 0 1, 1 1 1, 2 2 1, 3 3 1, … (340 mappings)");
        assert_eq!(map(&lines[..2]).shown(), "0 0 1, 1 1 1");
    }
}
