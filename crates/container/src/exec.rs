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
    Error, ExecFilter, Nascent, Stdio, descriptors,
    error::During,
    forerunner, id_mappings,
    init::{detach_from_parent, still_needed},
    namespaces::{MountNamespace, with_children_in},
    nascent::Intermediate,
    process::{Last, Process, Ready},
    procfs::Procfs,
    rootfs, standard,
    sync::{self, ChildEnd},
    terminal,
};

/// What a command joins of its container; the PID namespace is the clone's. One that is the caller's too is no harm.
const JOINED: ThreadNameSpaceType = ThreadNameSpaceType::MOUNT
    .union(ThreadNameSpaceType::NETWORK)
    .union(ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION)
    .union(ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME)
    .union(ThreadNameSpaceType::CONTROL_GROUP)
    .union(ThreadNameSpaceType::TIME);

/// The same, as files of `/proc/<pid>/ns`.
const FILES: [(ThreadNameSpaceType, &str); 6] = [
    (ThreadNameSpaceType::MOUNT, "mnt"),
    (ThreadNameSpaceType::NETWORK, "net"),
    (ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION, "ipc"),
    (ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME, "uts"),
    (ThreadNameSpaceType::CONTROL_GROUP, "cgroup"),
    (ThreadNameSpaceType::TIME, "time"),
];

/// The container of a command.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The pidfd of its init.
    pub init: BorrowedFd<'a>,
    /// Whether it has a user namespace of its own (new or joined): entered first, and its root is who enters the
    /// others.
    pub user_namespace: bool,
    /// Whether it has no mount namespace of its own: then its root is only its processes', and is entered like theirs.
    pub callers_mounts: bool,
    /// Its `linux.personality`, which its commands have too.
    pub personality: Option<&'a oci::Personality>,
    /// Its `linux.memoryPolicy`, which its commands have too.
    pub memory_policy: Option<&'a oci::MemoryPolicy>,
    /// As [`Invocation::keep_groups`](crate::Invocation).
    pub keep_groups: bool,
}

impl<'a> From<BorrowedFd<'a>> for Target<'a> {
    fn from(init: BorrowedFd<'a>) -> Self {
        Self {
            init,
            user_namespace: false,
            callers_mounts: false,
            personality: None,
            memory_policy: None,
            keep_groups: false,
        }
    }
}

/// A command in a running container: one fork; two where an unprivileged caller must enter the container's user
/// namespace first. `group` is the group to be born in: the container's, or one made by `Group::exec_group` of it;
/// `target` is the container, or the pidfd of its init. The caller must be single-threaded: the PID namespace of its
/// children is switched around the clone. Returns at once; [`Nascent::advance`] tells `Ready` (with the terminal), then
/// of execve: there is no `start`.
///
/// Needs Linux 5.8 (setns by pidfd).
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid): the process, the seccomp program or its agent; `System`: the
/// container is not running, or the clone failed. A group of `Group::exec_group` is then removed, unless the container
/// put something into it: it is still to be removed where it is there.
pub fn exec<'a>(
    group: cgroup::Group,
    target: impl Into<Target<'a>>,
    process: &oci::Process,
    stdio: Stdio,
    filter: Option<ExecFilter<'_>>,
) -> Result<Nascent, Error> {
    match clone_command(&group, target.into(), process, stdio, filter) {
        Ok((child, socket, intermediate)) => {
            Ok(Nascent::new(child, socket, group, false).with_intermediate(intermediate))
        }
        Err(error) => {
            if group.is_exec_group() {
                // What failed first is what to tell.
                let _ = group.removal().and_then(|mut removal| removal.step(2));
            }
            Err(error)
        }
    }
}

