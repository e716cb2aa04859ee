//! The start, step by step, and the end.

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
    epoll::Epoll, inherit::Inherit, journals::Journals, monitor::Monitor, programs::Programs, terminal::Terminals,
    thaw::Thaws, timer::Timers, writers::Writers,
};

/// The first descriptor that is not a standard stream; the listener's place.
const FIRST: i32 = 3;
/// Nice value: the highest priority there is, sched(7).
const NICE: i32 = -20;
/// Slice; most turns of the event loop take less.
const SLICE: Duration = Duration::from_micros(500);
/// SIGHUP and SIGINT come from terminals that a monitor has none of; SIGTERM from whoever stops services.
const SIGNALS: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Serves on the listener with this number, with its files in `state`.
pub(crate) fn serve(socket: i32, state: &Path) -> Result<(), String> {
    during("run from a sealed copy in memory", container::own_program::seal())?;
    let listener = during(&format!("take over descriptor {socket}"), inherited::take_inherited(socket))?;
    let listener = lowest(listener)?;
    during("close what was inherited", inherited::close_inherited_from(FIRST + 1))?;
    let signals = signals()?;
    prepare_process();
    let directory = during(&format!("open {}", state.display()), open_directory(state))?;
    let journals = during("list journals", Journals::open(directory))?;
    let trees = during("open the cgroup trees", Hierarchies::open())?;
    let inherit = Inherit::prepare();
    let node_mounts = Some(during("open the mount namespace", open_namespace())?);
    during("enter a mount namespace of our own", container::staging::enter_new())?;
    let monitor = Monitor {
        epoll: during("epoll", Epoll::new())?,
        listener,
        signals,
        trees,
        node_mounts,
        inherit,
        journals,
        writers: Writers::default(),
        programs: Programs::default(),
        terminals: Terminals::default(),
        timers: Timers::default(),
        link: None,
        links: 0,
        containers: BTreeMap::new(),
        commands: BTreeMap::new(),
        makers: BTreeMap::new(),
        runners: BTreeMap::new(),
        removals: BTreeMap::new(),
        removing: VecDeque::new(),
        thaws: Thaws::default(),
        kept: BTreeMap::new(),
        unused_mounts: Default::default(),
        serials: 0,
        reaping: false,
        over: false,
        upgrade: None,
    };
    run(monitor)
}

/// Blocks what would end us, and reads it instead.
pub(crate) fn signals() -> Result<SignalFd, String> {
    syscall::signals::keep_ended_children();
    during("block signals", SignalFd::block(&SIGNALS))
}

/// Serves until nothing is held and somebody wants the end.
pub(crate) fn run(mut monitor: Monitor) -> Result<(), String> {
    during("wait for events", monitor.run())
}

fn during<T, E: Display>(operation: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{operation}: {error}"))
}

/// Moves the listener to the first place, so that all above is nobody's.
fn lowest(listener: OwnedFd) -> Result<OwnedFd, String> {
    use std::os::fd::AsRawFd;
    if listener.as_raw_fd() == FIRST {
        return Ok(listener);
    }
    // Descriptor 3 may be something inherited: closing from there on must not close the listener.
    Err(format!("the listener is descriptor {}, it must be {FIRST}", listener.as_raw_fd()))
}

/// What fails here makes the monitor no worse than it was.
fn prepare_process() {
    // A session of its own: not with the daemon's terminal. EPERM: it leads one already.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"pinmon");
    run_before_containers();
    let _ = rustix::process::chdir(c"/");
    rustix::process::umask(Mode::empty());
    // Orphans of containers that share our PID namespace come to us.
    if let Err(errno) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        eprintln!("pinmon: become a subreaper: {errno}");
    }
}

/// Runs before containers, so that their load does not delay requests about others. Processes that the monitor starts
/// have the default nice value; log writers and containers leave its autogroup. Where it is refused (without
/// `CAP_SYS_NICE`) the monitor is scheduled as any other process.
pub(crate) fn run_before_containers() {
    let _ = scheduling::run_before_others(NICE, SLICE);
    let _ = scheduling::set_autogroup_nice(NICE);
}

fn open_directory(state: &Path) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open(state, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_namespace() -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
