//! The child of [`create`](crate::create()): from a copy of its parent to a process that only has to call execve.

use std::mem::ManuallyDrop;

use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::Mode,
    process::{DumpableBehavior, Pid, set_dumpable_behavior, setsid, umask},
};

use crate::{
    Error, Plan, descriptors,
    destination::{self, Shape},
    error::During,
    hooks,
    mounts::{self, PendingMount},
    namespaces::{self, MountNamespace, PidNamespace},
    preopened::PreopenedMounts,
    process::{FinalSteps, ReadyProcess},
    procfs::Procfs,
    rootfs, scheduling, stdio,
    sync::ChildEnd,
    terminal::{self, Terminal},
    user_namespace::become_root_in_user_namespace,
};

/// Context of the child, in addition to the plan.
pub(crate) struct InitContext<'a> {
    pub(crate) joiner: &'a cgroup::Joiner,
    pub(crate) sync: &'a ChildEnd,
    /// Whether the child is cloned into all its groups (v2), so that its cgroup namespace can be made at once.
    pub(crate) in_all_groups: bool,
    /// Whether it must first wait until its parent has placed it.
    pub(crate) wait_for_go: bool,
    /// Whether an intermediate process ([`crate::intermediate`]) cloned it and did what needs the caller's privileges.
    pub(crate) by_intermediate: bool,
    /// The mounts that the intermediate process opened.
    pub(crate) preopened: Option<&'a PreopenedMounts>,
}

/// Runs the child until execve; returns only when a step failed, or when no process is left that could start it.
pub(crate) fn run(plan: &Plan, context: &InitContext<'_>) -> i32 {
    let error = match set_up(plan, context) {
        Ok(ready) if context.sync.wait_for_start() => start(plan, &ready),
        Ok(_) => return 0,
        Err(error) => error,
    };
    context.sync.send_failure(&error);
    1
}

fn set_up<'a>(plan: &'a Plan, context: &InitContext<'_>) -> Result<ReadyProcess<'a>, Error> {
    let needed = plan.descriptors().chain(context.joiner.descriptors()).chain(context.sync.descriptors());
    let needed = needed.chain(context.preopened.into_iter().flat_map(PreopenedMounts::descriptors));
    let reset_signals = match plan.namespaces.pid {
        PidNamespace::New => syscall::signals::reset_for_waiting_init,
        _ => syscall::signals::reset_for_exec,
    };
    detach_from_parent(needed, plan.stdio.preserve_fds, reset_signals)?;
    if context.wait_for_go {
        context.sync.wait_for_go()?;
    }
    if context.by_intermediate && plan.namespaces.user.is_other() {
        become_root_in_user_namespace(plan.invocation.keep_groups)?;
    }
    context.joiner.join_early().map_err(|error| Error::system("join the cgroups", std::io::Error::other(error)))?;
    scheduling::reset_affinity();
    let proc = Procfs::open()?;
    if !context.by_intermediate {
        plan.process.oom_score_adj.apply(&proc)?;
    }
    plan.namespaces.enter()?;
    if plan.net_devices.is_some() {
        context.sync.report_namespaces()?;
    }
    plan.host_names.apply()?;
    if plan.namespaces.new_cgroup && context.in_all_groups {
        namespaces::new_cgroup_namespace()?;
    }
    let new_mount_namespace = plan.namespaces.mount == MountNamespace::New;
    if new_mount_namespace {
        plan.root.stop_propagation()?;
    }
    let root = ManuallyDrop::new(plan.root.detached()?);
    let opened_here = preopen_here(plan, context)?;
    let preopened = context.preopened.or(opened_here.as_deref());
    let mounts = ManuallyDrop::new(plan.mounts.make(preopened.map_or(&[], |preopened| &preopened.cgroups))?);
    if new_mount_namespace {
        plan.root.stop_late_propagation()?;
    }
    let enter_late = plan.hooks.before_pivot() || plan.namespaces.mount == MountNamespace::Same;
    if enter_late {
        attach_root_for_hooks(plan, root.as_fd())?;
    } else {
        rootfs::enter(root.as_fd(), plan.namespaces.mount)?;
    }
    mounts::attach_all(&mounts, root.as_fd())?;
    plan.devices.make(root.as_fd(), preopened.and_then(|preopened| preopened.devices.as_deref()))?;
    if enter_late {
        run_hooks(plan, context, &proc, root.as_fd())?;
        rootfs::change(root.as_fd(), plan.namespaces.mount)?;
    }
    let terminal = open_terminal(plan, root.as_fd(), &proc)?;
    plan.sysctls.apply(&proc)?;
    make_cwd(plan, root.as_fd())?;
    plan.masks.apply(root.as_fd())?;
    mounts.iter().try_for_each(PendingMount::finish)?;
    plan.root.seal(root.as_fd())?;
    stdio::apply(&plan.stdio, terminal.as_ref(), root.as_fd(), plan.process.uid())?;
    let needs_admin = plan.namespaces.new_cgroup && !context.in_all_groups;
    let mut keep = still_needed(context.sync, context.joiner, terminal.as_ref());
    keep.extend(plan.hooks.descriptors().filter(|_| plan.hooks.at_start()));
    let last = FinalSteps { keep, preserve_fds: plan.stdio.preserve_fds, needs_admin };
    let ready = plan.process.become_user(root.as_fd(), &proc, &last)?;
    join_memory_cgroup(plan, context)?;
    terminal::hand_over(terminal, context.sync)?;
    Ok(ready)
}

