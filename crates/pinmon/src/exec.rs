//! A process that `Exec` executes in a container.
//!
//! It has its own cgroup below that of the container, so that it can be killed with all its descendants. The daemon
//! owns its pipes, its deadline and the wait for its exit: execs are killed when the connection to the daemon closes.
//! Descendants that an exec'd process leaves running stay alive, as with other engines, even without a daemon. The
//! record is kept until they exit.
//!
//! ```text
//!  Exec ─▶ Starting ──execve──▶ Running ──reaped──▶ Leftover ──cgroup empty──▶ removed
//!             │ a step failed, or DEADLINE: killed     ▲
//!             └──▶ Failed ──reaped, or ANSWER_AFTER────┘  the request is answered
//! ```
//!
//! The monitor never waits for it: a container can freeze or stop its exec'd processes, or take all CPU time from them,
//! even before execve. A record in Starting, Failed or Running has two descriptors, in Leftover none. Their number per
//! container is limited.

mod session;

use std::{collections::BTreeMap, io, time::Duration};

use container::Progress;
use monitor_api::{Event, ExitStatus, Failure};
use rustix::process::{Signal, pidfd_send_signal};

pub(crate) use session::{ExecHandle, ExecSession, ExecStage};

use crate::{
    clock,
    closing::{Terminal, take_unread_terminal},
    event::{Epoll, Timer, Token},
    failure::{of_container, system},
    link::RequestId,
    process::ProcessExit,
    services::Services,
};

/// Time limit to execve. It needs some milliseconds of CPU time, of which a throttled container gets little.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Time after which the request is answered although the killed process was not reaped.
const ANSWER_AFTER: Duration = Duration::from_secs(2);
/// Maximum number of execs of a container that have not reached execve, including those killed before.
const STARTING_MAX: usize = 128;
/// Maximum number of execs of a container whose leftover processes are tracked.
const LEFTOVERS_MAX: usize = 256;
/// First interval of checking whether the leftover processes have exited. It is doubled up to 10 s.
const FIRST_SWEEP: Duration = Duration::from_millis(10);
const SWEEPS_MAX: u32 = 10;

/// Execs of all containers, by serial number.
#[derive(Default)]
pub(crate) struct Execs(BTreeMap<u64, ExecSession>);

/// What a deadline of an exec means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecDue {
    /// Nothing: the exec made progress.
    Nothing,
    /// It was killed because it did not reach execve.
    Killed,
    /// It was killed earlier, and is not waited for any longer: [`Execs::finish`].
    GivenUp,
}

/// End of an exec, to be reported to the daemon.
#[derive(Debug)]
pub(crate) enum ExecEnd {
    /// It had reached execve.
    Exited(Event),
    /// It had not: the request fails.
    Failed { request_id: RequestId, container: String, failure: Failure },
}

