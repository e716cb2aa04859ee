//! User namespaces of containers, becoming root in them, and writing the maps of new ones.

use std::{ffi::CString, io::Read};

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{CWD, Mode, OFlags, accessat, openat},
    io::Errno,
    net::{RecvFlags, recv},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitId, WaitIdOptions, WaitOptions, getegid, geteuid, waitid, waitpid},
    thread::{CapabilitySet, UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use syscall::clone::Clone3;

use crate::{
    Error, capabilities,
    error::During,
    id_mappings::{IdMappings, lines},
    spec_string::c_string,
    sync,
};

/// The container's user namespace.
#[derive(Debug)]
pub(crate) enum UserNamespace {
    /// The caller's.
    Same,
    /// A new one with these maps.
    New(IdMappings),
    /// An existing one, and its maps if the spec has them.
    Join(OwnedFd, Option<IdMappings>),
}

impl UserNamespace {
    /// Whether it is not the caller's.
    pub(crate) fn is_other(&self) -> bool {
        !matches!(self, Self::Same)
    }

    /// Returns its maps if they are known.
    pub(crate) fn mappings(&self) -> Option<&IdMappings> {
        match self {
            Self::New(mappings) | Self::Join(_, Some(mappings)) => Some(mappings),
            _ => None,
        }
    }
}

/// Becomes user and group 0 of the user namespace that was just entered, with all capabilities in it.
pub(crate) fn become_root_in_user_namespace(keep_groups: bool) -> Result<(), Error> {
    let (uid, gid) = (rustix::fs::Uid::ROOT, rustix::fs::Gid::ROOT);
    let dropped = if keep_groups { Ok(()) } else { set_thread_groups(&[]) };
    match dropped {
        // Denied where an unprivileged user made the namespace.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(Error::system("drop the supplementary groups", errno)),
    }
    let operation = |kind| format!("become {kind} 0 of the user namespace (is it mapped? the setup runs as it)");
    set_thread_res_gid(gid, gid, gid).during(|| operation("group"))?;
    set_thread_res_uid(uid, uid, uid).during(|| operation("user"))
}

/// Maximum number of mappings that an error message shows; a map may have 340.
const SHOWN_MAX: usize = 4;

/// One map of a user namespace.
struct Map<'a> {
    /// Its file in `/proc/<pid>`.
    file: &'static str,
    /// The program that writes it for unprivileged users (shadow's uidmap package).
    helper: &'static str,
    /// Its property in the specification, for errors.
    field: &'static str,
    lines: &'a [oci::IdMapping],
    /// The caller's id.
    callers_id: u32,
}

/// Writes the maps of the user namespace that `pid` made. Runs in the parent. A privileged caller writes any map. An
/// unprivileged caller may map its own ids; for other ids it needs `newuidmap` and `newgidmap`, which check
/// `/etc/subuid` and `/etc/subgid`.
pub(crate) fn write_maps(mappings: &IdMappings, pid: Pid) -> Result<(), Error> {
    let capabilities = capabilities::callers()?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let uids = Map {
        file: "uid_map",
        helper: "newuidmap",
        field: "linux.uidMappings",
        lines: &mappings.uids,
        callers_id: uid,
    };
    let gids = Map {
        file: "gid_map",
        helper: "newgidmap",
        field: "linux.gidMappings",
        lines: &mappings.gids,
        callers_id: gid,
    };
    if capabilities.contains(CapabilitySet::SETUID) {
        uids.write(pid)?
    } else {
        uids.write_as_user(pid)?
    }
    if capabilities.contains(CapabilitySet::SETGID) { gids.write(pid) } else { gids.write_as_user(pid) }
}

