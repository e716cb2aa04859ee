//! A command that runs in a container, by `Exec`.
//!
//! It lives in a group of its own below the container's, so that it can be killed with all it started. Its pipes, its
//! deadline and whoever waits for it are the daemon's: when the connection ends, commands are killed. What a command
//! left running when it ended lives on, as under other engines (also without a daemon), and keeps the record until it
//! ended, too.
//!
//! ```text
//!  Exec ─▶ Setting ──execve──▶ Running ──reaped──▶ Left ──group empty──▶ forgotten
//!             │ a step failed, or DEADLINE: killed    ▲
//!             └──▶ Failed ──reaped, or ANSWER_AFTER───┘  the request is answered
//! ```
//!
//! Nothing waits for it: a container can freeze its commands, stop them or take all CPU time from them, also before
//! execve. A record in Setting, Failed or Running has two descriptors, in Left none; how many a container may have is
//! bounded.

use std::time::Duration;

use cgroup::Group;
use container::{Nascent, Progress};
use monitor_api::{Attachments, Event, ExecStarted, ExitStatus, Failure, Reply, Role};
use rustix::{
    fd::{AsFd, BorrowedFd},
    process::Signal,
};

use crate::{
    clock,
    connection::Asked,
    failure::{of_container, system},
    monitor::Monitor,
    process::End,
    removal::Then,
    terminal::{Terminal, closing_of, take_unread_terminal},
    timer::Timer,
};

/// Longest way to execve: some milliseconds of CPU time, of which a throttled container gets little.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// How long one that was killed may take to be reaped before the request is answered all the same.
pub(crate) const ANSWER_AFTER: Duration = Duration::from_secs(2);
/// Most commands of a container that are on their way to execve, or were killed there.
const SETTING_MAX: usize = 128;
/// Most commands of a container whose leftover processes are known.
const LEFT_MAX: usize = 256;
/// When it is looked first whether what a command left has ended; twice as late each time, to 10 s.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LOOKS_MAX: u32 = 10;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStage {
    /// On its way to execve.
    Setting(Asked),
    Running,
    /// A step or execve failed, which is told when it was reaped.
    Failed(Asked),
    /// Reaped, or killed and not waited for any longer; something of it may live on.
    Left,
}

/// What is held of a command.
pub(crate) enum Held {
    /// Its process and its group.
    Process(Box<Nascent>),
    /// Its group, in [`CommandStage::Left`].
    Group(Group),
}

/// See the head of this file.
pub(crate) struct Command {
    pub(crate) id: String,
    pub(crate) container: String,
    pub(crate) held: Held,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) warnings: Vec<String>,
    pub(crate) stage: CommandStage,
    /// Moment of [`clock::monotonic`] at which it must have come to execve.
    pub(crate) deadline: Duration,
    /// Why it failed.
    pub(crate) failure: Option<Failure>,
}

impl Command {
    /// Its process, while it is known.
    pub(crate) fn nascent(&self) -> Option<&Nascent> {
        if let Held::Process(nascent) = &self.held { Some(nascent) } else { None }
    }

    fn nascent_mut(&mut self) -> Option<&mut Nascent> {
        if let Held::Process(nascent) = &mut self.held { Some(nascent) } else { None }
    }

    pub(crate) fn group(&self) -> &Group {
        match &self.held {
            Held::Process(nascent) => &nascent.group,
            Held::Group(group) => group,
        }
    }

    fn into_group(self) -> Group {
        match self.held {
            Held::Process(nascent) => nascent.group,
            Held::Group(group) => group,
        }
    }

    /// Kills it with all it started; a frozen one, too. It may have been moved out of its group.
    fn kill(&self) {
        if let Err(error) = self.group().kill() {
            eprintln!("pinmon: kill command {} of container {}: {error}", self.id, self.container);
        }
        if let Some(nascent) = self.nascent() {
            let _ = rustix::process::pidfd_send_signal(&nascent.pidfd, Signal::KILL);
        }
    }
}

impl Monitor {
    /// Commands that are not at execve yet.
    pub(crate) fn new_commands(&self) -> impl Iterator<Item = u64> {
        let new = |(_, command): &(&u64, &Command)| matches!(command.stage, CommandStage::Setting(_));
        self.commands.iter().filter(new).map(|(serial, _)| *serial)
    }