fn clone_command(
    group: &cgroup::Group,
    target: Target<'_>,
    process: &oci::Process,
    stdio: Stdio,
    filter: Option<ExecFilter<'_>>,
) -> Result<(Child, OwnedFd, Option<Intermediate>), Error> {
    let filter = filter.map(|filter| filter.parse()).transpose()?;
    let process = Process::parse(process, &linux_of(target), filter, &mut Vec::new())?;
    let mut process = process.with_callers_groups(target.keep_groups);
    process.connect_agent()?;
    let stdio = standard::move_up(stdio)?;
    let joiner = group.joiner().map_err(|error| Error::system("open the cgroup", std::io::Error::other(error)))?;
    let (ours, childs) = sync::pair()?;
    let sync = ChildEnd::new(childs, None);
    let command = Command { process: &process, stdio: &stdio, joiner: &joiner, target, sync: &sync, proc: None };
    // With rights over the container's user namespace its PID namespace is entered from outside, like any other.
    if target.user_namespace && !process.callers_capabilities.contains(CapabilitySet::SYS_ADMIN) {
        let (child, attach) = command.clone_inside(group)?;
        return Ok((child, ours, Some(Intermediate { attach, ..Intermediate::default() })));
    }
    let init = target.init;
    let moved_by_systemd = Cell::new(false);
    let child = with_children_in(init, || {
        let born = Clone3 { namespaces: None, cgroup: joiner.v2_dir() }.fork(|| command.run());
        match born {
            // A user's command from outside of what was delegated to them, such as a login's own group.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && group.unit_name().is_some() => {
                moved_by_systemd.set(true);
                Clone3::default().fork(|| command.run_when_placed())
            }
            born => born,
        }
        .during(|| format!("clone the command into cgroup {}", group.path()))
    })?;
    if moved_by_systemd.get() {
        place(group, &child, ours.as_fd())?;
    }
    Ok((child, ours, None))
}

/// The root of a process.
fn open_root(init: BorrowedFd<'_>, proc: &Procfs) -> Result<OwnedFd, Error> {
    let pid = pid_of(init, proc)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(proc, format!("{pid}/root"), flags, Mode::empty()).during(|| "open the root of the container's init")
}

/// As this procfs counts.
fn pid_of(init: BorrowedFd<'_>, proc: &Procfs) -> Result<String, Error> {
    let info = proc.open_file(&format!("self/fdinfo/{}", init.as_raw_fd()), OFlags::RDONLY);
    let info = info.during(|| "ask for the pid of the container's init")?;
    let mut text = String::new();
    std::fs::File::from(info).read_to_string(&mut text).during(|| "read the pid of the container's init")?;
    Ok(text.lines().find_map(|line| line.strip_prefix("Pid:")).map(str::trim).unwrap_or_default().to_owned())
}

/// The kinds of [`JOINED`] in which the container has another namespace than the caller.
fn other_than_own(init: BorrowedFd<'_>, proc: &Procfs) -> Result<ThreadNameSpaceType, Error> {
    let pid = pid_of(init, proc)?;
    let mut others = ThreadNameSpaceType::empty();
    for (kind, file) in FILES {
        let id =
            |whose: &str| statat(proc, format!("{whose}/ns/{file}"), AtFlags::empty()).map(|s| (s.st_dev, s.st_ino));
        match (id("self"), id(&pid)) {
            // A kernel without time namespaces.
            (Err(Errno::NOENT), _) => {}
            (own, theirs) => {
                let what = || format!("ask for the {file} namespace of the container");
                if own.during(what)? != theirs.during(what)? {
                    others |= kind;
                }
            }
        }
    }
    Ok(others)
}

/// What the process is checked against.
fn linux_of(target: Target<'_>) -> oci::Linux {
    let user = oci::Namespace { kind: oci::NamespaceType::User, path: None };
    oci::Linux {
        namespaces: target.user_namespace.then_some(user).into_iter().collect(),
        personality: target.personality.cloned(),
        memory_policy: target.memory_policy.cloned(),
        ..oci::Linux::default()
    }
}

fn place(group: &cgroup::Group, child: &Child, socket: BorrowedFd<'_>) -> Result<(), Error> {
    let Err(error) = group.attach(child.pid) else {
        // One that is gone already says why to who listens next.
        let _ = sync::go(socket);
        return Ok(());
    };
    let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
    Err(Error::system("place the command", std::io::Error::other(error)))
}

/// What the child has.
#[derive(Clone, Copy)]
struct Command<'a> {
    process: &'a Process,
    stdio: &'a Stdio,
    joiner: &'a cgroup::Joiner,
    target: Target<'a>,
    sync: &'a ChildEnd,
    /// The runtime's own, of a command whose intermediate process entered the container.
    proc: Option<&'a Procfs>,
}

