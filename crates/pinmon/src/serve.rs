//! Start and end of the monitor, step by step.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    path::Path,
    time::Duration,
};

use cgroup::Hierarchies;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};
use syscall::{inherited, scheduling, signal_fd::SignalFd};

use crate::{
    epoll::Epoll, inherited_limits::InheritedLimits, journals::Journals, monitor::Monitor, programs::Programs,
    terminal::Terminals, thaw::Thaws, timer::Timers, writers::Writers,
};

/// Lowest descriptor after stdio, and the number of the listener.
const FIRST: i32 = 3;
/// Nice value: the highest priority, see sched(7).
const NICE: i32 = -20;
/// Time slice. Most iterations of the event loop take less.
const SLICE: Duration = Duration::from_micros(500);
/// SIGHUP and SIGINT come from a terminal, and a monitor has no terminal; SIGTERM comes from a service manager.
const SIGNALS: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Serves requests on the listener with this descriptor number. The files of the monitor are in `state`.
pub(crate) fn serve(socket: i32, state: &Path) -> Result<(), String> {
    during("run from a sealed copy in memory", container::self_exe::seal())?;
    let listener = during(&format!("take over descriptor {socket}"), inherited::take_inherited(socket))?;
    let listener = check_listener(listener)?;
    during("close inherited descriptors", inherited::close_inherited_from(FIRST + 1))?;
    let signals = signals()?;
    prepare_process();
    let directory = during(&format!("open {}", state.display()), open_directory(state))?;
    let journals = during("list journals", Journals::open(directory))?;
    let trees = during("open the cgroup trees", Hierarchies::open())?;
    let inherited_limits = InheritedLimits::prepare();
    let node_mounts = Some(during("open the mount namespace", open_namespace())?);
    during("enter a new mount namespace", container::staging::enter_new())?;
    let monitor = Monitor {
        epoll: during("epoll", Epoll::new())?,
        listener,
        signals,
        trees,
        node_mounts,
        inherited_limits,
        journals,
        writers: Writers::default(),
        programs: Programs::default(),
        terminals: Terminals::default(),
        timers: Timers::default(),
        link: None,
        links: 0,
        containers: BTreeMap::new(),
        execs: BTreeMap::new(),
        makers: BTreeMap::new(),
        runners: BTreeMap::new(),
        removals: BTreeMap::new(),
        ready_removals: VecDeque::new(),
        thaws: Thaws::default(),
        keyed_descriptors: BTreeMap::new(),
        unused_mounts: Default::default(),
        serials: 0,
        reaping: false,
        should_exit: false,
        upgrade: None,
    };
    run(monitor)
}

/// Blocks the termination signals and SIGCHLD, and returns a signalfd that reads them.
pub(crate) fn signals() -> Result<SignalFd, String> {
    syscall::signals::reset_sigchld();
    during("block signals", SignalFd::block(&SIGNALS))
}

/// Runs the event loop until the monitor holds nothing and is requested to exit.
pub(crate) fn run(mut monitor: Monitor) -> Result<(), String> {
    during("wait for events", monitor.run())
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
    run_before_containers();
    let _ = rustix::process::chdir(c"/");
    rustix::process::umask(Mode::empty());
    // Become the parent of orphans of containers that share the PID namespace of the monitor.
    if let Err(errno) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        eprintln!("pinmon: become a subreaper: {errno}");
    }
}

/// Gives the monitor precedence over containers, so that their load does not delay requests about others.
///
/// Processes that the monitor starts have the default nice value; log writers and containers leave its autogroup. If
/// the kernel refuses it (without `CAP_SYS_NICE`), the monitor is scheduled as any other process.
pub(crate) fn run_before_containers() {
    let _ = scheduling::prioritize_thread(NICE, SLICE);
    let _ = scheduling::set_autogroup_nice(NICE);
}

fn open_directory(state: &Path) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open(state, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_namespace() -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
