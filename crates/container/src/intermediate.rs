//! The intermediate process of a container's init that can enter a namespace only by being cloned into it: it enters
//! the user namespace (or makes the time namespace), clones the init as its sibling, hands it over, and exits.
//!
//! ```text
//! runtime ──clone──▶ intermediate: with the caller's privileges: join namespaces; device nodes, v1 cgroups
//!    │                   │          user namespace          unshare, wait for the maps; or setns
//!    │                   │          as its root              join what it owns; time namespace; new PID namespace
//!    │                   └─clone(CLONE_PARENT, CLONE_INTO_CGROUP)─▶ init: waits
//!    ◀── pid, pidfd ──────┘                                          │
//!    └── go ─────────────────────────────────────────────────────────▶ the same steps as of any container
//! ```
//!
//! It runs in the caller's cgroup and not in the container's, whose processes could stop it there (cgroup.freeze), and
//! the caller does not wait for it: its messages are handled as states of [`ContainerSetup`](crate::ContainerSetup).
//! The init waits until the caller knows its pid, so that the caller never has to reap an unknown process.
//!
//! Containers with neither namespace do not need it, nor does an exec by a privileged caller.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{DumpableBehavior, Signal, WaitId, WaitIdOptions, pidfd_send_signal, set_dumpable_behavior, waitid},
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};
use syscall::clone::{Child, Clone3};

use crate::{
    Error, Plan, descriptors,
    error::During,
    init::{self, InitContext},
    mounts,
    namespaces::{MountNamespace, PidNamespace},
    preopened::PreopenedMounts,
    procfs::Procfs,
    start,
    sync::{self, ChildEnd, ChildMessage},
    user_namespace::{UserNamespace, become_root_in_user_namespace, write_maps},
};

/// Clones an intermediate process that runs `work` and hands the process that `work` cloned over to the parent.
///
/// # Errors
/// Those of the clone.
pub(crate) fn send(
    clone: Clone3<'_>,
    sync: &ChildEnd,
    work: impl FnOnce() -> Result<Child, Error>,
) -> io::Result<Child> {
    clone.fork(|| match work().and_then(|child| sync.send_cloned(&child)) {
        Ok(()) => 0,
        Err(error) => {
            sync.send_failure(&error);
            1
        }
    })
}

/// Clones the intermediate process of a container's init.
pub(crate) fn clone_init(plan: &Plan, context: &InitContext<'_>) -> Result<Child, Error> {
    let group = || Clone3 { namespaces: None, cgroup: context.joiner.v2_dir() };
    // From within a cgroup namespace that it joins first it may not clone into a group outside (`nsdelegate`,
    // cgroups(7)); then the intermediate process itself is cloned into the group.
    let (intermediate, init) =
        if plan.namespaces.joins_cgroup() { (group(), Clone3::default()) } else { (Clone3::default(), group()) };
    let cloned = send(intermediate, context.sync, || {
        let needed = plan.descriptors().chain(context.joiner.descriptors()).chain(context.sync.descriptors());
        descriptors::keep_only(needed.chain(plan.namespaces.intermediate_descriptors()), plan.stdio.preserve_fds)?;
        let preopened = prepare(plan, context.sync)?;
        let context =
            InitContext { preopened: preopened.as_ref(), wait_for_go: true, by_intermediate: true, ..*context };
        init.fork_sibling(|| init::run(plan, &context)).during(|| "clone the container's init")
    });
    cloned.during(|| "clone the intermediate process of the container's init")
}

/// Blocks until the init is cloned, and reaps the intermediate process: for groups made by systemd, which must be given
/// the init's pid before the setup continues.
pub(crate) fn wait_for_init(plan: &Plan, intermediate: Child, socket: OwnedFd) -> Result<(Child, OwnedFd), Error> {
    let receive = || loop {
        match sync::receive(socket.as_fd())? {
            ChildMessage::Pending => start::wait(&socket)?,
            ChildMessage::NeedsMaps => {
                plan.namespaces.user.mappings().map_or(Ok(()), |mappings| write_maps(mappings, intermediate.pid))?;
                // One that has exited already has sent its error.
                let _ = sync::send_go(socket.as_fd());
            }
            ChildMessage::Cloned(pid, pidfd) => return Ok(Child { pid, pidfd }),
            ChildMessage::Failed(error) => return Err(error),
            ChildMessage::NamespacesCreated
            | ChildMessage::Namespaces(_)
            | ChildMessage::Ready(_)
            | ChildMessage::Closed => {
                let operation = "wait for the container's process: its intermediate process ended";
                return Err(Error::system(operation, Errno::CHILD));
            }
        }
    };
    let cloned = receive();
    if cloned.is_err() {
        // It may wait for its maps.
        let _ = pidfd_send_signal(&intermediate.pidfd, Signal::KILL);
    }
    waitid(WaitId::PidFd(intermediate.pidfd.as_fd()), WaitIdOptions::EXITED)
        .during(|| "wait for the end of the intermediate process")?;
    cloned.map(|child| (child, socket))
}

