use crate::{
    Error, Nascent, Plan,
    error::During,
    forerunner,
    init::{self, Birth},
    namespaces::{self, PidNamespace, with_children_in},
    nascent::Intermediate,
    placement::Placement,
    sync::{self, ChildEnd},
    user_namespace::UserNamespace,
};
use rustix::{
    fd::AsFd,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
    thread::UnshareFlags,
};
use syscall::clone::{Child, Clone3};

/// Makes the cgroup and clones the child, or the intermediate process of a child in a user or time namespace; returns
/// at once. The caller must be single-threaded. Where systemd makes the group the child is cloned first, and waits
/// until systemd has moved it: that blocks.
///
/// Needs Linux 5.12 (mount_setattr); `/proc` of the caller must be a procfs.
///
/// # Errors
/// [`ErrorKind::System`](crate::ErrorKind::System): the cgroup could not be made or the child not cloned; nothing stays
/// behind. What is met after the clone is reported by [`Nascent::advance`].
pub fn create(trees: &cgroup::Hierarchies, mut plan: Plan) -> Result<Nascent, Error> {
    plan.mounts.settle_cgroups(trees.is_unified());
    plan.open_sources()?;
    let group = match &plan.placement {
        Placement::Group(path) => path,
        Placement::Nowhere(path) => {
            let group = cgroup::Group::nowhere(trees, path);
            return create_in(&plan, group, true).map(|nascent| finish(nascent, plan));
        }
        Placement::Unit(unit) => return create_in_unit(trees, &plan, unit).map(|nascent| finish(nascent, plan)),
    };
    create_in_group(trees, &plan, group).map(|nascent| finish(nascent, plan))
}

/// What is done for a child once it is cloned, now or by [`Nascent::advance`].
fn finish(nascent: Nascent, plan: Plan) -> Nascent {
    let nascent = nascent.with_net_devices(plan.net_devices);
    if nascent.is_cloned() {
        let Some(rdt) = plan.intel_rdt else { return nascent };
        return match rdt.apply(nascent.pid) {
            Ok(()) => nascent,
            Err(error) => {
                rdt.undo();
                nascent.fail(error)
            }
        };
    }
    let mappings = match plan.namespaces.user {
        UserNamespace::New(mappings) => Some(mappings),
        _ => None,
    };
    nascent.with_intermediate(Some(Intermediate { mappings, intel_rdt: plan.intel_rdt, attach: false }))
}

fn create_in_group(trees: &cgroup::Hierarchies, plan: &Plan, path: &cgroup::GroupPath) -> Result<Nascent, Error> {
    let group = cgroup::Group::create(trees, path, &plan.limits)
        .map_err(|error| Error::system("create the cgroup", std::io::Error::other(error)))?;
    create_in(plan, group, trees.layout() == cgroup::Layout::V2)
}

fn create_in(plan: &Plan, group: cgroup::Group, in_all_groups: bool) -> Result<Nascent, Error> {
    let path = group.path().clone();
    match joiner(&group).and_then(|joiner| clone_init(&joiner, plan, When { in_all_groups, gate: false })) {
        Ok((child, socket)) => Ok(nascent(plan, child, socket, group)),
        // Nobody was in it yet, so that this does not wait.
        Err(error) => match group.remove() {
            Ok(()) => Err(error.within(format!("place the container in cgroup {path}"))),
            Err(also) => Err(Error { message: format!("{}; and then: {also}", error.message), ..error }),
        },
    }
}

fn nascent(plan: &Plan, child: Child, socket: rustix::fd::OwnedFd, group: cgroup::Group) -> Nascent {
    let intermediate = plan.namespaces.need_forerunner().then(Intermediate::default);
    Nascent::new(child, socket, group, true).with_intermediate(intermediate)
}

fn create_in_unit(trees: &cgroup::Hierarchies, plan: &Plan, unit: &cgroup::systemd::Unit) -> Result<Nascent, Error> {
    let (child, socket) = clone_init(&cgroup::Joiner::default(), plan, When { in_all_groups: true, gate: true })?;
    let (child, socket) = match plan.namespaces.need_forerunner() {
        true => forerunner::bring(plan, child, socket)?,
        false => (child, socket),
    };
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
        return Ok((forerunner::clone_init(plan, &birth)?, ours));
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
