use std::{
    cell::Cell,
    io::{ErrorKind, Read},
    mem::ManuallyDrop,
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, Mode, OFlags, Uid, openat, statat},
    io::Errno,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
    thread::{CapabilitySet, ThreadNameSpaceType, move_into_thread_name_spaces},
};
use syscall::{
    clone::{Child, Clone3},
    signals::reset_for_exec,
};

use crate::{
    ContainerSetup, Error, ExecFilter, Stdio, descriptors,
    error::During,
    id_mappings,
    init::{detach_from_parent, still_needed},
    intermediate,
    namespaces::{MountNamespace, with_children_in},
    process::{FinalSteps, Process, ReadyProcess},
    procfs::Procfs,
    rootfs,
    setup::Intermediate,
    stdio,
    sync::{self, ChildEnd},
    terminal,
};

/// Namespaces of the container that an exec'd process joins by setns; it is cloned into the PID namespace. Joining a
/// namespace that the caller is in already is harmless.
const JOINED: ThreadNameSpaceType = ThreadNameSpaceType::MOUNT
    .union(ThreadNameSpaceType::NETWORK)
    .union(ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION)
    .union(ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME)
    .union(ThreadNameSpaceType::CONTROL_GROUP)
    .union(ThreadNameSpaceType::TIME);

/// The files of `/proc/<pid>/ns` for [`JOINED`].
const NAMESPACE_FILES: [(ThreadNameSpaceType, &str); 6] = [
    (ThreadNameSpaceType::MOUNT, "mnt"),
    (ThreadNameSpaceType::NETWORK, "net"),
    (ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION, "ipc"),
    (ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME, "uts"),
    (ThreadNameSpaceType::CONTROL_GROUP, "cgroup"),
    (ThreadNameSpaceType::TIME, "time"),
];

/// The container that a process is executed in.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The pidfd of the container's init.
    pub init: BorrowedFd<'a>,
    /// Whether the container has another user namespace than the caller (new or joined). It is entered first, and the
    /// other namespaces are entered as its root.
    pub user_namespace: bool,
    /// Whether the container is in the caller's mount namespace. Then its root is set by chroot(2), and so is the
    /// exec'd process's.
    pub callers_mount_namespace: bool,
    /// The container's `linux.personality`, which applies to exec'd processes too.
    pub personality: Option<&'a oci::Personality>,
    /// The container's `linux.memoryPolicy`, which applies to exec'd processes too.
    pub memory_policy: Option<&'a oci::MemoryPolicy>,
    /// See [`Invocation::keep_groups`](crate::Invocation).
    pub keep_groups: bool,
}

impl<'a> From<BorrowedFd<'a>> for Target<'a> {
    fn from(init: BorrowedFd<'a>) -> Self {
        Self {
            init,
            user_namespace: false,
            callers_mount_namespace: false,
            personality: None,
            memory_policy: None,
            keep_groups: false,
        }
    }
}

/// Executes a process in a running container: one fork, or two where an unprivileged caller must enter the container's
/// user namespace first. `group` is the cgroup to clone into: the container's, or one made by `Group::exec_group` of
/// it. `target` is the container, or the pidfd of its init.
///
/// The caller must be single-threaded: the PID namespace of its children is switched during the clone. Returns
/// immediately; [`ContainerSetup::advance`] reports `Ready` (with the terminal), then `Executed`. It needs no `start`.
///
/// Needs Linux 5.8 (setns by pidfd).
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid): the process, the seccomp program or its agent; `NotRunning`: the
/// container is not running; `System`: the clone failed. A group made by `Group::exec_group` is then removed, unless
/// the container has put a process or a group into it; in that case the caller must remove it later.
pub fn exec<'a>(
    group: cgroup::Group,
    target: impl Into<Target<'a>>,
    process: &oci::Process,
    stdio: Stdio,
    filter: Option<ExecFilter<'_>>,
) -> Result<ContainerSetup, Error> {
    match clone_process(&group, target.into(), process, stdio, filter) {
        Ok((child, socket, intermediate)) => {
            Ok(ContainerSetup::new(child, socket, group, false).with_intermediate(intermediate))
        }
        Err(error) => {
            if group.is_exec_group() {
                // The first error is the one to report.
                let _ = group.removal().and_then(|mut removal| removal.step(2));
            }
            Err(error)
        }
    }
}

