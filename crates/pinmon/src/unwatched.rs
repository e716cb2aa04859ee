//! Objects that epoll refused to watch.
//!
//! `fs.epoll.max_user_watches` is a limit per user, and containers without a user namespace share it with root. A
//! container that exhausts it must not prevent others from being started, executed in or logged. Objects that cannot be
//! watched are polled by a timer until they can be.

use std::{io, time::Duration};

use crate::{
    child::{Child, Stage},
    exec::ExecStage,
    monitor::Monitor,
    timer::Timer,
    token::Token,
};

/// Polling interval.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of the connection to the daemon, in place of a serial number.
const CONNECTION: u64 = 0;

impl Monitor {
    /// Watches the descriptors of a container, exec, maker, hook runner or log writer. If epoll refuses, a timer polls
    /// them.
    pub(crate) fn watch(&mut self, serial: u64) {
        if let Err(error) = self.try_watch(serial) {
            eprintln!("pinmon: watch object {serial}: {error}; polled every {} ms", POLL_INTERVAL.as_millis());
            self.timers.within(POLL_INTERVAL, Timer::Watch(serial));
        }
    }

    /// Watches the connection to the daemon.
    pub(crate) fn watch_link(&mut self) {
        self.watch(CONNECTION);
    }

    /// Handles possible events of an object that is not watched.
    pub(crate) fn poll_unwatched(&mut self, serial: u64) {
        if serial == CONNECTION {
            self.link_ready();
        } else {
            self.advance(serial);
            self.check_exit(serial, 0);
            self.writer_ready(serial);
            self.alarm_expired(serial);
        }
        if self.try_watch(serial).is_err() {
            self.timers.within(POLL_INTERVAL, Timer::Watch(serial));
        }
    }

    /// Watches the descriptors of this object that are not watched yet.
    fn try_watch(&self, serial: u64) -> io::Result<()> {
        let token = Token::Sync(serial);
        if serial == CONNECTION {
            return self.link.as_ref().map_or(Ok(()), |link| link.watch(&self.epoll));
        }
        if let Some(child) = self.containers.get(&serial) {
            return self.watch_child(serial, child);
        }
        if let Some(exec) = self.execs.get(&serial) {
            let starting = exec.setup().filter(|_| matches!(exec.stage, ExecStage::Starting(_)));
            return starting.map_or(Ok(()), |setup| self.epoll.watch(setup.sync(), token));
        }
        if let Some(maker) = self.makers.get(&serial) {
            return self.epoll.watch(maker.socket(), token);
        }
        if let Some(runner) = self.runners.get(&serial) {
            return self.epoll.watch(runner.socket(), token);
        }
        if let Some(alarm) = self.writers.alarm(serial) {
            self.epoll.watch(alarm, Token::Alarm(serial))?;
        }
        let channel = self.writers.channel(serial);
        channel.map_or(Ok(()), |(channel, room)| self.epoll.rewatch(channel, Token::Writer(serial), room))
    }

    fn watch_child(&self, serial: u64, child: &Child) -> io::Result<()> {
        let failing = matches!(child.stage, Stage::Failing(..));
        if let Some(setup) = child.setup().filter(|_| !failing) {
            self.epoll.watch(setup.sync(), Token::Sync(serial))?;
        }
        // The exit of a child is reported by SIGCHLD.
        match child.pidfd().filter(|_| child.adopted && !child.has_ended()) {
            Some(pidfd) => self.epoll.watch(pidfd, Token::Pidfd(serial)),
            None => Ok(()),
        }
    }
}
