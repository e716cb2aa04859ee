//! Who goes ahead of a container's process where that must be *born* in a namespace: a process that enters the user
//! namespace (or makes the time namespace), clones the container's process as its sibling, hands it over, and ends.
//!
//! ```text
//! runtime ──clone──▶ forerunner: with the caller's rights   join what others own; device nodes, v1 cgroup trees
//!    │                   │       user namespace             unshare, wait for the maps; or setns
//!    │                   │       as its root                join what it owns; time namespace; new PID namespace
//!    │                   └─clone(CLONE_PARENT)─▶ init: the same steps as of any container
//!    ◀── pid, pidfd ──────┘
//! ```
//!
//! Nothing of this is on the way of a container that has neither.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{DumpableBehavior, WaitId, WaitIdOptions, set_dumpable_behavior, waitid},
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
    id_mappings::IdMappings,
    init::{self, Birth},
    mounts,
    namespaces::{MountNamespace, PidNamespace},
    procfs::Procfs,
    start,
    sync::{self, ChildEnd, Said},
    user_namespace::{UserNamespace, write_maps},
};

/// One that was sent.
pub(crate) struct Forerunner {
    process: Child,
    line: OwnedFd,
}

/// Sends a process ahead that has `find` clone a sibling of it.
///
/// # Errors
/// Those of the clone.
pub(crate) fn send(clone: Clone3<'_>, ahead: impl FnOnce(&ChildEnd) -> Result<Child, Error>) -> io::Result<Forerunner> {
    let (line, theirs) = sync::pair().map_err(io::Error::other)?;
    let theirs = ChildEnd::new(theirs, None);
    let process = clone.fork(|| match ahead(&theirs).and_then(|child| theirs.born(&child)) {
        Ok(()) => 0,
        Err(error) => {
            theirs.failed(&error);
            1
        }
    })?;
    Ok(Forerunner { process, line })
}

impl Forerunner {
    /// Waits for what it was sent for. `mappings` are those of a user namespace that it makes.
    pub(crate) fn bring(self, mappings: Option<&IdMappings>) -> Result<Child, Error> {
        let born = self.attend(mappings);
        // It waits for no more than this.
        drop(self.line);
        waitid(WaitId::PidFd(self.process.pidfd.as_fd()), WaitIdOptions::EXITED)
            .during(|| "wait for the end of the forerunner")?;
        born
    }

    fn attend(&self, mappings: Option<&IdMappings>) -> Result<Child, Error> {
        loop {
            match sync::listen(self.line.as_fd())? {
                Said::Nothing => start::wait(&self.line)?,
                Said::Unmapped => {
                    mappings.map_or(Ok(()), |mappings| write_maps(mappings, self.process.pid))?;
                    // One that is gone already says why to who listens next.
                    let _ = sync::go(self.line.as_fd());
                }
                Said::Born(pid, pidfd) => return Ok(Child { pid, pidfd }),
                Said::Failed(error) => return Err(error),
                Said::NamespacesMade | Said::Made(_) | Said::Ready(_) | Said::End => {
                    return Err(Error::system("wait for the container's process: its forerunner ended", Errno::CHILD));
                }
            }
        }
    }
}

/// The forerunner of a container's init.
pub(crate) fn clone_init(plan: &Plan, birth: &Birth<'_>, clone: Clone3<'_>) -> Result<Child, Error> {
    let sent = send(clone, |end| {
        let needed = plan.descriptors().chain(birth.joiner.descriptors()).chain(birth.sync.descriptors());
        let needed = needed.chain(plan.namespaces.forerunners_descriptors()).chain([end.as_fd()]);
        descriptors::keep_only(needed, plan.stdio.preserve)?;
        let gathered = go_ahead(plan, end)?;
        let birth = Birth { gathered: gathered.as_ref(), forerun: true, ..*birth };
        Clone3::default().fork_sibling(|| init::run(plan, &birth)).during(|| "clone the container's init")
    });
    sent.during(|| "clone the forerunner of the container's init")?.bring(plan.namespaces.user.mappings())
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

/// Gives the standard descriptors to the container's user while that is possible: inside, nobody owns the caller's files.
fn give_stdio(plan: &Plan) {
    let Some(mappings) = plan.namespaces.user.mappings() else { return };
    if let Some(uid) = mappings.outer_uid(plan.process.uid()) {
        crate::standard::give_outside(&plan.stdio, uid);
    }
}

/// Into the container's user namespace, as its root.
fn enter_user_namespace(user: &UserNamespace, end: &ChildEnd) -> Result<(), Error> {
    match user {
        UserNamespace::Same => return Ok(()),
        UserNamespace::New(_) => {
            syscall::clone::unshare_process(UnshareFlags::NEWUSER).map_err(|error| {
                let limit = "/proc/sys/user/max_user_namespaces or kernel.unprivileged_userns_clone may forbid it";
                Error::system(format!("make a new user namespace ({limit})"), error)
            })?;
            // Whose maps an unprivileged parent can write is only a process that may be looked into.
            end.wait_for_maps()?;
            not_dumpable()?;
        }
        UserNamespace::Join(fd, _) => {
            // Others are in it already, and none of them may look into this process (CVE-2016-9962).
            not_dumpable()?;
            move_into_thread_name_spaces(fd.as_fd(), ThreadNameSpaceType::USER).during(|| "join the user namespace")?;
        }
    }
    become_its_root()
}

fn not_dumpable() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during(|| "become non-dumpable")
}

/// User and group 0 of the user namespace that was just entered; with all capabilities in it.
pub(crate) fn become_its_root() -> Result<(), Error> {
    let (uid, gid) = (rustix::fs::Uid::ROOT, rustix::fs::Gid::ROOT);
    match set_thread_groups(&[]) {
        // Denied where an unprivileged user made the namespace.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(Error::system("leave the supplementary groups", errno)),
    }
    let mapped = |what| format!("become {what} 0 of the user namespace (is it mapped? what is set up belongs to it)");
    set_thread_res_gid(gid, gid, gid).during(|| mapped("group"))?;
    set_thread_res_uid(uid, uid, uid).during(|| mapped("user"))
}

/// Joins namespaces of a running process, its user namespace among them, and becomes root there. `rest` are those beside
/// the user namespace.
pub(crate) fn enter_with_user_namespace(init: BorrowedFd<'_>, rest: ThreadNameSpaceType) -> Result<(), Error> {
    not_dumpable()?;
    match move_into_thread_name_spaces(init, rest | ThreadNameSpaceType::USER) {
        // It is the caller's own.
        Err(Errno::INVAL) => return join_all(init, rest),
        // A namespace is the host's, in which the container's root has no rights: it is the caller's, too, or never was joined.
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
    become_its_root()
}

fn join_all(init: BorrowedFd<'_>, kinds: ThreadNameSpaceType) -> Result<(), Error> {
    move_into_thread_name_spaces(init, kinds).during(|| format!("join the container's namespaces {kinds:?}"))
}