fn clone_process(
    group: &cgroup::Group,
    target: Target<'_>,
    process: &oci::Process,
    stdio: Stdio,
    filter: Option<ExecFilter<'_>>,
) -> Result<(Child, OwnedFd, Option<Intermediate>), Error> {
    let filter = filter.map(|filter| filter.parse()).transpose()?;
    let process = Process::parse(process, &linux_for(target), filter, &mut Vec::new())?;
    let mut process = process.with_callers_groups(target.keep_groups);
    process.connect_agent()?;
    let stdio = stdio::move_above_2(stdio)?;
    let joiner = group.joiner().map_err(|error| Error::system("open the cgroup", std::io::Error::other(error)))?;
    let (ours, child_socket) = sync::pair()?;
    let sync = ChildEnd::new(child_socket, None);
    let exec = ExecChild { process: &process, stdio: &stdio, joiner: &joiner, target, sync: &sync, proc: None };
    // A caller with privileges over the container's user namespace enters its PID namespace from outside, like any
    // other.
    if target.user_namespace && !process.callers_capabilities.contains(CapabilitySet::SYS_ADMIN) {
        let (child, attach) = exec.clone_inside(group)?;
        return Ok((child, ours, Some(Intermediate { attach, ..Intermediate::default() })));
    }
    let init = target.init;
    let moved_by_systemd = Cell::new(false);
    let child = with_children_in(init, || {
        let cloned = Clone3 { namespaces: None, cgroup: joiner.v2_dir() }.fork(|| exec.run());
        match cloned {
            // An unprivileged user's exec from outside the delegated cgroups, for example from a login session's scope.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && group.unit_name().is_some() => {
                moved_by_systemd.set(true);
                Clone3::default().fork(|| exec.run_when_placed())
            }
            cloned => cloned,
        }
        .during(|| format!("clone the process into cgroup {}", group.path()))
    })?;
    if moved_by_systemd.get() {
        attach_to_group(group, &child, ours.as_fd())?;
    }
    Ok((child, ours, None))
}

/// Opens the root directory of the container's init.
fn open_root(init: BorrowedFd<'_>, proc: &Procfs) -> Result<OwnedFd, Error> {
    let pid = pid_of(init, proc)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(proc, format!("{pid}/root"), flags, Mode::empty()).during(|| "open the root of the container's init")
}

/// Returns the pid of the container's init in the PID namespace of `proc`.
fn pid_of(init: BorrowedFd<'_>, proc: &Procfs) -> Result<String, Error> {
    let info = proc.open_file(&format!("self/fdinfo/{}", init.as_raw_fd()), OFlags::RDONLY);
    let info = info.during(|| "open fdinfo of the container's init")?;
    let mut text = String::new();
    std::fs::File::from(info).read_to_string(&mut text).during(|| "read the pid of the container's init")?;
    Ok(text.lines().find_map(|line| line.strip_prefix("Pid:")).map(str::trim).unwrap_or_default().to_owned())
}

/// Returns the kinds of [`JOINED`] in which the container's namespace is not the caller's.
fn differing_namespaces(init: BorrowedFd<'_>, proc: &Procfs) -> Result<ThreadNameSpaceType, Error> {
    let pid = pid_of(init, proc)?;
    let mut others = ThreadNameSpaceType::empty();
    for (kind, file) in NAMESPACE_FILES {
        let id = |pid: &str| statat(proc, format!("{pid}/ns/{file}"), AtFlags::empty()).map(|s| (s.st_dev, s.st_ino));
        match (id("self"), id(&pid)) {
            // The kernel has no time namespaces.
            (Err(Errno::NOENT), _) => {}
            (callers, containers) => {
                let operation = || format!("stat the {file} namespace of the container");
                if callers.during(operation)? != containers.during(operation)? {
                    others |= kind;
                }
            }
        }
    }
    Ok(others)
}