impl Map<'_> {
    fn write(&self, pid: Pid) -> Result<(), Error> {
        // The kernel requires a single write.
        std::fs::write(format!("/proc/{pid}/{}", self.file), lines(self.lines))
            .during(|| format!("{}: write {:?} to {} of the new user namespace", self.field, self.shown(), self.file))
    }

    fn write_as_user(&self, pid: Pid) -> Result<(), Error> {
        if !matches!(self.lines, [line] if line.size == 1 && line.host_id == self.callers_id) {
            return self.write_with_helper(pid);
        }
        if self.file == "gid_map" {
            // Otherwise a process could drop a group that a file's mode denies access to (user_namespaces(7)).
            std::fs::write(format!("/proc/{pid}/setgroups"), "deny").during(|| "deny setgroups")?;
        }
        self.write(pid)
    }

    fn write_with_helper(&self, pid: Pid) -> Result<(), Error> {
        let program = find(self.helper).ok_or_else(|| {
            Error::invalid(format!(
                "{}: maps ids other than the caller's, which needs {}, but it is not installed (Debian: uidmap)",
                self.field, self.helper
            ))
        })?;
        let mut arguments = vec![self.helper.to_owned(), pid.to_string()];
        for line in self.lines {
            arguments.extend([line.container_id, line.host_id, line.size].map(|number| number.to_string()));
        }
        let arguments =
            arguments.iter().map(|argument| c_string(self.field, argument)).collect::<Result<Vec<_>, _>>()?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).during(|| "make a pipe")?;
        let null =
            openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).during(|| "open /dev/null")?;
        let pid = syscall::spawn::spawn(&program, &arguments, &[], &[null.as_fd(), null.as_fd(), write.as_fd()])
            .during(|| format!("execute {program:?}"))?;
        drop(write);
        let mut output = String::new();
        // A failed read loses only the reason.
        let _ = std::fs::File::from(read).take(1024).read_to_string(&mut output);
        let status = waitpid(Some(pid), WaitOptions::empty()).during(|| format!("wait for {program:?}"))?;
        if status.is_some_and(|(_, status)| status.exit_status() == Some(0)) {
            return Ok(());
        }
        Err(Error::invalid(format!("{}: {} {}: {}", self.field, self.helper, self.shown(), output.trim())))
    }

    /// Formats the map for messages: the first mappings, and the total number.
    fn shown(&self) -> String {
        let first = &self.lines[..self.lines.len().min(SHOWN_MAX)];
        let text = lines(first).trim_end().replace('\n', ", ");
        match self.lines.len() {
            ..=SHOWN_MAX => text,
            count => format!("{text}, … ({count} mappings)"),
        }
    }
}

/// Looks a helper program up in fixed directories and not in the caller's PATH.
fn find(program: &str) -> Option<CString> {
    let directories = ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"];
    let paths = directories.iter().filter_map(|directory| CString::new(format!("{directory}/{program}")).ok());
    let executable = rustix::fs::Access::EXEC_OK;
    { paths }.find(|path| accessat(CWD, path.as_c_str(), executable, rustix::fs::AtFlags::empty()).is_ok())
}

/// Makes a user namespace with these maps and without processes.
pub(crate) fn make(mappings: &IdMappings) -> Result<OwnedFd, Error> {
    let (ours, child_socket) = sync::pair()?;
    let end = ours.as_raw_fd();
    let child = Clone3 { namespaces: Some(UnshareFlags::NEWUSER), ..Clone3::default() }
        .fork(|| {
            // Its own copy of the parent's end would keep the child waiting forever.
            let closed = syscall::descriptors::close_all_except(&mut [0, 1, 2, child_socket.as_raw_fd()]);
            debug_assert_ne!(end, child_socket.as_raw_fd());
            if closed.is_ok() {
                // Wait until the parent closes its end.
                let _ = recv(&child_socket, &mut [0u8; 1], RecvFlags::empty());
            }
            0
        })
        .during(|| "make a user namespace for id-mapped mounts")?;
    drop(child_socket);
    let namespace = write_maps(mappings, child.pid).and_then(|()| {
        let path = format!("/proc/{}/ns/user", child.pid);
        openat(CWD, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).during(|| format!("open {path}"))
    });
    drop(ours);
    waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)
        .during(|| "wait for the end of the process that made the user namespace")?;
    namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_a_few_mappings() {
        let lines: Vec<_> = (0..340).map(|id| oci::IdMapping { container_id: id, host_id: id, size: 1 }).collect();
        let map =
            |lines| Map { file: "uid_map", helper: "newuidmap", field: "linux.uidMappings", lines, callers_id: 0 };
        assert_eq!(map(&lines).shown(), "0 0 1, 1 1 1, 2 2 1, 3 3 1, … (340 mappings)");
        assert_eq!(map(&lines[..2]).shown(), "0 0 1, 1 1 1");
    }
}
