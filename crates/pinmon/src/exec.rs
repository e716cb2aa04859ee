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

use std::time::Duration;

use cgroup::Group;
use container::{ContainerSetup, Progress};
use monitor_api::{Attachments, Event, ExecStarted, ExitStatus, Failure, Reply, Role};
use rustix::{
    fd::{AsFd, BorrowedFd},
    process::Signal,
};

use crate::{
    clock,
    connection::RequestId,
    failure::{of_container, system},
    monitor::Monitor,
    process::ProcessExit,
    removal::AfterRemoval,
    terminal::{Terminal, close_queue_of, take_unread_terminal},
    timer::Timer,
};

/// Time limit to execve. It needs some milliseconds of CPU time, of which a throttled container gets little.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Time after which the request is answered although the killed process was not reaped.
pub(crate) const ANSWER_AFTER: Duration = Duration::from_secs(2);
/// Maximum number of execs of a container that have not reached execve, including those killed before.
const STARTING_MAX: usize = 128;
/// Maximum number of execs of a container whose leftover processes are tracked.
const LEFTOVERS_MAX: usize = 256;
/// First interval of checking whether the leftover processes have exited. It is doubled up to 10 s.
const FIRST_SWEEP: Duration = Duration::from_millis(10);
const SWEEPS_MAX: u32 = 10;

/// Stage of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecStage {
    /// It has not reached execve.
    Starting(RequestId),
    Running,
    /// A step or execve failed. The request is answered when the process is reaped.
    Failed(RequestId),
    /// Reaped, or killed and not waited for any longer. Processes may be left over in its cgroup.
    Leftover,
}

/// Process or cgroup of an exec.
pub(crate) enum ExecHandle {
    /// Process and cgroup.
    Process(Box<ContainerSetup>),
    /// Cgroup only, in [`ExecStage::Leftover`].
    Group(Group),
}

/// A process that `Exec` executes in a container.
pub(crate) struct ExecSession {
    pub(crate) id: String,
    pub(crate) container: String,
    pub(crate) handle: ExecHandle,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) warnings: Vec<String>,
    pub(crate) stage: ExecStage,
    /// Moment of [`clock::monotonic`] by which it must have reached execve.
    pub(crate) deadline: Duration,
    /// Why it failed.
    pub(crate) failure: Option<Failure>,
}

impl ExecSession {
    /// Returns its setup, in all stages but [`ExecStage::Leftover`].
    pub(crate) fn setup(&self) -> Option<&ContainerSetup> {
        if let ExecHandle::Process(setup) = &self.handle { Some(setup) } else { None }
    }

    fn setup_mut(&mut self) -> Option<&mut ContainerSetup> {
        if let ExecHandle::Process(setup) = &mut self.handle { Some(setup) } else { None }
    }

    pub(crate) fn group(&self) -> &Group {
        match &self.handle {
            ExecHandle::Process(setup) => &setup.group,
            ExecHandle::Group(group) => group,
        }
    }

    fn into_group(self) -> Group {
        match self.handle {
            ExecHandle::Process(setup) => setup.group,
            ExecHandle::Group(group) => group,
        }
    }

    /// Kills it with all its descendants, even if they are frozen. The process is also killed by pidfd, because the
    /// container may have moved it to another cgroup.
    fn kill(&self) {
        if let Err(error) = self.group().kill() {
            eprintln!("pinmon: kill exec {} in container {}: {error}", self.id, self.container);
        }
        if let Some(setup) = self.setup() {
            let _ = rustix::process::pidfd_send_signal(&setup.pidfd, Signal::KILL);
        }
    }
}

impl Monitor {
    /// Execs that have not reached execve.
    pub(crate) fn starting_execs(&self) -> impl Iterator<Item = u64> {
        let is_starting = |(_, exec): &(&u64, &ExecSession)| matches!(exec.stage, ExecStage::Starting(_));
        self.execs.iter().filter(is_starting).map(|(serial, _)| *serial)
    }

    /// Returns the serial number of the exec with this id.
    pub(crate) fn find_exec(&self, id: &str) -> Option<u64> {
        self.execs.iter().find(|(_, exec)| exec.id == id).map(|(serial, _)| *serial)
    }