/// Returns the properties that the process is checked against.
fn linux_for(target: Target<'_>) -> oci::Linux {
    let user = oci::Namespace { kind: oci::NamespaceType::User, path: None };
    oci::Linux {
        namespaces: target.user_namespace.then_some(user).into_iter().collect(),
        personality: target.personality.cloned(),
        memory_policy: target.memory_policy.cloned(),
        ..oci::Linux::default()
    }
}

/// Moves the child into its group by systemd and lets it continue; kills and reaps it if that fails.
fn attach_to_group(group: &cgroup::Group, child: &Child, socket: BorrowedFd<'_>) -> Result<(), Error> {
    let Err(error) = group.attach(child.pid) else {
        // One that has exited already has sent its error, which `advance` returns.
        let _ = sync::send_go(socket);
        return Ok(());
    };
    let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
    Err(Error::system("move the process into its cgroup", std::io::Error::other(error)))
}

/// Context of the exec'd process until execve.
#[derive(Clone, Copy)]
struct ExecChild<'a> {
    process: &'a Process,
    stdio: &'a Stdio,
    joiner: &'a cgroup::Joiner,
    target: Target<'a>,
    sync: &'a ChildEnd,
    /// The runtime's procfs, where an intermediate process opened it before it entered the container.
    proc: Option<&'a Procfs>,
}

