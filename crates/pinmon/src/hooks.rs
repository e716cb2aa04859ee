//! Hooks that run in the runtime's namespaces: prestart, createRuntime, poststart, poststop (runtime-spec config.md).
//!
//! They are programs of the node and may take long, while the monitor does not see the files of the node and must not
//! wait. So a child enters the mount namespace of the node, runs the hooks one after the other, and exits.
//!
//! ```text
//! monitor ──clone──▶ runner: setns(node's mounts) ──spawn──▶ hook, hook, …
//!    │ ◀── errors, then end of file ──┘      if the monitor closes its end, the running hook is killed
//! ```
//!
//! createContainer hooks run in the child of the container, with the mounts of the node in its namespace;
//! startContainer hooks run inside the container. A hook without a timeout has [`DEFAULT_TIMEOUT`].

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use container::hooks::{HookPoint, Hooks};
use monitor_api::{Failure, PendingHooks};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    thread::{ThreadNameSpaceType, move_into_thread_name_spaces},
};
use syscall::clone::Clone3;

use crate::{
    event::{Epoll, Token},
    failure::system,
    link::RequestId,
    services::Services,
};

/// Timeout in seconds of a hook without its own, so that no request waits forever.
pub(crate) const DEFAULT_TIMEOUT: i64 = 120;
/// Total timeout of the hooks inside an adopted container, which is not known.
pub(crate) const UNKNOWN_TIME: Duration = Duration::from_secs(600);
/// Maximum number of bytes of errors read from a runner.
const OUTPUT_MAX: usize = 16 * 1024;

/// What to do after the hooks have run.
pub(crate) enum AfterHooks {
    /// Continue or fail the setup of the container with this serial number.
    Create(u64),
    /// Answer this `Start`.
    Started(RequestId),
    /// Answer these requests.
    Stopped(Vec<(RequestId, Result<(), Failure>)>),
}

/// A child that runs hooks.
struct HookRunner {
    after: AfterHooks,
    container: String,
    /// End of file is the exit of the runner.
    socket: OwnedFd,
    output: Vec<u8>,
}

/// Hooks that have run.
pub(crate) struct HooksEnd {
    pub(crate) after: AfterHooks,
    /// Container id.
    pub(crate) container: String,
    /// Errors of the hooks that failed.
    pub(crate) failed: Option<String>,
}

/// Children that run hooks, by serial number.
pub(crate) struct HookRunners {
    /// The mount namespace that this process was started in. Early versions did not hand it to their successors.
    pub(crate) node_mounts: Option<OwnedFd>,
    runners: BTreeMap<u64, HookRunner>,
}

/// Sets the default timeout of hooks without one.
pub(crate) fn set_default_timeouts(hooks: &mut oci::Hooks) {
    let oci::Hooks { prestart, create_runtime, create_container, start_container, poststart, poststop } = hooks;
    for list in [prestart, create_runtime, create_container, start_container, poststart, poststop] {
        list.iter_mut().for_each(|hook| {
            hook.timeout.get_or_insert(DEFAULT_TIMEOUT);
        });
    }
}

/// Returns the total timeout of the hooks that run in the child of the container, which is added to its deadline.
pub(crate) fn container_hooks_time(spec: &oci::Spec) -> Duration {
    let sum = |hooks: &[oci::Hook]| {
        let seconds = hooks.iter().map(|hook| hook.timeout.unwrap_or(DEFAULT_TIMEOUT).unsigned_abs());
        seconds.fold(0u64, u64::saturating_add).min(24 * 3600)
    };
    let longest = spec.hooks.as_ref().map_or(0, |hooks| sum(&hooks.create_container).max(sum(&hooks.start_container)));
    Duration::from_secs(longest)
}

/// Returns the hooks to run at this point, if there are any.
fn hooks_for(hooks: Option<&PendingHooks>, point: HookPoint) -> Option<(Hooks, &oci::State)> {
    let pending = hooks?;
    // They were validated at creation.
    let hooks = Hooks::parse(&pending.hooks).ok()?;
    hooks.has(point).then_some((hooks, &pending.state))
}

