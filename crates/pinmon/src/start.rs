//! Start of the monitor, step by step.

use std::{fmt::Display, path::Path};

use cgroup::Hierarchies;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};
use syscall::inherited;

use crate::{
    closing::Closers,
    event::{Epoll, Timers},
    hooks::HookRunners,
    inherited_limits::InheritedLimits,
    link::Link,
    monitor::{Monitor, Node, Sources},
    output::Outputs,
    priority,
    programs::Programs,
    services::Services,
    signals,
};

/// Lowest descriptor after stdio, and the number of the listener.
const FIRST: i32 = 3;

/// Starts a monitor that serves requests on the listener with this descriptor number. Its files are in `state`.
pub(crate) fn start(socket: i32, state: &Path) -> Result<Monitor, String> {
    during("run from a sealed copy in memory", container::self_exe::seal())?;
    let listener = during(&format!("take over descriptor {socket}"), inherited::take_inherited(socket))?;
    let listener = check_listener(listener)?;
    during("close inherited descriptors", inherited::close_inherited_from(FIRST + 1))?;
    let signals = signals::block()?;
    prepare_process();
    let directory = during(&format!("open {}", state.display()), open_directory(state))?;
    let outputs = during("list journals", Outputs::open(directory))?;
    let trees = during("open the cgroup trees", Hierarchies::open())?;
    let inherited_limits = InheritedLimits::prepare();
    let node_mounts = during("open the mount namespace", open_namespace())?;
    during("enter a new mount namespace", container::staging::enter_new())?;
    let closers = Closers::default();
    let services = Services {
        epoll: during("epoll", Epoll::new())?,
        timers: Timers::default(),
        link: Link::new(0, None, closers.queue.clone()),
        closers,
        serials: 0,
    };
    let node = Node { trees, inherited_limits, programs: Programs::default() };
    let hooks = HookRunners::new(Some(node_mounts));
    Ok(Monitor::new(services, Sources { listener, signals }, node, outputs, hooks))
}

fn during<T, E: Display>(operation: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{operation}: {error}"))
}

/// Requires the listener to be descriptor [`FIRST`], so that all descriptors above it can be closed.
fn check_listener(listener: OwnedFd) -> Result<OwnedFd, String> {
    use std::os::fd::AsRawFd;
    if listener.as_raw_fd() == FIRST {
        return Ok(listener);
    }
    // Descriptor 3 may be inherited, and closing from there on must not close the listener.
    Err(format!("the listener is descriptor {}; it must be {FIRST}", listener.as_raw_fd()))
}

/// Prepares the process. A step that fails here is not fatal.
fn prepare_process() {
    // Leave the session and terminal of the daemon. EPERM: this process already leads a session.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"pinmon");
    priority::run_before_containers();
    let _ = rustix::process::chdir(c"/");
    rustix::process::umask(Mode::empty());
    // Become the parent of orphans of containers that share the PID namespace of the monitor.
    if let Err(errno) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        eprintln!("pinmon: become a subreaper: {errno}");
    }
}

fn open_directory(state: &Path) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open(state, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_namespace() -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