/// Does what needs the caller's privileges, then enters the namespaces that the init must be cloned in.
fn prepare(plan: &Plan, end: &ChildEnd) -> Result<Option<PreopenedMounts>, Error> {
    let proc = Procfs::open()?;
    plan.process.oom_score_adj.apply(&proc)?;
    plan.process.raise_limits()?;
    plan.namespaces.enter_staging()?;
    let preopened = preopen(plan)?;
    let offsets = plan.time_offsets.open(&proc)?;
    chown_stdio(plan);
    let remaining = plan.namespaces.join_with_callers_privileges()?;
    enter_user_namespace(&plan.namespaces.user, end)?;
    plan.namespaces.join_remaining(&remaining)?;
    if plan.namespaces.new_time() {
        plan.time_offsets.make(offsets.as_ref())?;
    }
    if matches!(plan.namespaces.pid, PidNamespace::New) {
        // clone(2) refuses CLONE_NEWPID together with CLONE_PARENT.
        syscall::clone::unshare_process(UnshareFlags::NEWPID).during(|| "make a new PID namespace")?;
    }
    Ok(preopened)
}

/// Opens the mounts that need the caller's privileges, in a new mount namespace that the init's is copied from.
fn preopen(plan: &Plan) -> Result<Option<PreopenedMounts>, Error> {
    if !plan.privileges.mounts || !plan.namespaces.user.is_other() || plan.namespaces.mount == MountNamespace::Same {
        return Ok(None);
    }
    syscall::clone::unshare_process(UnshareFlags::NEWNS).during(|| "make a mount namespace to prepare mounts in")?;
    plan.root.stop_propagation()?;
    let preopened = PreopenedMounts::open(plan)?;
    // The init opens the procfs there; and in a user namespace it may mount a new one only where one is visible.
    mounts::uncover_proc()?;
    Ok(Some(preopened))
}

/// Changes the owner of the stdio descriptors to the container's user. Inside the user namespace that would be denied:
/// the caller's files have no owner there.
fn chown_stdio(plan: &Plan) {
    let Some(mappings) = plan.namespaces.user.mappings() else { return };
    if let Some(uid) = mappings.outer_uid(plan.process.uid()) {
        crate::stdio::chown_outside(&plan.stdio, uid);
    }
}

/// Enters the container's user namespace with all capabilities in it. The ids stay the caller's: they own the cgroup
/// that the init is cloned into. The init becomes root itself.
fn enter_user_namespace(user: &UserNamespace, end: &ChildEnd) -> Result<(), Error> {
    match user {
        UserNamespace::Same => Ok(()),
        UserNamespace::New(_) => {
            syscall::clone::unshare_process(UnshareFlags::NEWUSER).map_err(|error| {
                let limit = "/proc/sys/user/max_user_namespaces or kernel.unprivileged_userns_clone may forbid it";
                Error::system(format!("make a new user namespace ({limit})"), error)
            })?;
            // An unprivileged parent may write the maps of a dumpable process only.
            end.wait_for_maps()?;
            set_not_dumpable()
        }
        UserNamespace::Join(fd, _) => {
            // Other processes are in it already, and none of them may ptrace this one (CVE-2016-9962).
            set_not_dumpable()?;
            move_into_thread_name_spaces(fd.as_fd(), ThreadNameSpaceType::USER).during(|| "join the user namespace")
        }
    }
}

fn set_not_dumpable() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during(|| "become non-dumpable")
}

/// Joins the user namespace and the `rest` of the namespaces of a running process, and becomes root there.
pub(crate) fn enter_with_user_namespace(
    init: BorrowedFd<'_>,
    rest: ThreadNameSpaceType,
    keep_groups: bool,
) -> Result<(), Error> {
    set_not_dumpable()?;
    match move_into_thread_name_spaces(init, rest | ThreadNameSpaceType::USER) {
        // The user namespace is the caller's.
        Err(Errno::INVAL) => return join_all(init, rest),
        // One of the namespaces is the host's, in which the container's root has no privileges: the caller is in it
        // too, or the container never joined it.
        Err(Errno::PERM) => {
            join_all(init, ThreadNameSpaceType::USER)?;
            for kind in rest.iter() {
                match move_into_thread_name_spaces(init, kind) {
                    Err(Errno::PERM) if kind != ThreadNameSpaceType::MOUNT => {}
                    result => result.during(|| format!("join the container's namespace {kind:?}"))?,
                }
            }
        }
        Err(Errno::SRCH) => return Err(Error::not_running("join the container's namespaces")),
        result => result.during(|| "join the container's namespaces")?,
    }
    become_root_in_user_namespace(keep_groups)
}

fn join_all(init: BorrowedFd<'_>, kinds: ThreadNameSpaceType) -> Result<(), Error> {
    move_into_thread_name_spaces(init, kinds).during(|| format!("join the container's namespaces {kinds:?}"))
}