    /// The command of this id.
    pub(crate) fn find_command(&self, id: &str) -> Option<u64> {
        self.commands.iter().find(|(_, command)| command.id == id).map(|(serial, _)| *serial)
    }

    /// Why a container may have no further command; `None`: it may.
    pub(crate) fn too_many_commands(&self, container: &str) -> Option<String> {
        let (mut setting, mut left) = (0, 0);
        for command in self.commands.values().filter(|command| command.container == container) {
            match command.stage {
                CommandStage::Setting(_) | CommandStage::Failed(_) => setting += 1,
                CommandStage::Left => left += 1,
                CommandStage::Running => {}
            }
        }
        if setting >= SETTING_MAX {
            return Some(format!("{setting} commands are on their way to execve; is it frozen, or out of CPU time?"));
        }
        let why = || format!("processes of {left} commands that ended still run in it; end them, or restart it");
        (left >= LEFT_MAX).then(why)
    }

    pub(crate) fn advance_command(&mut self, serial: u64) {
        loop {
            let Some(command) = self.commands.get_mut(&serial) else { return };
            let CommandStage::Setting(asked) = command.stage else { return };
            let Some(nascent) = command.nascent_mut() else { return };
            match nascent.advance() {
                Ok(Progress::Pending | Progress::NamespacesMade) => return,
                Ok(Progress::Ready { terminal }) => {
                    let closing = closing_of(&self.terminals, &self.containers, &command.container);
                    command.terminal = terminal.map(|master| closing.own(master));
                }
                Ok(Progress::Executed) => {
                    let answer = match started(command) {
                        Ok(answer) => answer,
                        Err(failure) => {
                            // It would run on, and be nobody's.
                            command.kill();
                            return self.command_failed(serial, failure);
                        }
                    };
                    if let Some(nascent) = command.nascent() {
                        self.epoll.forget(nascent.sync());
                    }
                    command.stage = CommandStage::Running;
                    self.timers.cancel(command.deadline, Timer::Command(serial));
                    return self.reply(asked, Ok(answer));
                }
                Err(error) => {
                    let failure = of_container(&format!("exec in container {}", command.container), &error);
                    return self.command_failed(serial, failure);
                }
            }
        }
    }

    /// It shall not come to execve any more.
    fn command_failed(&mut self, serial: u64, failure: Failure) {
        let Some(command) = self.commands.get_mut(&serial) else { return };
        let CommandStage::Setting(asked) = command.stage else { return };
        if let Some(nascent) = command.nascent() {
            self.epoll.forget(nascent.sync());
            let _ = rustix::process::pidfd_send_signal(&nascent.pidfd, Signal::KILL);
        }
        (command.stage, command.failure) = (CommandStage::Failed(asked), Some(failure));
        self.timers.cancel(command.deadline, Timer::Command(serial));
        self.timers.after(ANSWER_AFTER, Timer::Command(serial));
    }

    /// It did not come to execve in time, or what was killed was not reaped in time.
    pub(crate) fn command_due(&mut self, serial: u64) {
        let Some(command) = self.commands.get(&serial) else { return };
        match command.stage {
            CommandStage::Setting(_) => {
                command.kill();
                let seconds = DEADLINE.as_secs();
                let why = format!("its process did not come to execve in {seconds} s and was killed");
                let hint = "is the container frozen, or out of CPU time?";
                let failure = system(format!("exec in container {}: timed out", command.container), why);
                let failure = Failure::new(failure.kind, format!("{}; {hint}", failure.message));
                self.command_failed(serial, failure);
                self.thaw_later(serial);
            }
            CommandStage::Failed(_) => self.command_over(serial, End::UNKNOWN),
            CommandStage::Running | CommandStage::Left => {}
        }
    }

    /// A child that is no container was reaped: a command's, or an orphan.
    pub(crate) fn command_reaped(&mut self, pid: i32, end: End) {
        let of_pid = |command: &Command| command.nascent().is_some_and(|nascent| nascent.pid == pid);
        let Some(serial) = self.commands.iter().find(|(_, command)| of_pid(command)).map(|(serial, _)| *serial) else {
            return;
        };
        // It may have come to execve and to its end since all were heard.
        self.advance_command(serial);
        if self.commands.get(&serial).is_some_and(of_pid) {
            self.command_over(serial, end);
        }
    }

