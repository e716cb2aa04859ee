//! The child of [`create`](crate::create()): from a copy of the monitor to a container that only has to execve.

use std::mem::ManuallyDrop;

use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::Mode,
    process::{DumpableBehavior, set_dumpable_behavior, setsid, umask},
};

use crate::{
    Error, Plan, descriptors,
    destination::{self, Shape},
    error::During,
    forerunner::become_its_root,
    gathered::Gathered,
    hooks,
    mounts::{self, Made},
    namespaces::{self, MountNamespace, PidNamespace},
    process::{Last, Ready},
    procfs::Procfs,
    rootfs, scheduling, standard,
    sync::ChildEnd,
    terminal::{self, Terminal},
};

/// What the child gets beside the plan.
pub(crate) struct Birth<'a> {
    pub(crate) joiner: &'a cgroup::Joiner,
    pub(crate) sync: &'a ChildEnd,
    /// Whether the child is in all its groups from its birth (v2), so that its cgroup namespace can be made at once.
    pub(crate) in_all_groups: bool,
    /// Whether it must wait to be told that it is.
    pub(crate) gate: bool,
    /// Whether somebody went ahead ([`crate::forerunner`]), and did what needs the caller's rights.
    pub(crate) forerun: bool,
    /// What that one brought.
    pub(crate) gathered: Option<&'a Gathered>,
}

/// The whole life of the child; returns only when it failed, or when nobody is left who could start it.
pub(crate) fn run(plan: &Plan, birth: &Birth<'_>) -> i32 {
    let error = match set_up(plan, birth) {
        Ok(ready) if birth.sync.wait() => start(plan, &ready),
        Ok(_) => return 0,
        Err(error) => error,
    };
    birth.sync.failed(&error);
    1
}

fn set_up<'a>(plan: &'a Plan, birth: &Birth<'_>) -> Result<Ready<'a>, Error> {
    let needed = plan.descriptors().chain(birth.joiner.descriptors()).chain(birth.sync.descriptors());
    let needed = needed.chain(birth.gathered.into_iter().flat_map(Gathered::descriptors));
    let reset_signals = match plan.namespaces.pid {
        PidNamespace::New => syscall::signals::reset_for_waiting_init,
        _ => syscall::signals::reset_for_exec,
    };
    detach_from_parent(needed, plan.stdio.preserve, reset_signals)?;
    if birth.gate {
        birth.sync.wait_for_go()?;
    }
    if birth.forerun && plan.namespaces.user.is_other() {
        become_its_root(plan.invocation.keep_groups)?;
    }
    birth.joiner.join_early().map_err(|error| Error::system("join the cgroups", std::io::Error::other(error)))?;
    scheduling::reset_affinity();
    let proc = Procfs::open()?;
    if !birth.forerun {
        plan.process.oom_score_adj.apply(&proc)?;
    }
    plan.namespaces.enter()?;
    if plan.net_devices.is_some() {
        birth.sync.show_namespaces()?;
    }
    plan.host_names.apply()?;
    if plan.namespaces.new_cgroup && birth.in_all_groups {
        namespaces::new_cgroup_namespace()?;
    }
    let own_mounts = plan.namespaces.mount == MountNamespace::New;
    if own_mounts {
        plan.root.part_from_host()?;
    }
    let root = ManuallyDrop::new(plan.root.take()?);
    let here = gather_here(plan, birth)?;
    let gathered = birth.gathered.or(here.as_deref());
    let made = ManuallyDrop::new(plan.mounts.make(gathered)?);
    if own_mounts {
        plan.root.part_from_host_at_last()?;
    }
    let late = plan.hooks.before_pivot() || plan.namespaces.mount == MountNamespace::Same;
    if late {
        show_root(plan, root.as_fd())?;
    } else {
        rootfs::enter(root.as_fd(), plan.namespaces.mount)?;
    }
    mounts::attach_all(&made, root.as_fd())?;
    plan.devices.make(root.as_fd(), gathered.and_then(|gathered| gathered.devices.as_deref()))?;
    if late {
        run_hooks(plan, birth, &proc, root.as_fd())?;
        rootfs::change(root.as_fd(), plan.namespaces.mount)?;
    }
    let terminal = open_terminal(plan, root.as_fd(), &proc)?;
    plan.sysctls.apply(&proc)?;
    make_cwd(plan, root.as_fd())?;
    plan.masks.apply(root.as_fd())?;
    made.iter().try_for_each(Made::finish)?;
    plan.root.seal(root.as_fd())?;
    standard::apply(&plan.stdio, terminal.as_ref(), root.as_fd(), plan.process.uid())?;
    let admin = plan.namespaces.new_cgroup && !birth.in_all_groups;
    let mut keep = still_needed(birth.sync, birth.joiner, terminal.as_ref());
    keep.extend(plan.hooks.descriptors().filter(|_| plan.hooks.at_start()));
    let last = Last { keep, preserve: plan.stdio.preserve, admin };
    let ready = plan.process.become_user(root.as_fd(), &proc, &last)?;
    join_last(plan, birth)?;
    terminal::hand_over(terminal, birth.sync)?;
    Ok(ready)
}