impl HookRunners {
    /// Creates the component. Without `node_mounts`, hooks fail.
    pub(crate) fn new(node_mounts: Option<OwnedFd>) -> Self {
        Self { node_mounts, runners: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runners.is_empty()
    }

    /// Runs the hooks of this point. Returns `after` if there are none, or if the runner could not be started.
    pub(crate) fn run(
        &mut self,
        hooks: Option<&PendingHooks>,
        point: HookPoint,
        pid: i32,
        after: AfterHooks,
        services: &mut Services,
    ) -> Result<(), (AfterHooks, Option<Failure>)> {
        let Some((hooks, state)) = hooks_for(hooks, point) else { return Err((after, None)) };
        let state = oci::State { pid, ..state.clone() };
        let operation = format!("run hooks of container {}", state.id);
        let socket = match self.clone_runner(&hooks, point, &state, services) {
            Ok(socket) => socket,
            Err(error) => return Err((after, Some(system(operation, error)))),
        };
        let serial = services.next_serial();
        self.runners.insert(serial, HookRunner { after, container: state.id, socket, output: Vec::new() });
        services.poll_unless_watched(Token::Hooks(serial), self.try_watch(serial, &services.epoll));
        Ok(())
    }

    fn clone_runner(
        &self,
        hooks: &Hooks,
        point: HookPoint,
        state: &oci::State,
        services: &Services,
    ) -> io::Result<OwnedFd> {
        let Some(node) = &self.node_mounts else {
            return Err(io::Error::other("this monitor has no mount namespace of the node; restart it"));
        };
        let flags = SocketFlags::CLOEXEC;
        let (socket, peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let cloned = Clone3::default().fork(|| {
            let mut keep_open = [0, 1, 2, node.as_raw_fd(), peer.as_raw_fd()];
            let entered = syscall::descriptors::close_all_except(&mut keep_open).and_then(|()| {
                syscall::signals::reset_for_exec();
                Ok(move_into_thread_name_spaces(node.as_fd(), ThreadNameSpaceType::MOUNT)?)
            });
            let failed = match entered {
                Ok(()) => hooks.run(point, state, peer.as_fd()).err().unwrap_or_default(),
                Err(error) => return send_errors(peer, &format!("enter the node's mount namespace: {error}")),
            };
            let text: Vec<String> = failed.iter().map(ToString::to_string).collect();
            send_errors(peer, &text.join("; "))
        });
        services.closers.cloned();
        cloned?;
        Ok(socket)
    }

    /// Watches the socket of a runner.
    pub(crate) fn try_watch(&self, serial: u64, epoll: &Epoll) -> io::Result<()> {
        self.runners.get(&serial).map_or(Ok(()), |runner| epoll.watch(&runner.socket, Token::Hooks(serial)))
    }

    /// Reads the errors of a runner. Returns its end when it has exited.
    pub(crate) fn advance(&mut self, serial: u64, epoll: &Epoll) -> Option<HooksEnd> {
        let runner = self.runners.get_mut(&serial)?;
        let mut buffer = [0u8; 1024];
        loop {
            match rustix::io::read(&runner.socket, &mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    let room = OUTPUT_MAX.saturating_sub(runner.output.len());
                    runner.output.extend_from_slice(&buffer[..count.min(room)]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => break,
            }
        }
        let HookRunner { after, container, socket, output } = self.runners.remove(&serial)?;
        epoll.forget(&socket);
        let output = String::from_utf8_lossy(&output).into_owned();
        let failed = (!output.is_empty()).then_some(output);
        if let (Some(why), AfterHooks::Stopped(_)) = (&failed, &after) {
            // The specification requires a warning, and that the lifecycle continues.
            eprintln!("pinmon: container {container}: {why}");
        }
        Some(HooksEnd { after, container, failed })
    }

    /// Whether createRuntime hooks of this container are running.
    pub(crate) fn are_creating(&self, container: u64) -> bool {
        self.creating(container).is_some()
    }

    /// Kills the running hooks of a container whose creation was given up.
    pub(crate) fn cancel(&mut self, container: u64, epoll: &Epoll) {
        if let Some(runner) = self.creating(container).and_then(|serial| self.runners.remove(&serial)) {
            epoll.forget(&runner.socket);
        }
    }

    /// Returns the runner of the createRuntime hooks of this container.
    fn creating(&self, container: u64) -> Option<u64> {
        let runs = |runner: &HookRunner| matches!(runner.after, AfterHooks::Create(serial) if serial == container);
        self.runners.iter().find(|(_, runner)| runs(runner)).map(|(serial, _)| *serial)
    }
}

/// In the runner: sends the errors of its hooks.
fn send_errors(socket: OwnedFd, text: &str) -> i32 {
    let mut file = std::fs::File::from(socket);
    let _ = file.write_all(text.as_bytes());
    i32::from(!text.is_empty())
}

/// Error of hooks that failed.
pub(crate) fn failure(container: &str, why: &str) -> container::Error {
    container::Error::new(container::ErrorKind::System, format!("hooks of container {container}: {why}"))
}
