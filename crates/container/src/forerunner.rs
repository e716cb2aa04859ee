//! The intermediate process of a container's init that must be *born* in a namespace: it enters the user namespace (or
//! makes the time namespace), clones the init as its sibling, hands it over, and ends.
//!
//! ```text
//! runtime ──clone──▶ intermediate: with the caller's rights join what others own; device nodes, v1 cgroup trees
//!    │                   │          user namespace          unshare, wait for the maps; or setns
//!    │                   │          with all rights in it   join what it owns; time namespace; new PID namespace
//!    │                   └─clone(CLONE_PARENT, CLONE_INTO_CGROUP)─▶ init: waits
//!    ◀── pid, pidfd ──────┘                                          │
//!    └── go ─────────────────────────────────────────────────────────▶ the same steps as of any container
//! ```
//!
//! It runs in the caller's cgroup and not in the container's, whose processes could stop it there (cgroup.freeze), and
//! the caller does not wait for it: what it sends is one of the states of [`Nascent`](crate::Nascent). The init waits
//! until the caller knows its pid, so that its end is always the end of a known process.
//!
//! Nothing of this is on the way of a container that has neither namespace, nor of a privileged caller's command.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{DumpableBehavior, Signal, WaitId, WaitIdOptions, pidfd_send_signal, set_dumpable_behavior, waitid},
    thread::{
        ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use syscall::clone::{Child, Clone3};

use crate::{
    Error, Plan, descriptors,
    error::During,
    gathered::Gathered,
    init::{self, Birth},
    mounts,
    namespaces::{MountNamespace, PidNamespace},
    procfs::Procfs,
    start,
    sync::{self, ChildEnd, Said},
    user_namespace::{UserNamespace, write_maps},
};

/// Clones an intermediate process that runs `work` and hands over the process which that cloned, over the socket of the
/// two.
///
/// # Errors
/// Those of the clone.
pub(crate) fn send(
    clone: Clone3<'_>,
    sync: &ChildEnd,
    work: impl FnOnce() -> Result<Child, Error>,
) -> io::Result<Child> {
    clone.fork(|| match work().and_then(|child| sync.born(&child)) {
        Ok(()) => 0,
        Err(error) => {
            sync.failed(&error);
            1
        }
    })
}

/// Clones the intermediate process of a container's init.
pub(crate) fn clone_init(plan: &Plan, birth: &Birth<'_>) -> Result<Child, Error> {
    let group = || Clone3 { namespaces: None, cgroup: birth.joiner.v2_dir() };
    // From inside of a cgroup namespace that it joins first it may not reach a group outside (`nsdelegate`,
    // cgroups(7)).
    let (own, inits) =
        if plan.namespaces.joins_cgroup() { (group(), Clone3::default()) } else { (Clone3::default(), group()) };
    let sent = send(own, birth.sync, || {
        let needed = plan.descriptors().chain(birth.joiner.descriptors()).chain(birth.sync.descriptors());
        descriptors::keep_only(needed.chain(plan.namespaces.forerunners_descriptors()), plan.stdio.preserve)?;
        let gathered = go_ahead(plan, birth.sync)?;
        let birth = Birth { gathered: gathered.as_ref(), gate: true, forerun: true, ..*birth };
        inits.fork_sibling(|| init::run(plan, &birth)).during(|| "clone the container's init")
    });
    sent.during(|| "clone the intermediate process of the container's init")
}

/// Blocks until the process is cloned, and reaps the intermediate one: where systemd must know the process before it
/// goes on.
pub(crate) fn bring(plan: &Plan, intermediate: Child, socket: OwnedFd) -> Result<(Child, OwnedFd), Error> {
    let attend = || loop {
        match sync::listen(socket.as_fd())? {
            Said::Nothing => start::wait(&socket)?,
            Said::Unmapped => {
                plan.namespaces.user.mappings().map_or(Ok(()), |mappings| write_maps(mappings, intermediate.pid))?;
                // One that is gone already has sent why.
                let _ = sync::go(socket.as_fd());
            }
            Said::Born(pid, pidfd) => return Ok(Child { pid, pidfd }),
            Said::Failed(error) => return Err(error),
            Said::NamespacesMade | Said::Made(_) | Said::Ready(_) | Said::End => {
                let what = "wait for the container's process: its intermediate process ended";
                return Err(Error::system(what, Errno::CHILD));
            }
        }
    };
    let cloned = attend();
    if cloned.is_err() {
        // It may wait for its maps.
        let _ = pidfd_send_signal(&intermediate.pidfd, Signal::KILL);
    }
    waitid(WaitId::PidFd(intermediate.pidfd.as_fd()), WaitIdOptions::EXITED)
        .during(|| "wait for the end of the intermediate process")?;
    cloned.map(|child| (child, socket))
}

fn go_ahead(plan: &Plan, end: &ChildEnd) -> Result<Option<Gathered>, Error> {
    let proc = Procfs::open()?;
    plan.process.oom_score_adj.apply(&proc)?;
    plan.process.raise_limits()?;
    plan.namespaces.enter_staging()?;
    let gathered = gather(plan)?;
    let offsets = plan.time_offsets.open(&proc)?;
    give_stdio(plan);
    let left = plan.namespaces.join_with_callers_rights()?;
    enter_user_namespace(&plan.namespaces.user, end)?;
    plan.namespaces.join_the_rest(&left)?;
    if plan.namespaces.new_time() {
        plan.time_offsets.make(offsets.as_ref())?;
    }
    if matches!(plan.namespaces.pid, PidNamespace::New) {
        // clone(2) refuses it beside CLONE_PARENT.
        syscall::clone::unshare_process(UnshareFlags::NEWPID).during(|| "make a new PID namespace")?;
    }
    Ok(gathered)
}

/// What only the caller's rights reach, in a mount namespace of its own that init's is made from.
fn gather(plan: &Plan) -> Result<Option<Gathered>, Error> {
    if !plan.rights.mounts || !plan.namespaces.user.is_other() || plan.namespaces.mount == MountNamespace::Same {
        return Ok(None);
    }
    syscall::clone::unshare_process(UnshareFlags::NEWNS).during(|| "make a mount namespace to gather in")?;
    plan.root.part_from_host()?;
    let gathered = Gathered::of(plan)?;
    // init looks for its procfs there; and in a user namespace it may make one only where one is to be seen.
    mounts::uncover_proc()?;
    Ok(Some(gathered))
}

/// Gives the standard descriptors to the container's user while that is possible: inside, nobody owns the caller's
/// files.
fn give_stdio(plan: &Plan) {
    let Some(mappings) = plan.namespaces.user.mappings() else { return };
    if let Some(uid) = mappings.outer_uid(plan.process.uid()) {
        crate::standard::give_outside(&plan.stdio, uid);
    }
}

/// Into the container's user namespace, with all rights in it. The ids stay the caller's: they own the cgroup that the
/// container's process is to be cloned into, which becomes root by itself.
fn enter_user_namespace(user: &UserNamespace, end: &ChildEnd) -> Result<(), Error> {
    match user {
        UserNamespace::Same => Ok(()),
        UserNamespace::New(_) => {
            syscall::clone::unshare_process(UnshareFlags::NEWUSER).map_err(|error| {
                let limit = "/proc/sys/user/max_user_namespaces or kernel.unprivileged_userns_clone may forbid it";
                Error::system(format!("make a new user namespace ({limit})"), error)
            })?;
            // Whose maps an unprivileged parent can write is only a process that may be looked into.
            end.wait_for_maps()?;
            not_dumpable()
        }
        UserNamespace::Join(fd, _) => {
            // Others are in it already, and none of them may look into this process (CVE-2016-9962).
            not_dumpable()?;
            move_into_thread_name_spaces(fd.as_fd(), ThreadNameSpaceType::USER).during(|| "join the user namespace")
        }
    }
}

fn not_dumpable() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during(|| "become non-dumpable")
}

