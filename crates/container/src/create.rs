use crate::{
    Error, Nascent, Plan,
    error::During,
    init::{self, Birth},
    namespaces::{PidNamespace, with_children_in},
    sync::{self, ChildEnd},
};
use rustix::{fd::AsFd, thread::UnshareFlags};
use syscall::clone::{Child, Clone3};

/// Makes the cgroup and clones the child; returns at once. The caller must be single-threaded.
///
/// Needs Linux 5.12 (mount_setattr); `/proc` of the caller must be a procfs.
///
/// # Errors
/// [`ErrorKind::System`](crate::ErrorKind::System): the cgroup could not be made or the child not cloned; nothing stays
/// behind. What the child's set-up meets is told by [`Nascent::advance`].
pub fn create(trees: &cgroup::Hierarchies, mut plan: Plan) -> Result<Nascent, Error> {
    plan.open_sources()?;
    let group = cgroup::Group::create(trees, &plan.group, &plan.limits)
        .map_err(|error| Error::system(format!("create the cgroup {}", plan.group), std::io::Error::other(error)))?;
    match clone_init(&group, &plan, trees.layout() == cgroup::Layout::V2) {
        Ok((child, socket)) => Ok(Nascent::new(child, socket, group, true)),
        Err(error) => match group.remove() {
            Ok(()) => Err(error),
            Err(also) => Err(Error { message: format!("{}; and then: {also}", error.message), ..error }),
        },
    }
}

fn clone_init(group: &cgroup::Group, plan: &Plan, v2: bool) -> Result<(Child, rustix::fd::OwnedFd), Error> {
    let joiner = group.joiner().map_err(|error| Error::system("open the cgroup", std::io::Error::other(error)))?;
    let (ours, childs) = sync::pair()?;
    let listener = plan.invocation.starter.as_ref().map(|fd| fd.try_clone()).transpose();
    let childs = ChildEnd::new(childs, listener.during(|| "duplicate the listening socket")?);
    let birth = Birth { joiner: &joiner, sync: &childs, in_all_groups: v2 };
    let clone = || {
        let new_pid = matches!(plan.namespaces.pid, PidNamespace::New);
        Clone3 { namespaces: new_pid.then_some(UnshareFlags::NEWPID), cgroup: joiner.v2_dir() }
            .fork(|| init::run(plan, &birth))
            .during(|| format!("clone the container's init into cgroup {}", group.path()))
    };
    let child = match &plan.namespaces.pid {
        PidNamespace::Join(fd) => with_children_in(fd.as_fd(), clone)?,
        _ => clone()?,
    };
    Ok((child, ours))
}
