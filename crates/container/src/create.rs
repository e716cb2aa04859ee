use crate::{
    ContainerSetup, Error, Plan,
    error::During,
    init::{self, InitContext},
    intermediate,
    namespaces::{self, PidNamespace, with_children_in},
    placement::Placement,
    setup::Intermediate,
    sync::{self, ChildEnd},
    user_namespace::UserNamespace,
};
use rustix::{
    fd::AsFd,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
    thread::UnshareFlags,
};
use syscall::clone::{Child, Clone3};

/// Makes the cgroup and clones the child, or the intermediate process of a child in a user or time namespace. Returns
/// immediately, except where systemd makes the cgroup: there the child is cloned first, and the call blocks until
/// systemd has moved it.
///
/// The caller must be single-threaded, and its `/proc` must be a procfs. Needs Linux 5.12 (mount_setattr).
///
/// # Errors
/// [`ErrorKind::System`](crate::ErrorKind::System): the cgroup could not be made or the child not cloned; everything is
/// rolled back. Errors after the clone are reported by [`ContainerSetup::advance`].
pub fn create(trees: &cgroup::Hierarchies, mut plan: Plan) -> Result<ContainerSetup, Error> {
    plan.mounts.choose_cgroup_version(trees.is_unified());
    plan.open_sources()?;
    let group = match &plan.placement {
        Placement::Group(path) => path,
        Placement::Callers(path) => {
            let group = cgroup::Group::without_directory(trees, path);
            return create_in(&plan, group, true).map(|setup| finish(setup, plan));
        }
        Placement::Unit(unit) => return create_in_unit(trees, &plan, unit).map(|setup| finish(setup, plan)),
    };
    create_in_group(trees, &plan, group).map(|setup| finish(setup, plan))
}

/// Does the parent's steps for a child that was cloned, or leaves them to [`ContainerSetup::advance`] where an
/// intermediate process still has to clone it.
fn finish(setup: ContainerSetup, plan: Plan) -> ContainerSetup {
    let setup = setup.with_net_devices(plan.net_devices);
    if setup.is_cloned() {
        let Some(rdt) = plan.intel_rdt else { return setup };
        return match rdt.apply(setup.pid) {
            Ok(()) => setup,
            Err(error) => {
                rdt.undo();
                setup.fail(error)
            }
        };
    }
    let mappings = match plan.namespaces.user {
        UserNamespace::New(mappings) => Some(mappings),
        _ => None,
    };
    setup.with_intermediate(Some(Intermediate { mappings, intel_rdt: plan.intel_rdt, attach: false }))
}

fn create_in_group(
    trees: &cgroup::Hierarchies,
    plan: &Plan,
    path: &cgroup::GroupPath,
) -> Result<ContainerSetup, Error> {
    let group = cgroup::Group::create(trees, path, &plan.limits)
        .map_err(|error| Error::system("create the cgroup", std::io::Error::other(error)))?;
    create_in(plan, group, trees.layout() == cgroup::Layout::V2)
}

fn create_in(plan: &Plan, group: cgroup::Group, in_all_groups: bool) -> Result<ContainerSetup, Error> {
    let path = group.path().clone();
    match joiner(&group).and_then(|joiner| clone_init(&joiner, plan, JoinTiming { in_all_groups, wait_for_go: false }))
    {
        Ok((child, socket)) => Ok(new_setup(plan, child, socket, group)),
        // No process was in the group yet, so removing it does not block.
        Err(error) => match group.remove() {
            Ok(()) => Err(error.within(format!("place the container in cgroup {path}"))),
            Err(removal) => Err(error.and_then(removal)),
        },
    }
}

fn new_setup(plan: &Plan, child: Child, socket: rustix::fd::OwnedFd, group: cgroup::Group) -> ContainerSetup {
    let intermediate = plan.namespaces.needs_intermediate().then(Intermediate::default);
    ContainerSetup::new(child, socket, group, true).with_intermediate(intermediate)
}

fn create_in_unit(
    trees: &cgroup::Hierarchies,
    plan: &Plan,
    unit: &cgroup::systemd::Unit,
) -> Result<ContainerSetup, Error> {
    let (child, socket) =
        clone_init(&cgroup::Joiner::default(), plan, JoinTiming { in_all_groups: true, wait_for_go: true })?;
    let (child, socket) = match plan.namespaces.needs_intermediate() {
        true => intermediate::wait_for_init(plan, child, socket)?,
        false => (child, socket),
    };
    match unit.start(trees, child.pid, &plan.limits) {
        Ok(group) => {
            // One that has exited already has sent its error, which `advance` returns.
            let _ = sync::send_go(socket.as_fd());
            Ok(ContainerSetup::new(child, socket, group, true))
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

/// When the child has joined all its cgroups.
#[derive(Clone, Copy)]
struct JoinTiming {
    /// Before it makes its cgroup namespace.
    in_all_groups: bool,
    /// Only after its parent has sent `G`.
    wait_for_go: bool,
}

fn clone_init(joiner: &cgroup::Joiner, plan: &Plan, timing: JoinTiming) -> Result<(Child, rustix::fd::OwnedFd), Error> {
    let (ours, child_socket) = sync::pair()?;
    let listener = plan.invocation.start_listener.as_ref().map(|fd| fd.try_clone()).transpose();
    let child_end = ChildEnd::new(child_socket, listener.during(|| "duplicate the listening socket")?);
    let JoinTiming { in_all_groups, wait_for_go } = timing;
    let context =
        InitContext { joiner, sync: &child_end, in_all_groups, wait_for_go, by_intermediate: false, preopened: None };
    if plan.namespaces.needs_intermediate() {
        return Ok((intermediate::clone_init(plan, &context)?, ours));
    }
    let clone = || {
        let new_pid = matches!(plan.namespaces.pid, PidNamespace::New);
        Clone3 { namespaces: new_pid.then_some(UnshareFlags::NEWPID), cgroup: joiner.v2_dir() }
            .fork(|| init::run(plan, &context))
            .map_err(|error| namespaces::creation_error("clone the container's init", error))
    };
    let child = match &plan.namespaces.pid {
        PidNamespace::Join(fd) => with_children_in(fd.as_fd(), clone)?,
        _ => clone()?,
    };
    Ok((child, ours))
}
