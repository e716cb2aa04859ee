//! A command that runs in a container, by `Exec`.
//!
//! It lives in a group of its own below the container's, so that it can be killed with all it started. Its pipes, its
//! deadline and whoever waits for it are the daemon's: when the connection ends, commands are killed. What a command left
//! running when it ended lives on, as under other engines (also without a daemon), and keeps the record until it ended, too.

use std::time::Duration;

use container::{Nascent, Progress};
use monitor_api::{Attachments, Event, ExecStarted, ExitStatus, Failure, Reply, Role};
use rustix::{
    fd::{AsFd, OwnedFd},
    process::Signal,
};

use crate::{
    clock,
    connection::Asked,
    failure::{of_container, system},
    monitor::Monitor,
    process::End,
    timer::Timer,
};

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
    /// Reaped; something it started lives on.
    Left,
}

/// See the head of this file.
pub(crate) struct Command {
    pub(crate) id: String,
    pub(crate) container: String,
    pub(crate) nascent: Nascent,
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) warnings: Vec<String>,
    pub(crate) stage: CommandStage,
    /// Why it failed.
    pub(crate) failure: Option<Failure>,
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

    pub(crate) fn advance_command(&mut self, serial: u64) {
        loop {
            let Some(command) = self.commands.get_mut(&serial) else { return };
            let CommandStage::Setting(asked) = command.stage else { return };
            match command.nascent.advance() {
                Ok(Progress::Pending | Progress::NamespacesMade) => return,
                Ok(Progress::Ready { terminal }) => command.terminal = terminal,
                Ok(Progress::Executed) => {
                    self.epoll.forget(command.nascent.sync());
                    command.stage = CommandStage::Running;
                    let answer = started(command);
                    return self.reply(asked, answer);
                }
                Err(error) => {
                    self.epoll.forget(command.nascent.sync());
                    let _ = rustix::process::pidfd_send_signal(&command.nascent.pidfd, Signal::KILL);
                    command.stage = CommandStage::Failed(asked);
                    let failure = of_container(&format!("exec in container {}", command.container), &error);
                    command.failure = Some(failure);
                    return;
                }
            }
        }
    }

    /// A child that is no container was reaped: a command's, or an orphan.
    pub(crate) fn command_reaped(&mut self, pid: i32, end: End) {
        let of_pid = |command: &Command| command.nascent.pid == pid && command.stage != CommandStage::Left;
        let Some(serial) = self.commands.iter().find(|(_, command)| of_pid(command)).map(|(serial, _)| *serial) else {
            return;
        };
        // It may have come to execve and to its end since all were heard.
        self.advance_command(serial);
        let Some(command) = self.commands.get_mut(&serial) else { return };
        let before = std::mem::replace(&mut command.stage, CommandStage::Left);
        command.terminal = None;
        let (exec, container) = (command.id.clone(), command.container.clone());
        let failure = command.failure.take();
        let oom_killed = command.nascent.group.oom_kills() > 0 && end.signal == Some(libc::SIGKILL);
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

    /// Forgets a command that was reaped once what it left has ended: looks now, and then ever more seldom. Nobody tells of
    /// it: its parent is the container's first process.
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
            |command: &Command| command.stage == CommandStage::Left && command.nascent.group.is_empty().unwrap_or(true);
        if self.commands.get(&serial).is_some_and(left)
            && let Some(command) = self.commands.remove(&serial)
        {
            self.remove_group(command.nascent.group);
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
            if let Some(command) = self.commands.get(&serial)
                && let Err(error) = command.nascent.group.kill()
            {
                eprintln!("pinmon: kill command {} of container {}: {error}", command.id, command.container);
            }
            self.sweep_command(serial);
        }
    }
}

fn started(command: &Command) -> Result<(Reply, Attachments), Failure> {
    let duplicate = |what: &str, fd: &OwnedFd| {
        let operation = || format!("exec in container {}: duplicate the {what}", command.container);
        fd.as_fd().try_clone_to_owned().map_err(|e| system(operation(), e))
    };
    let mut attachments = Attachments::new().with(Role::Pidfd, duplicate("pidfd", &command.nascent.pidfd)?);
    if let Some(terminal) = &command.terminal {
        attachments.push(Role::Terminal, duplicate("terminal", terminal)?);
    }
    let started = ExecStarted { pid: command.nascent.pid.unsigned_abs(), warnings: command.warnings.clone() };
    Ok((Reply::ExecStarted(started), attachments))
}