    /// It was reaped, or is not waited for any longer: its descriptors are closed, and the caller that waits is
    /// answered.
    fn command_over(&mut self, serial: u64, end: End) {
        let Some(mut command) = self.commands.remove(&serial) else { return };
        let closing = closing_of(&self.terminals, &self.containers, &command.container);
        take_unread_terminal(&closing, command.nascent_mut());
        let before = std::mem::replace(&mut command.stage, CommandStage::Left);
        command.terminal = None;
        let (exec, container) = (command.id.clone(), command.container.clone());
        let failure = command.failure.take();
        let oom_killed = end.signal == Some(libc::SIGKILL) && command.group().oom_kills() > 0;
        self.timers.cancel(command.deadline, Timer::Command(serial));
        if let Some(nascent) = command.nascent() {
            self.epoll.forget(nascent.sync());
        }
        let held = match command.held {
            Held::Process(nascent) => Held::Group(nascent.group),
            held => held,
        };
        self.commands.insert(serial, Command { held, ..command });
        self.look_after_left(serial, 0);
        match before {
            CommandStage::Running => {
                let status = ExitStatus { code: end.code, signal: end.signal, oom_killed, at: clock::realtime() };
                self.tell(Event::ExecExited { exec, container, status });
            }
            CommandStage::Failed(asked) | CommandStage::Setting(asked) => {
                let ended = || system(format!("exec in container {container}"), "its process ended before execve");
                let failure = self.exec_failure(&container, failure.unwrap_or_else(ended));
                self.reply(asked, Err(failure));
            }
            CommandStage::Left => {}
        }
    }

    /// Forgets a command that was reaped once what it left has ended: looks now, and then ever more seldom. Nobody
    /// tells of it: its parent is the container's first process.
    pub(crate) fn look_after_left(&mut self, serial: u64, tries: u32) {
        self.sweep_command(serial);
        if self.commands.get(&serial).is_some_and(|command| command.stage == CommandStage::Left) {
            self.timers.after(FIRST_LOOK * (1 << tries), Timer::Left(serial, (tries + 1).min(LOOKS_MAX)));
        }
    }

    /// In a program that took over.
    pub(crate) fn look_after_all_left(&mut self) {
        let left = |(_, command): &(&u64, &Command)| command.stage == CommandStage::Left;
        let serials: Vec<u64> = self.commands.iter().filter(left).map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.look_after_left(serial, 0);
        }
    }

    /// Forgets a command that was reaped and left nothing.
    pub(crate) fn sweep_command(&mut self, serial: u64) {
        let left =
            |command: &Command| command.stage == CommandStage::Left && command.group().is_empty().unwrap_or(true);
        if self.commands.get(&serial).is_some_and(left)
            && let Some(command) = self.commands.remove(&serial)
        {
            self.remove_group(command.into_group(), Then::Nothing);
        }
    }

    /// Kills all commands that run: the connection is gone.
    pub(crate) fn end_commands(&mut self) {
        self.kill_commands(|command| command.stage != CommandStage::Left);
    }

    /// A container ended: its commands are gone or go with it.
    pub(crate) fn end_commands_of(&mut self, container: &str) {
        self.kill_commands(|command| command.container == container);
    }

    fn kill_commands(&mut self, which: impl Fn(&Command) -> bool) {
        let serials: Vec<u64> =
            self.commands.iter().filter(|(_, command)| which(command)).map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.commands.get(&serial).into_iter().for_each(Command::kill);
            self.thaw_later(serial);
            self.sweep_command(serial);
        }
    }
}

fn started(command: &Command) -> Result<(Reply, Attachments), Failure> {
    let duplicate = |what: &str, fd: BorrowedFd<'_>| {
        let operation = || format!("exec in container {}: duplicate the {what}", command.container);
        fd.try_clone_to_owned().map_err(|e| system(operation(), e))
    };
    let Some(nascent) = command.nascent() else { return Err(system("exec", "its process is not known any more")) };
    let mut attachments = Attachments::new().with(Role::Pidfd, duplicate("pidfd", nascent.pidfd.as_fd())?);
    if let Some(terminal) = &command.terminal {
        attachments.push(Role::Terminal, duplicate("terminal", terminal.as_fd())?);
    }
    let started = ExecStarted { pid: nascent.pid.unsigned_abs(), warnings: command.warnings.clone() };
    Ok((Reply::ExecStarted(started), attachments))
}