/// First of all, in a container and for a command: what the child must not have of the parent's.
pub(crate) fn detach_from_parent<'fd>(
    needed: impl Iterator<Item = BorrowedFd<'fd>>,
    preserve: u32,
    reset_signals: fn(),
) -> Result<(), Error> {
    // Until execve, nobody inside may look into this process or ptrace it (CVE-2016-9962).
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during(|| "become non-dumpable")?;
    descriptors::keep_only(needed, preserve)?;
    reset_signals();
    setsid().during(|| "start a new session")?;
    // Modes of what is created are taken as they are; the process gets its own mask with its user.
    umask(Mode::empty());
    Ok(())
}

/// Descriptors for the last steps: the socket, the group still to join (memory), the terminal to hand over.
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

/// A caller without the machine's rights has what it may have of the host's only now, in the container's namespaces.
fn gather_here(plan: &Plan, birth: &Birth<'_>) -> Result<Option<ManuallyDrop<Gathered>>, Error> {
    // In a mount namespace that others are in nothing is mounted for a moment.
    let all = plan.rights.nodes && plan.namespaces.mount == MountNamespace::New;
    if all || birth.gathered.is_some() {
        return Ok(None);
    }
    Gathered::of(plan).map(ManuallyDrop::new).map(Some)
}

/// On the host's path, for hooks, or for good where the mount namespace is the caller's.
fn show_root(plan: &Plan, root: BorrowedFd<'_>) -> Result<(), Error> {
    if plan.namespaces.mount != MountNamespace::Same {
        mounts::uncover_proc()?;
    }
    plan.root.show(root, &plan.invocation.state.bundle)
}

/// The container is whole but for what is hidden from it, and the host's files are still there.
fn run_hooks(plan: &Plan, birth: &Birth<'_>, proc: &Procfs, root: BorrowedFd<'_>) -> Result<(), Error> {
    if !plan.hooks.before_pivot() {
        return Ok(());
    }
    if plan.hooks.in_runtime() {
        birth.sync.show_namespaces()?;
    }
    if plan.hooks.in_container() {
        rustix::process::fchdir(root).during(|| "enter the container's root for createContainer hooks")?;
    }
    plan.hooks.create_container(&state(plan, hooks::own_pid(proc)?))
}

fn state(plan: &Plan, pid: i32) -> oci::State {
    oci::State { pid, ..plan.invocation.state.clone() }
}

fn start(plan: &Plan, ready: &Ready<'_>) -> Error {
    if !plan.hooks.at_start() {
        return ready.execute(|_| Ok(()));
    }
    let state = state(plan, rustix::process::getpid().as_raw_nonzero().get());
    ready.execute(|environment| plan.hooks.start_container(&state, environment))
}

fn open_terminal(plan: &Plan, root: BorrowedFd<'_>, proc: &Procfs) -> Result<Option<Terminal>, Error> {
    let Some(size) = plan.process.terminal else { return Ok(None) };
    let terminal = terminal::open(root, proc, size, &plan.stdio)?;
    terminal.control()?;
    terminal.mount_console(root)?;
    Ok(Some(terminal))
}

/// A working directory that the image lacks is made, as every runtime does.
fn make_cwd(plan: &Plan, root: BorrowedFd<'_>) -> Result<(), Error> {
    match rustix::fs::stat(plan.process.cwd.as_c_str()) {
        Err(rustix::io::Errno::NOENT) => destination::find_or_make(root, &plan.process.cwd, Shape::Directory).map(drop),
        // The process will tell of any other trouble in its own name.
        _ => Ok(()),
    }
}

/// Memory is joined as late as it can be, so that the set-up is not counted against the limit; but not after the start:
/// who watches a created container (for its OOM kills, its use of memory) asks the kernel for its groups now.
fn join_last(plan: &Plan, birth: &Birth<'_>) -> Result<(), Error> {
    birth
        .joiner
        .join_memory()
        .map_err(|error| Error::system("join the memory cgroup", std::io::Error::other(error)))?;
    // What waits has no way to the groups of the host.
    birth.joiner.memory_descriptor().map(syscall::descriptors::close_one);
    if plan.namespaces.new_cgroup && !birth.in_all_groups {
        namespaces::new_cgroup_namespace()?;
    }
    Ok(())
}