impl Command<'_> {
    /// After the parent said that it is in its group.
    fn run_when_placed(&self) -> i32 {
        match self.sync.wait_for_go() {
            Ok(()) => self.run(),
            Err(_) => 1,
        }
    }

    /// With a user namespace that gives an unprivileged caller the rights in the others: an intermediate process enters
    /// it, and clones the command, which waits. Says whether systemd has to move that into its group.
    fn clone_inside(&self, group: &cgroup::Group) -> Result<(Child, bool), Error> {
        let work = || {
            let needed =
                standard::descriptors(self.stdio).chain(self.joiner.descriptors()).chain(self.process.descriptor());
            descriptors::keep_only(needed.chain([self.target.init, self.sync.as_fd()]), self.stdio.preserve)?;
            let proc = Procfs::open()?;
            self.process.oom_score_adj.apply(&proc)?;
            self.process.raise_limits()?;
            self.give_stdio(&proc);
            let kinds = JOINED | ThreadNameSpaceType::PROCESS_ID;
            forerunner::enter_with_user_namespace(self.target.init, kinds, self.target.keep_groups)?;
            let inside = Command { proc: Some(&proc), ..*self };
            Clone3::default().fork_sibling(|| inside.run_when_placed()).during(|| "clone the command")
        };
        let clone = Clone3 { namespaces: None, cgroup: self.joiner.v2_dir() };
        match forerunner::send(clone, self.sync, work) {
            // A user's command from outside of what was delegated to them.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && group.unit_name().is_some() => {
                let sent = forerunner::send(Clone3::default(), self.sync, work);
                sent.during(|| "clone the intermediate process of the command").map(|child| (child, true))
            }
            sent => sent
                .during(|| format!("clone the intermediate process of the command into cgroup {}", group.path()))
                .map(|child| (child, false)),
        }
    }

    /// Gives the standard descriptors to the command's user while that is possible: inside, nobody owns the caller's
    /// files.
    fn give_stdio(&self, proc: &Procfs) {
        let outer = || {
            let pid = pid_of(self.target.init, proc).ok()?;
            let map = proc.open_file(&format!("{pid}/uid_map"), OFlags::RDONLY).ok()?;
            let mut text = String::new();
            std::fs::File::from(map).read_to_string(&mut text).ok()?;
            id_mappings::outer(&id_mappings::parse_lines(&text), self.process.uid().as_raw())
        };
        if let Some(uid) = outer() {
            standard::give_outside(self.stdio, Uid::from_raw(uid));
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
        self.sync.failed(&error);
        1
    }

    fn set_up(&self) -> Result<Ready<'_>, Error> {
        let needed = standard::descriptors(self.stdio).chain(self.joiner.descriptors());
        let needed = needed.chain(self.proc.map(AsFd::as_fd)).chain(self.process.descriptor());
        detach_from_parent(needed.chain([self.target.init, self.sync.as_fd()]), self.stdio.preserve, reset_for_exec)?;
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
            self.give_stdio(proc);
            forerunner::enter_with_user_namespace(self.target.init, JOINED, self.target.keep_groups)?;
        } else if self.proc.is_none() {
            self.process.oom_score_adj.apply(proc)?;
            // By the host's pid, which is not the container's.
            let root = if self.target.callers_mounts { Some(open_root(self.target.init, proc)?) } else { None };
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
        standard::apply(self.stdio, terminal.as_ref(), root.as_fd(), self.process.uid())?;
        let keep = still_needed(self.sync, self.joiner, terminal.as_ref());
        let last = Last { keep, preserve: self.stdio.preserve, admin: false };
        let ready = self.process.become_user(root.as_fd(), proc, &last)?;
        terminal::hand_over(terminal, self.sync)?;
        Ok(ready)
    }

    /// setns(2) with a mount namespace also sets root and working directory to its root, which is the container's.
    fn enter_container(&self, proc: &Procfs) -> Result<(), Error> {
        match move_into_thread_name_spaces(self.target.init, JOINED) {
            // A kernel without time namespaces.
            Err(Errno::INVAL) => move_into_thread_name_spaces(self.target.init, JOINED - ThreadNameSpaceType::TIME)
                .during(|| "join the container's namespaces"),
            // An ordinary user may not join again what the container has of the machine's.
            Err(Errno::PERM) => move_into_thread_name_spaces(self.target.init, other_than_own(self.target.init, proc)?)
                .during(|| "join the container's namespaces"),
            Err(Errno::SRCH) => Err(Error::ended("join the container's namespaces")),
            result => result.during(|| "join the container's namespaces"),
        }
    }
}
