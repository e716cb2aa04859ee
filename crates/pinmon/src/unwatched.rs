//! What epoll refused to watch.
//!
//! `fs.epoll.max_user_watches` is a limit of the user, root, which containers without a user namespace of their own
//! share. One that uses it up must not keep others from being started, executed in or logged: what cannot be watched is
//! looked at by a timer until it can.

use std::{io, time::Duration};

use crate::{
    child::{Child, Stage},
    command::CommandStage,
    monitor::Monitor,
    timer::Timer,
    token::Token,
};

/// How often it is looked at what is not watched.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// In place of a serial number: the connection to the daemon.
const CONNECTION: u64 = 0;

impl Monitor {
    /// Watches all of a container, command, maker, runner or log writer that has an event; where that fails, a timer
    /// does.
    pub(crate) fn watch(&mut self, serial: u64) {
        if let Err(error) = self.try_watch(serial) {
            eprintln!("pinmon: watch {serial}: {error}: looked at every {} ms", LOOK.as_millis());
            self.timers.within(LOOK, Timer::Watch(serial));
        }
    }

    /// The connection to the daemon.
    pub(crate) fn watch_link(&mut self) {
        self.watch(CONNECTION);
    }

    /// Its event may have come.
    pub(crate) fn look_at_unwatched(&mut self, serial: u64) {
        if serial == CONNECTION {
            self.link_ready();
        } else {
            self.advance(serial);
            self.ended_elsewhere(serial, 0);
            self.writer_ready(serial);
            self.alarm_rang(serial);
        }
        if self.try_watch(serial).is_err() {
            self.timers.within(LOOK, Timer::Watch(serial));
        }
    }

    /// Watches what there is under this number and is not watched yet.
    fn try_watch(&self, serial: u64) -> io::Result<()> {
        let token = Token::Sync(serial);
        if serial == CONNECTION {
            return self.link.as_ref().map_or(Ok(()), |link| link.watch(&self.epoll));
        }
        if let Some(child) = self.containers.get(&serial) {
            return self.watch_child(serial, child);
        }
        if let Some(command) = self.commands.get(&serial) {
            let setting = command.nascent().filter(|_| matches!(command.stage, CommandStage::Setting(_)));
            return setting.map_or(Ok(()), |nascent| self.epoll.watch(nascent.sync(), token));
        }
        if let Some(maker) = self.makers.get(&serial) {
            return self.epoll.watch(maker.line(), token);
        }
        if let Some(runner) = self.runners.get(&serial) {
            return self.epoll.watch(runner.line(), token);
        }
        if let Some(alarm) = self.writers.alarm(serial) {
            self.epoll.watch(alarm, Token::Alarm(serial))?;
        }
        let line = self.writers.line(serial);
        line.map_or(Ok(()), |(line, room)| self.epoll.rewatch(line, Token::Writer(serial), room))
    }

    fn watch_child(&self, serial: u64, child: &Child) -> io::Result<()> {
        let failing = matches!(child.stage, Stage::Failing(..));
        if let Some(nascent) = child.nascent().filter(|_| !failing) {
            self.epoll.watch(nascent.sync(), Token::Sync(serial))?;
        }
        // The end of our own children is reported by SIGCHLD.
        match child.pidfd().filter(|_| child.adopted && !child.has_ended()) {
            Some(pidfd) => self.epoll.watch(pidfd, Token::Pidfd(serial)),
            None => Ok(()),
        }
    }
}