impl Execs {
    pub(crate) fn insert(&mut self, serial: u64, exec: ExecSession) {
        self.0.insert(serial, exec);
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&ExecSession> {
        self.0.get(&serial)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &ExecSession)> {
        self.0.iter().map(|(serial, exec)| (*serial, exec))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the exec with this id, and its serial number.
    pub(crate) fn find(&self, id: &str) -> Option<(u64, &ExecSession)> {
        self.iter().find(|(_, exec)| exec.id == id)
    }

    /// Returns the serial number of the exec whose process has this pid and was not reaped.
    pub(crate) fn with_pid(&self, pid: i32) -> Option<u64> {
        self.serials(|exec| exec.has_pid(pid)).next()
    }

    /// Returns the execs that have not reached execve.
    pub(crate) fn starting(&self) -> impl Iterator<Item = u64> {
        self.serials(|exec| matches!(exec.stage, ExecStage::Starting(_)))
    }

    /// Returns the reaped execs with leftover processes.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = u64> {
        self.serials(|exec| exec.stage == ExecStage::Leftover)
    }

    /// Returns the execs that were not reaped.
    pub(crate) fn unreaped(&self) -> impl Iterator<Item = u64> {
        self.serials(|exec| exec.stage != ExecStage::Leftover)
    }

    /// Returns the execs in this container.
    pub(crate) fn in_container(&self, container: &str) -> impl Iterator<Item = u64> {
        self.serials(move |exec| exec.container == container)
    }

    fn serials(&self, matches: impl Fn(&ExecSession) -> bool) -> impl Iterator<Item = u64> {
        self.iter().filter(move |(_, exec)| matches(exec)).map(|(serial, _)| serial)
    }

    /// Forgets the execs of a container that is removed.
    pub(crate) fn forget_container(&mut self, container: &str) {
        self.0.retain(|_, exec| exec.container != container);
    }

    /// Returns why another exec in this container is refused; `None` if it is allowed.
    pub(crate) fn limit(&self, container: &str) -> Option<String> {
        let (mut starting, mut leftovers) = (0, 0);
        for exec in self.0.values().filter(|exec| exec.container == container) {
            match exec.stage {
                ExecStage::Starting(_) | ExecStage::Failed(_) => starting += 1,
                ExecStage::Leftover => leftovers += 1,
                ExecStage::Running => {}
            }
        }
        if starting >= STARTING_MAX {
            return Some(format!(
                "{starting} execs have not reached execve; is the container frozen, or out of CPU time?"
            ));
        }
        let why = || {
            format!("processes of {leftovers} completed execs are still running; end them, or restart the container")
        };
        (leftovers >= LEFTOVERS_MAX).then(why)
    }

    /// Watches the socket of an exec. If epoll refuses, a timer polls it.
    pub(crate) fn watch(&self, serial: u64, services: &mut Services) {
        services.poll_unless_watched(Token::Exec(serial), self.try_watch(serial, &services.epoll));
    }

    /// Watches the socket of an exec that has not reached execve.
    pub(crate) fn try_watch(&self, serial: u64, epoll: &Epoll) -> io::Result<()> {
        let starting = self.get(serial).filter(|exec| matches!(exec.stage, ExecStage::Starting(_)));
        let setup = starting.and_then(ExecSession::setup);
        setup.map_or(Ok(()), |setup| epoll.watch(setup.sync(), Token::Exec(serial)))
    }

    /// Handles the messages of an exec that has not reached execve.
    pub(crate) fn advance(&mut self, serial: u64, services: &mut Services) {
        loop {
            let Some(exec) = self.0.get_mut(&serial) else { return };
            let ExecStage::Starting(request_id) = exec.stage else { return };
            let Some(setup) = exec.setup_mut() else { return };
            match setup.advance() {
                Ok(Progress::Pending | Progress::NamespacesCreated) => return,
                Ok(Progress::Ready { terminal }) => {
                    exec.terminal = terminal.map(|master| Terminal::new(master, &exec.close_queue));
                }
                Ok(Progress::Executed) => {
                    let answer = match exec.started() {
                        Ok(answer) => answer,
                        Err(failure) => {
                            // It must not keep running without an owner.
                            exec.kill();
                            return self.fail(serial, failure, services);
                        }
                    };
                    exec.forget(&services.epoll);
                    exec.stage = ExecStage::Running;
                    services.timers.cancel(exec.deadline, Timer::Command(serial));
                    return services.reply(request_id, Ok(answer));
                }
                Err(error) => {
                    let failure = of_container(&format!("exec in container {}", exec.container), &error);
                    return self.fail(serial, failure, services);
                }
            }
        }
    }

    /// Kills an exec that must not reach execve any longer.
    fn fail(&mut self, serial: u64, failure: Failure, services: &mut Services) {
        let Some(exec) = self.0.get_mut(&serial) else { return };
        let ExecStage::Starting(request_id) = exec.stage else { return };
        exec.forget(&services.epoll);
        if let Some(setup) = exec.setup() {
            let _ = pidfd_send_signal(&setup.pidfd, Signal::KILL);
        }
        (exec.stage, exec.failure) = (ExecStage::Failed(request_id), Some(failure));
        services.timers.cancel(exec.deadline, Timer::Command(serial));
        services.timers.after(ANSWER_AFTER, Timer::Command(serial));
    }

    /// Handles the deadline to execve, and that of reaping a killed process.
    pub(crate) fn due(&mut self, serial: u64, services: &mut Services) -> ExecDue {
        let Some(exec) = self.get(serial) else { return ExecDue::Nothing };
        match exec.stage {
            ExecStage::Starting(_) => {
                exec.kill();
                let seconds = DEADLINE.as_secs();
                let why = format!("timed out: its process did not reach execve in {seconds} s and was killed");
                let hint = "is the container frozen, or out of CPU time?";
                let failure = system(format_args!("exec in container {}", exec.container), why);
                let failure = Failure { message: format!("{}; {hint}", failure.message), ..failure };
                self.fail(serial, failure, services);
                ExecDue::Killed
            }
            ExecStage::Failed(_) => ExecDue::GivenUp,
            ExecStage::Running | ExecStage::Leftover => ExecDue::Nothing,
        }
    }

    /// Ends an exec that was reaped, or is not waited for any longer: closes its descriptors. Its leftover processes
    /// remain.
    pub(crate) fn finish(&mut self, serial: u64, exit: ProcessExit, services: &mut Services) -> Option<ExecEnd> {
        let mut exec = self.0.remove(&serial)?;
        let close_queue = exec.close_queue.clone();
        exec.setup_mut().into_iter().for_each(|setup| take_unread_terminal(setup, &close_queue));
        let previous = std::mem::replace(&mut exec.stage, ExecStage::Leftover);
        exec.terminal = None;
        let (id, container) = (exec.id.clone(), exec.container.clone());
        let failure = exec.failure.take();
        let oom_killed = exit.signal == Some(libc::SIGKILL) && exec.group().oom_kills() > 0;
        services.timers.cancel(exec.deadline, Timer::Command(serial));
        exec.forget(&services.epoll);
        let handle = match exec.handle {
            ExecHandle::Process(setup) => ExecHandle::Group(setup.group),
            handle => handle,
        };
        self.0.insert(serial, ExecSession { handle, ..exec });
        match previous {
            ExecStage::Running => {
                let status = ExitStatus { code: exit.code, signal: exit.signal, oom_killed, at: clock::realtime() };
                Some(ExecEnd::Exited(Event::ExecExited { exec: id, container, status }))
            }
            ExecStage::Failed(request_id) | ExecStage::Starting(request_id) => {
                let ended = || system(format!("exec in container {container}"), "its process exited before execve");
                let failure = failure.unwrap_or_else(ended);
                Some(ExecEnd::Failed { request_id, container, failure })
            }
            ExecStage::Leftover => None,
        }
    }

    /// Forgets a reaped exec without leftover processes, and returns its cgroup, which must be removed.
    pub(crate) fn sweep(&mut self, serial: u64) -> Option<cgroup::Group> {
        let exec = self.get(serial).filter(|exec| exec.stage == ExecStage::Leftover)?;
        match exec.group().is_empty() {
            Ok(false) => None,
            Ok(true) | Err(_) => self.0.remove(&serial).map(ExecSession::into_group),
        }
    }

    /// Checks the leftover processes of a reaped exec again later. No event reports their exit, because their parent is
    /// the init of the container. The interval increases with the number of `tries`.
    pub(crate) fn sweep_later(&self, serial: u64, tries: u32, services: &mut Services) {
        if self.get(serial).is_some_and(|exec| exec.stage == ExecStage::Leftover) {
            services.timers.after(FIRST_SWEEP * (1 << tries), Timer::Left(serial, (tries + 1).min(SWEEPS_MAX)));
        }
    }
}
