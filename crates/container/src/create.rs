use crate::{
    Error, Nascent, Plan,
    error::During,
    forerunner,
    init::{self, Birth},
    namespaces::{self, PidNamespace, with_children_in},
    placement::Placement,
    sync::{self, ChildEnd},
};
use rustix::{
    fd::AsFd,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
    thread::UnshareFlags,
};
use syscall::clone::{Child, Clone3};

/// Makes the cgroup and clones the child; returns at once. The caller must be single-threaded. Where systemd makes the group
/// the child is cloned first, and waits until systemd has moved it.
///
/// Needs Linux 5.12 (mount_setattr); `/proc` of the caller must be a procfs.
///
/// # Errors
/// [`ErrorKind::System`](crate::ErrorKind::System): the cgroup could not be made or the child not cloned; nothing stays
/// behind. What the child's set-up meets is told by [`Nascent::advance`].
pub fn create(trees: &cgroup::Hierarchies, mut plan: Plan) -> Result<Nascent, Error> {
    plan.open_sources()?;
    let nascent = match &plan.placement {
        Placement::Group(path) => create_in_group(trees, &plan, path),
        Placement::Unit(unit) => create_in_unit(trees, &plan, unit),
    }?;
    if let Some(rdt) = &plan.intel_rdt
        && let Err(error) = rdt.apply(nascent.pid)
    {
        rdt.undo();
        abandon(nascent);
        return Err(error);
    }
    Ok(nascent.with_net_devices(plan.net_devices))
}

/// What failed first is what to tell.
fn abandon(nascent: Nascent) {
    let _ = pidfd_send_signal(&nascent.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(nascent.pidfd.as_fd()), WaitIdOptions::EXITED);
    let _ = nascent.group.remove();
}

fn create_in_group(trees: &cgroup::Hierarchies, plan: &Plan, path: &cgroup::GroupPath) -> Result<Nascent, Error> {
    let group = cgroup::Group::create(trees, path, &plan.limits)
        .map_err(|error| Error::system(format!("create the cgroup {path}"), std::io::Error::other(error)))?;
    let v2 = trees.layout() == cgroup::Layout::V2;
    match joiner(&group).and_then(|joiner| clone_init(&joiner, plan, When { in_all_groups: v2, gate: false })) {
        Ok((child, socket)) => Ok(Nascent::new(child, socket, group, true)),
        Err(error) => match group.remove() {
            Ok(()) => Err(error.within(format!("place the container in cgroup {path}"))),
            Err(also) => Err(Error { message: format!("{}; and then: {also}", error.message), ..error }),
        },
    }
}

fn create_in_unit(trees: &cgroup::Hierarchies, plan: &Plan, unit: &cgroup::systemd::Unit) -> Result<Nascent, Error> {
    let (child, socket) = clone_init(&cgroup::Joiner::default(), plan, When { in_all_groups: true, gate: true })?;
    match unit.start(trees, child.pid, &plan.limits) {
        Ok(group) => {
            // One that is gone already says why to who listens next.
            let _ = sync::go(socket.as_fd());
            Ok(Nascent::new(child, socket, group, true))
        }
        Err(error) => {
            let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
            let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
            Err(Error::system("create the cgroup", std::io::Error::other(error)))
        }
    }
}

fn joiner(group: &cgroup::Group) -> Result<cgroup::Joiner, Error> {
    group.joiner().map_err(|error| Error::system("open the cgroup", std::io::Error::other(error)))
}

/// When the child is in its groups.
#[derive(Clone, Copy)]
struct When {
    /// Before it makes its cgroup namespace.
    in_all_groups: bool,
    /// Once it was told so.
    gate: bool,
}

fn clone_init(joiner: &cgroup::Joiner, plan: &Plan, when: When) -> Result<(Child, rustix::fd::OwnedFd), Error> {
    let (ours, childs) = sync::pair()?;
    let listener = plan.invocation.starter.as_ref().map(|fd| fd.try_clone()).transpose();
    let childs = ChildEnd::new(childs, listener.during(|| "duplicate the listening socket")?);
    let When { in_all_groups, gate } = when;
    let birth = Birth { joiner, sync: &childs, in_all_groups, gate, forerun: false, gathered: None };
    if plan.namespaces.need_forerunner() {
        let clone = Clone3 { namespaces: None, cgroup: joiner.v2_dir() };
        return Ok((forerunner::clone_init(plan, &birth, clone)?, ours));
    }
    let clone = || {
        let new_pid = matches!(plan.namespaces.pid, PidNamespace::New);
        Clone3 { namespaces: new_pid.then_some(UnshareFlags::NEWPID), cgroup: joiner.v2_dir() }
            .fork(|| init::run(plan, &birth))
            .map_err(|error| namespaces::refused("clone the container's init", error))
    };
    let child = match &plan.namespaces.pid {
        PidNamespace::Join(fd) => with_children_in(fd.as_fd(), clone)?,
        _ => clone()?,
    };
    Ok((child, ours))
}