/// User and group 0 of the user namespace that was just entered; with all capabilities in it.
pub(crate) fn become_its_root(keep_groups: bool) -> Result<(), Error> {
    let (uid, gid) = (rustix::fs::Uid::ROOT, rustix::fs::Gid::ROOT);
    let left = if keep_groups { Ok(()) } else { set_thread_groups(&[]) };
    match left {
        // Denied where an unprivileged user made the namespace.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(Error::system("leave the supplementary groups", errno)),
    }
    let mapped = |what| format!("become {what} 0 of the user namespace (is it mapped? what is set up belongs to it)");
    set_thread_res_gid(gid, gid, gid).during(|| mapped("group"))?;
    set_thread_res_uid(uid, uid, uid).during(|| mapped("user"))
}

/// Joins namespaces of a running process, its user namespace among them, and becomes root there. `rest` are those
/// beside the user namespace.
pub(crate) fn enter_with_user_namespace(
    init: BorrowedFd<'_>,
    rest: ThreadNameSpaceType,
    keep_groups: bool,
) -> Result<(), Error> {
    not_dumpable()?;
    match move_into_thread_name_spaces(init, rest | ThreadNameSpaceType::USER) {
        // It is the caller's own.
        Err(Errno::INVAL) => return join_all(init, rest),
        // A namespace is the host's, in which the container's root has no rights: it is the caller's, too, or never was
        // joined.
        Err(Errno::PERM) => {
            join_all(init, ThreadNameSpaceType::USER)?;
            for one in rest.iter() {
                match move_into_thread_name_spaces(init, one) {
                    Err(Errno::PERM) if one != ThreadNameSpaceType::MOUNT => {}
                    result => result.during(|| format!("join the container's namespace {one:?}"))?,
                }
            }
        }
        Err(Errno::SRCH) => return Err(Error::ended("join the container's namespaces")),
        result => result.during(|| "join the container's namespaces")?,
    }
    become_its_root(keep_groups)
}

fn join_all(init: BorrowedFd<'_>, kinds: ThreadNameSpaceType) -> Result<(), Error> {
    move_into_thread_name_spaces(init, kinds).during(|| format!("join the container's namespaces {kinds:?}"))
}