impl ExecChild<'_> {
    /// Runs the child once the parent has placed it in its group.
    fn run_when_placed(&self) -> i32 {
        match self.sync.wait_for_go() {
            Ok(()) => self.run(),
            Err(_) => 1,
        }
    }

    /// Clones the child from within the container's user namespace, which gives an unprivileged caller privileges in
    /// the other namespaces: an intermediate process enters it and clones the child, which waits. Also returns whether
    /// systemd has to move the child into its group.
    fn clone_inside(&self, group: &cgroup::Group) -> Result<(Child, bool), Error> {
        let work = || {
            let needed =
                stdio::descriptors(self.stdio).chain(self.joiner.descriptors()).chain(self.process.descriptors());
            descriptors::keep_only(needed.chain([self.target.init, self.sync.as_fd()]), self.stdio.preserve_fds)?;
            let proc = Procfs::open()?;
            self.process.oom_score_adj.apply(&proc)?;
            self.process.raise_limits()?;
            self.chown_stdio(&proc);
            let kinds = JOINED | ThreadNameSpaceType::PROCESS_ID;
            intermediate::enter_with_user_namespace(self.target.init, kinds, self.target.keep_groups)?;
            let inside = ExecChild { proc: Some(&proc), ..*self };
            Clone3::default().fork_sibling(|| inside.run_when_placed()).during(|| "clone the process")
        };
        let clone = Clone3 { namespaces: None, cgroup: self.joiner.v2_dir() };
        match intermediate::send(clone, self.sync, work) {
            // An unprivileged user's exec from outside the delegated cgroups.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && group.unit_name().is_some() => {
                let cloned = intermediate::send(Clone3::default(), self.sync, work);
                cloned.during(|| "clone the intermediate process of the exec").map(|child| (child, true))
            }
            cloned => cloned
                .during(|| format!("clone the intermediate process of the exec into cgroup {}", group.path()))
                .map(|child| (child, false)),
        }
    }

    /// Changes the owner of the stdio descriptors to the process's user. Inside the user namespace that would be
    /// denied: the caller's files have no owner there.
    fn chown_stdio(&self, proc: &Procfs) {
        let host_uid = || {
            let pid = pid_of(self.target.init, proc).ok()?;
            let map = proc.open_file(&format!("{pid}/uid_map"), OFlags::RDONLY).ok()?;
            let mut text = String::new();
            std::fs::File::from(map).read_to_string(&mut text).ok()?;
            id_mappings::to_outer(&id_mappings::parse_lines(&text), self.process.uid().as_raw())
        };
        if let Some(uid) = host_uid() {
            stdio::chown_outside(self.stdio, Uid::from_raw(uid));
        }
    }

    fn run(&self) -> i32 {
        let error = match self.set_up() {
            Ok(ready) => match self.joiner.join_memory() {
                Ok(()) => ready.execute(|_| Ok(())),
                Err(error) => Error::system("join the memory cgroup", std::io::Error::other(error)),
            },
            Err(error) => error,
        };
        self.sync.send_failure(&error);
        1
    }

    fn set_up(&self) -> Result<ReadyProcess<'_>, Error> {
        let needed = stdio::descriptors(self.stdio).chain(self.joiner.descriptors());
        let needed = needed.chain(self.proc.map(AsFd::as_fd)).chain(self.process.descriptors());
        detach_from_parent(
            needed.chain([self.target.init, self.sync.as_fd()]),
            self.stdio.preserve_fds,
            reset_for_exec,
        )?;
        self.process.affinity.before_joining()?;
        self.joiner.join_early().map_err(|error| Error::system("join the cgroups", std::io::Error::other(error)))?;
        self.process.affinity.after_joining()?;
        let opened;
        let proc = match self.proc {
            Some(proc) => proc,
            None => {
                opened = Procfs::open()?;
                &opened
            }
        };
        if self.proc.is_none() && self.target.user_namespace {
            self.process.oom_score_adj.apply(proc)?;
            self.process.raise_limits()?;
            self.chown_stdio(proc);
            intermediate::enter_with_user_namespace(self.target.init, JOINED, self.target.keep_groups)?;
        } else if self.proc.is_none() {
            self.process.oom_score_adj.apply(proc)?;
            // Needs the host's procfs: inside, the init has another pid.
            let root =
                if self.target.callers_mount_namespace { Some(open_root(self.target.init, proc)?) } else { None };
            self.enter_container(proc)?;
            root.as_ref().map_or(Ok(()), |root| rootfs::change(root.as_fd(), MountNamespace::Same))?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, c"/", flags, Mode::empty()).during(|| "open the container's root")?;
        let root = ManuallyDrop::new(root);
        let terminal = match self.process.terminal {
            Some(size) => Some(terminal::open(root.as_fd(), proc, size, self.stdio)?),
            None => None,
        };
        if let Some(terminal) = &terminal {
            terminal.control()?;
        }
        stdio::apply(self.stdio, terminal.as_ref(), root.as_fd(), self.process.uid())?;
        let keep = still_needed(self.sync, self.joiner, terminal.as_ref());
        let last = FinalSteps { keep, preserve_fds: self.stdio.preserve_fds, needs_admin: false };
        let ready = self.process.become_user(root.as_fd(), proc, &last)?;
        terminal::hand_over(terminal, self.sync)?;
        Ok(ready)
    }

    /// Joins the container's namespaces. setns(2) with a mount namespace also sets root and working directory to its
    /// root, which is the container's.
    fn enter_container(&self, proc: &Procfs) -> Result<(), Error> {
        match move_into_thread_name_spaces(self.target.init, JOINED) {
            // The kernel has no time namespaces.
            Err(Errno::INVAL) => move_into_thread_name_spaces(self.target.init, JOINED - ThreadNameSpaceType::TIME)
                .during(|| "join the container's namespaces"),
            // An unprivileged user may not join the host's namespaces again that the container is in.
            Err(Errno::PERM) => {
                move_into_thread_name_spaces(self.target.init, differing_namespaces(self.target.init, proc)?)
                    .during(|| "join the container's namespaces")
            }
            Err(Errno::SRCH) => Err(Error::not_running("join the container's namespaces")),
            result => result.during(|| "join the container's namespaces"),
        }
    }
}