    /// Returns why another exec in this container is refused; `None` if it is allowed.
    pub(crate) fn exec_limit(&self, container: &str) -> Option<String> {
        let (mut starting, mut leftovers) = (0, 0);
        for exec in self.execs.values().filter(|exec| exec.container == container) {
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

    pub(crate) fn advance_exec(&mut self, serial: u64) {
        loop {
            let Some(exec) = self.execs.get_mut(&serial) else { return };
            let ExecStage::Starting(request_id) = exec.stage else { return };
            let Some(setup) = exec.setup_mut() else { return };
            match setup.advance() {
                Ok(Progress::Pending | Progress::NamespacesCreated) => return,
                Ok(Progress::Ready { terminal }) => {
                    let close_queue = close_queue_of(&self.terminals, &self.containers, &exec.container);
                    exec.terminal = terminal.map(|master| close_queue.terminal(master));
                }
                Ok(Progress::Executed) => {
                    let answer = match started(exec) {
                        Ok(answer) => answer,
                        Err(failure) => {
                            // It must not keep running without an owner.
                            exec.kill();
                            return self.fail_exec(serial, failure);
                        }
                    };
                    if let Some(setup) = exec.setup() {
                        self.epoll.forget(setup.sync());
                    }
                    exec.stage = ExecStage::Running;
                    self.timers.cancel(exec.deadline, Timer::Command(serial));
                    return self.reply(request_id, Ok(answer));
                }
                Err(error) => {
                    let failure = of_container(&format!("exec in container {}", exec.container), &error);
                    return self.fail_exec(serial, failure);
                }
            }
        }
    }

    /// Kills an exec that must not reach execve any longer.
    fn fail_exec(&mut self, serial: u64, failure: Failure) {
        let Some(exec) = self.execs.get_mut(&serial) else { return };
        let ExecStage::Starting(request_id) = exec.stage else { return };
        if let Some(setup) = exec.setup() {
            self.epoll.forget(setup.sync());
            let _ = rustix::process::pidfd_send_signal(&setup.pidfd, Signal::KILL);
        }
        (exec.stage, exec.failure) = (ExecStage::Failed(request_id), Some(failure));
        self.timers.cancel(exec.deadline, Timer::Command(serial));
        self.timers.after(ANSWER_AFTER, Timer::Command(serial));
    }

    /// Handles the deadline to execve, and that of reaping a killed process.
    pub(crate) fn exec_due(&mut self, serial: u64) {
        let Some(exec) = self.execs.get(&serial) else { return };
        match exec.stage {
            ExecStage::Starting(_) => {
                exec.kill();
                let seconds = DEADLINE.as_secs();
                let why = format!("timed out: its process did not reach execve in {seconds} s and was killed");
                let hint = "is the container frozen, or out of CPU time?";
                let failure = system(format_args!("exec in container {}", exec.container), why);
                let failure = Failure { message: format!("{}; {hint}", failure.message), ..failure };
                self.fail_exec(serial, failure);
                self.thaw_later(serial);
            }
            ExecStage::Failed(_) => self.finish_exec(serial, ProcessExit::UNKNOWN),
            ExecStage::Running | ExecStage::Leftover => {}
        }
    }

    /// Handles a reaped child that is not a container: an exec'd process or an orphan.
    pub(crate) fn exec_reaped(&mut self, pid: i32, exit: ProcessExit) {
        let has_pid = |exec: &ExecSession| exec.setup().is_some_and(|setup| setup.pid.as_raw_pid() == pid);
        let Some(serial) = self.execs.iter().find(|(_, exec)| has_pid(exec)).map(|(serial, _)| *serial) else {
            return;
        };
        // It may have reached execve and exited since its messages were handled.
        self.advance_exec(serial);
        if self.execs.get(&serial).is_some_and(has_pid) {
            self.finish_exec(serial, exit);
        }
    }

    /// Ends an exec that was reaped, or is not waited for any longer: closes its descriptors and answers the request.
    fn finish_exec(&mut self, serial: u64, exit: ProcessExit) {
        let Some(mut exec) = self.execs.remove(&serial) else { return };
        let close_queue = close_queue_of(&self.terminals, &self.containers, &exec.container);
        take_unread_terminal(&close_queue, exec.setup_mut());
        let previous = std::mem::replace(&mut exec.stage, ExecStage::Leftover);
        exec.terminal = None;
        let (id, container) = (exec.id.clone(), exec.container.clone());
        let failure = exec.failure.take();
        let oom_killed = exit.signal == Some(libc::SIGKILL) && exec.group().oom_kills() > 0;
        self.timers.cancel(exec.deadline, Timer::Command(serial));
        if let Some(setup) = exec.setup() {
            self.epoll.forget(setup.sync());
        }
        let handle = match exec.handle {
            ExecHandle::Process(setup) => ExecHandle::Group(setup.group),
            handle => handle,
        };
        self.execs.insert(serial, ExecSession { handle, ..exec });
        self.sweep_leftovers(serial, 0);
        match previous {
            ExecStage::Running => {
                let status = ExitStatus { code: exit.code, signal: exit.signal, oom_killed, at: clock::realtime() };
                self.notify_daemon(Event::ExecExited { exec: id, container, status });
            }
            ExecStage::Failed(request_id) | ExecStage::Starting(request_id) => {
                let ended = || system(format!("exec in container {container}"), "its process exited before execve");
                let failure = self.exec_failure(&container, failure.unwrap_or_else(ended));
                self.reply(request_id, Err(failure));
            }
            ExecStage::Leftover => {}
        }
    }

    /// Forgets a reaped exec once its leftover processes have exited, and checks again in increasing intervals. No
    /// event reports their exit, because their parent is the init of the container.
    pub(crate) fn sweep_leftovers(&mut self, serial: u64, tries: u32) {
        self.sweep_exec(serial);
        if self.execs.get(&serial).is_some_and(|exec| exec.stage == ExecStage::Leftover) {
            self.timers.after(FIRST_SWEEP * (1 << tries), Timer::Left(serial, (tries + 1).min(SWEEPS_MAX)));
        }
    }

    /// Sweeps all execs after an upgrade.
    pub(crate) fn sweep_all_leftovers(&mut self) {
        let leftovers = |(_, exec): &(&u64, &ExecSession)| exec.stage == ExecStage::Leftover;
        let serials: Vec<u64> = self.execs.iter().filter(leftovers).map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.sweep_leftovers(serial, 0);
        }
    }

    /// Forgets a reaped exec without leftover processes, and removes its cgroup.
    pub(crate) fn sweep_exec(&mut self, serial: u64) {
        let leftovers =
            |exec: &ExecSession| exec.stage == ExecStage::Leftover && exec.group().is_empty().unwrap_or(true);
        if self.execs.get(&serial).is_some_and(leftovers)
            && let Some(exec) = self.execs.remove(&serial)
        {
            self.remove_group(exec.into_group(), AfterRemoval::Nothing);
        }
    }

    /// Kills all execs, because the connection to the daemon closed.
    pub(crate) fn kill_execs(&mut self) {
        self.kill_matching_execs(|exec| exec.stage != ExecStage::Leftover);
    }

    /// Kills the execs of a container that exited.
    pub(crate) fn kill_execs_of(&mut self, container: &str) {
        self.kill_matching_execs(|exec| exec.container == container);
    }

    fn kill_matching_execs(&mut self, matches: impl Fn(&ExecSession) -> bool) {
        let serials: Vec<u64> =
            self.execs.iter().filter(|(_, exec)| matches(exec)).map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.execs.get(&serial).into_iter().for_each(ExecSession::kill);
            self.thaw_later(serial);
            self.sweep_exec(serial);
        }
    }
}

fn started(exec: &ExecSession) -> Result<(Reply, Attachments), Failure> {
    let duplicate = |object: &str, fd: BorrowedFd<'_>| {
        let failed = |cause| {
            let cause = format_args!("duplicate the {object}: {cause}");
            system(format_args!("exec in container {}", exec.container), cause)
        };
        fd.try_clone_to_owned().map_err(|e: std::io::Error| failed(e))
    };
    let Some(setup) = exec.setup() else { return Err(system("exec", "its process is unknown")) };
    let mut attachments = Attachments::new().with(Role::Pidfd, duplicate("pidfd", setup.pidfd.as_fd())?);
    if let Some(terminal) = &exec.terminal {
        attachments.push(Role::Terminal, duplicate("terminal", terminal.as_fd())?);
    }
    let started = ExecStarted { pid: setup.pid.as_raw_pid().unsigned_abs(), warnings: exec.warnings.clone() };
    Ok((Reply::ExecStarted(started), attachments))
}
