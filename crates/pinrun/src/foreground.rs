//! Staying with a process until its end: signals go on to it, a terminal is relayed, its exit code is ours.

use std::{
    io::{IsTerminal, stdin, stdout},
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::AsFd,
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, WaitOptions, wait, waitid},
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize},
};
use syscall::signal_fd::SignalFd;

use crate::failure::Failure;

/// What is not sent on: what cannot be blocked, and what tells of this process's own faults and children.
const OWN: [i32; 10] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    // Of who reads our output.
    libc::SIGPIPE,
];
const BUFFER: usize = 16 << 10;

/// Signals of this process, readable; blocked before the process is made, so that none is lost.
#[derive(Debug)]
pub(crate) struct Foreground {
    signals: SignalFd,
}

impl Foreground {
    pub(crate) fn prepare() -> Result<Self, Failure> {
        let forwarded: Vec<i32> = (1..=31).filter(|signal| !OWN.contains(signal)).collect();
        let signals = SignalFd::block(&forwarded).map_err(|error| Failure::io("block signals", error))?;
        Ok(Self { signals })
    }

    /// Until the process's end: its exit code, or 128 and the signal that ended it.
    pub(crate) fn stay(self, process: &OwnedFd, terminal: Option<OwnedFd>) -> Result<u8, Failure> {
        let failed = |errno| Failure::io("wait for the process", errno);
        let mut relay = terminal.map(Relay::new).transpose()?;
        loop {
            let (signalled, ended) = {
                let mut fds = vec![
                    PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                    PollFd::new(process, PollFlags::IN),
                ];
                let input = stdin();
                if let Some(relay) = &relay {
                    relay.watch(&mut fds, input.as_fd());
                }
                match poll(&mut fds, None) {
                    Ok(_) => {}
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(failed(errno)),
                }
                (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
            };
            if let Some(relay) = &mut relay {
                relay.copy();
            }
            if signalled {
                self.forward(process, relay.as_ref())?;
            }
            if ended {
                break;
            }
        }
        let status = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED).map_err(failed)?;
        if let Some(relay) = &mut relay {
            relay.drain();
        }
        let code = status.and_then(|status| status.exit_status().or(status.terminating_signal().map(|s| 128 + s)));
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
    }

    fn forward(&self, process: &OwnedFd, relay: Option<&Relay>) -> Result<(), Failure> {
        while let Some(signal) = self.signals.read().map_err(|error| Failure::io("read signals", error))? {
            match (signal, relay) {
                (libc::SIGCHLD, _) => reap(process),
                (libc::SIGWINCH, Some(relay)) => relay.resize(),
                _ => {
                    // The process may have ended just now.
                    let _ = syscall::pidfd_signal::pidfd_signal(process, signal);
                }
            }
        }
        Ok(())
    }
}

/// Orphans that fell to this process as a subreaper; the process itself is left for its exit code.
fn reap(process: &OwnedFd) {
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if !matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None)) {
            return;
        }
        match wait(WaitOptions::NOHANG) {
            Ok(Some((_, _))) => {}
            _ => return,
        }
    }
}

/// A container's terminal on this one.
struct Relay {
    master: OwnedFd,
    /// Typed, and not yet taken.
    pending: Vec<u8>,
    input_open: bool,
    output_open: bool,
    before: Option<Termios>,
}

impl Relay {
    fn new(master: OwnedFd) -> Result<Self, Failure> {
        let failed = |errno| Failure::io("prepare the terminal", errno);
        syscall::signals::ignore_broken_pipes();
        let flags = fcntl_getfl(&master).map_err(failed)?;
        fcntl_setfl(&master, flags | OFlags::NONBLOCK).map_err(failed)?;
        let mut before = None;
        if stdin().is_terminal() {
            let found = tcgetattr(stdin()).map_err(failed)?;
            let mut raw = found.clone();
            raw.make_raw();
            before = Some(found);
            tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        }
        let relay = Self { master, pending: Vec::new(), input_open: true, output_open: true, before };
        relay.resize();
        Ok(relay)
    }

    fn resize(&self) {
        fit(&self.master);
    }

    fn watch<'fd>(&'fd self, fds: &mut Vec<PollFd<'fd>>, input: BorrowedFd<'fd>) {
        if self.input_open && self.pending.is_empty() {
            fds.push(PollFd::from_borrowed_fd(input, PollFlags::IN));
        }
        if self.output_open {
            let typed = if self.pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&self.master, PollFlags::IN | typed));
        }
    }

    /// Whatever can be copied now, both ways.
    fn copy(&mut self) {
        self.copy_output();
        if self.input_open && self.pending.is_empty() && is_readable(stdin().as_fd()) {
            let mut buffer = [0; BUFFER];
            match rustix::io::read(stdin(), &mut buffer) {
                Ok(0) => self.input_open = false,
                Ok(count) => self.pending = buffer[..count].to_vec(),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => self.input_open = false,
            }
        }
        if !self.pending.is_empty() {
            match rustix::io::write(&self.master, &self.pending) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => self.pending.clear(),
            }
        }
    }

    /// One buffer; whether there was something.
    fn copy_output(&mut self) -> bool {
        let mut buffer = [0; BUFFER];
        match rustix::io::read(&self.master, &mut buffer) {
            Ok(0) => self.output_open = false,
            Ok(count) => {
                // Whoever reads our output may be gone; the process is not ended by that.
                let _ = std::io::Write::write_all(&mut stdout(), &buffer[..count]);
                let _ = std::io::Write::flush(&mut stdout());
                return true;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // EIO: nobody has the other side open any more.
            Err(_) => self.output_open = false,
        }
        false
    }

    fn drain(&mut self) {
        while self.copy_output() {}
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The terminal may be gone; then there is nothing to put back.
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&rustix::event::Timespec::default())), Ok(1))
}

/// Gives the process's terminal the size of this one, if this is one.
pub(crate) fn fit(terminal: &OwnedFd) {
    if let Ok(size) = tcgetwinsize(stdin()) {
        // A terminal that is closed needs no size.
        let _ = tcsetwinsize(terminal, size);
    }
}

/// Whether the terminal's output goes to a pipe or a file: what reads it wants lines as they were written. A terminal
/// has them as the process's own terminal makes them.
pub(crate) fn is_piped() -> bool {
    !stdout().is_terminal()
}

/// Orphans below fall to this process, so that the process can be waited for.
pub(crate) fn become_subreaper() -> Result<(), Failure> {
    rustix::process::set_child_subreaper(Pid::from_raw(1)).map_err(|errno| Failure::io("become a subreaper", errno))
}