/// Gives up what a child must not have of its parent's: the first step of an init and of an exec'd process.
pub(crate) fn detach_from_parent<'fd>(
    needed: impl Iterator<Item = BorrowedFd<'fd>>,
    preserve_fds: u32,
    reset_signals: fn(),
) -> Result<(), Error> {
    // Until execve, no process of the container may inspect or ptrace this one (CVE-2016-9962).
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during(|| "become non-dumpable")?;
    descriptors::keep_only(needed, preserve_fds)?;
    reset_signals();
    setsid().during(|| "start a new session")?;
    // Files are created with exactly the modes given; the process's own umask is set together with its user.
    umask(Mode::empty());
    Ok(())
}

/// Returns the descriptors that the last steps need: the socket, the memory cgroup to join, the terminal to hand over.
pub(crate) fn still_needed<'a>(
    sync: &'a ChildEnd,
    joiner: &'a cgroup::Joiner,
    terminal: Option<&'a Terminal>,
) -> Vec<BorrowedFd<'a>> {
    joiner
        .memory_descriptor()
        .into_iter()
        .chain(sync.descriptors())
        .chain(terminal.map(|terminal| terminal.master.as_fd()))
        .collect()
}

/// Opens mounts for a caller without the host's privileges, which may do so only now, in the container's namespaces.
fn preopen_here(plan: &Plan, context: &InitContext<'_>) -> Result<Option<ManuallyDrop<PreopenedMounts>>, Error> {
    // In a mount namespace that other processes are in, nothing may be mounted even temporarily.
    let can_make_nodes = plan.privileges.device_nodes && plan.namespaces.mount == MountNamespace::New;
    if can_make_nodes || context.preopened.is_some() {
        return Ok(None);
    }
    PreopenedMounts::open(plan).map(ManuallyDrop::new).map(Some)
}

/// Attaches the root at its path on the host: until the hooks have run, or permanently where the mount namespace is the
/// caller's.
fn attach_root_for_hooks(plan: &Plan, root: BorrowedFd<'_>) -> Result<(), Error> {
    if plan.namespaces.mount != MountNamespace::Same {
        mounts::uncover_proc()?;
    }
    plan.root.attach_on_host(root, &plan.invocation.state.bundle)
}

/// Runs createRuntime and createContainer hooks: all mounts are made but no path is masked yet, and the host's files
/// are still visible.
fn run_hooks(plan: &Plan, context: &InitContext<'_>, proc: &Procfs, root: BorrowedFd<'_>) -> Result<(), Error> {
    if !plan.hooks.before_pivot() {
        return Ok(());
    }
    if plan.hooks.in_runtime() {
        context.sync.report_namespaces()?;
    }
    if plan.hooks.in_container() {
        rustix::process::fchdir(root).during(|| "enter the container's root for createContainer hooks")?;
    }
    plan.hooks.create_container(&state(plan, hooks::own_pid(proc)?))
}

fn state(plan: &Plan, pid: Pid) -> oci::State {
    oci::State { pid: pid.as_raw_pid(), ..plan.invocation.state.clone() }
}

fn start(plan: &Plan, ready: &ReadyProcess<'_>) -> Error {
    if !plan.hooks.at_start() {
        return ready.execute(|_| Ok(()));
    }
    let state = state(plan, rustix::process::getpid());
    ready.execute(|environment| plan.hooks.start_container(&state, environment))
}

fn open_terminal(plan: &Plan, root: BorrowedFd<'_>, proc: &Procfs) -> Result<Option<Terminal>, Error> {
    let Some(size) = plan.process.terminal else { return Ok(None) };
    let terminal = terminal::open(root, proc, size, &plan.stdio)?;
    terminal.control()?;
    terminal.mount_console(root)?;
    Ok(Some(terminal))
}

/// Creates the working directory if the image does not have it, as every runtime does.
fn make_cwd(plan: &Plan, root: BorrowedFd<'_>) -> Result<(), Error> {
    match rustix::fs::stat(plan.process.cwd.as_c_str()) {
        Err(rustix::io::Errno::NOENT) => destination::find_or_make(root, &plan.process.cwd, Shape::Directory).map(drop),
        // Any other error is reported when the process enters it.
        _ => Ok(()),
    }
}

/// Joins the memory cgroup as late as possible, so that the setup is not charged to the container; but before the
/// start, because tools that watch a created container (for OOM kills, memory usage) read its cgroups from the kernel
/// now.
fn join_memory_cgroup(plan: &Plan, context: &InitContext<'_>) -> Result<(), Error> {
    context
        .joiner
        .join_memory()
        .map_err(|error| Error::system("join the memory cgroup", std::io::Error::other(error)))?;
    // A waiting child must hold no descriptor of the host's cgroups.
    context.joiner.memory_descriptor().map(syscall::descriptors::close_one);
    if plan.namespaces.new_cgroup && !context.in_all_groups {
        namespaces::new_cgroup_namespace()?;
    }
    Ok(())
}
