//! Waits for a process in the foreground: forwards signals, relays its terminal, and returns its exit code.

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
use syscall::{signal_fd::SignalFd, terminal_output::read_terminal};

use crate::failure::Failure;

/// Signals that are not forwarded: those that cannot be blocked, and those that this process causes itself.
const NOT_FORWARDED: [i32; 10] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    // Caused by the reader of this process's output.
    libc::SIGPIPE,
];
const BUFFER: usize = 16 << 10;

/// A signalfd of the forwarded signals, which are blocked before the process is created, so that none is lost.
#[derive(Debug)]
pub(crate) struct Foreground {
    signals: SignalFd,
}

impl Foreground {
    pub(crate) fn prepare() -> Result<Self, Failure> {
        let forwarded: Vec<i32> = (1..=31).filter(|signal| !NOT_FORWARDED.contains(signal)).collect();
        let signals = SignalFd::block(&forwarded).map_err(|error| Failure::io("block signals", error))?;
        Ok(Self { signals })
    }

    /// Waits for the process to exit and returns its exit code, or 128 plus the number of the signal that killed it.
    pub(crate) fn wait(self, process: &OwnedFd, terminal: Option<OwnedFd>) -> Result<u8, Failure> {
        let failed = |errno| Failure::io("wait for the process", errno);
        let mut relay = terminal.map(Relay::new).transpose()?;
        let code = loop {
            let (signalled, exited) = {
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
            if signalled && let Some(code) = self.forward(process, relay.as_ref())? {
                break Some(code);
            }
            if exited {
                break exit_code(process, WaitIdOptions::EXITED).map_err(failed)?;
            }
        };
        if let Some(relay) = &mut relay {
            relay.drain();
        }
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
    }

    /// Handles the signals that have arrived. Returns the exit code if the process was reaped.
    fn forward(&self, process: &OwnedFd, relay: Option<&Relay>) -> Result<Option<i32>, Failure> {
        while let Some(signal) = self.signals.read().map_err(|error| Failure::io("read signals", error))? {
            match (signal, relay) {
                (libc::SIGCHLD, _) => {
                    if let Some(code) = reap(process) {
                        return Ok(Some(code));
                    }
                }
                (libc::SIGWINCH, Some(relay)) => relay.resize(),
                _ => {
                    // The process may have exited already.
                    let _ = syscall::pidfd_signal::pidfd_signal(process, signal);
                }
            }
        }
        Ok(None)
    }
}

/// Returns the exit code of a child, or 128 plus the number of the signal that killed it; `None` if it is running.
fn exit_code(process: &OwnedFd, options: WaitIdOptions) -> rustix::io::Result<Option<i32>> {
    let status = waitid(WaitId::PidFd(process.as_fd()), options)?;
    Ok(status.and_then(|status| status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal))))
}

/// Reaps orphans that were reparented to this process as a subreaper. `process` may exit at any moment, so that it is
/// reaped in place of an orphan: then its exit code is returned.
fn reap(process: &OwnedFd) -> Option<i32> {
    let without_reaping = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while exit_code(process, without_reaping) == Ok(None) {
        let (_, status) = wait(WaitOptions::NOHANG).ok().flatten()?;
        if exit_code(process, without_reaping) == Err(Errno::CHILD) {
            return status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
        }
    }
    None
}

/// Copies data between the container's terminal and this process's stdio.
struct Relay {
    master: OwnedFd,
    /// Input that was read and not yet written to the terminal.
    pending: Vec<u8>,
    input_open: bool,
    output_open: bool,
    before: Option<Termios>,
}

impl Relay {
    fn new(master: OwnedFd) -> Result<Self, Failure> {
        let failed = |errno| Failure::io("prepare the terminal", errno);
        syscall::signals::ignore_sigpipe();
        let flags = fcntl_getfl(&master).map_err(failed)?;
        fcntl_setfl(&master, flags | OFlags::NONBLOCK).map_err(failed)?;
        let mut before = None;
        if stdin().is_terminal() {
            let original = tcgetattr(stdin()).map_err(failed)?;
            let mut raw = original.clone();
            raw.make_raw();
            before = Some(original);
            tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        }
        let relay = Self { master, pending: Vec::new(), input_open: true, output_open: true, before };
        relay.resize();
        Ok(relay)
    }

    fn resize(&self) {
        copy_window_size(&self.master);
    }

    fn watch<'fd>(&'fd self, fds: &mut Vec<PollFd<'fd>>, input: BorrowedFd<'fd>) {
        if self.input_open && self.pending.is_empty() {
            fds.push(PollFd::from_borrowed_fd(input, PollFlags::IN));
        }
        if self.output_open {
            let output = if self.pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&self.master, PollFlags::IN | output));
        }
    }

    /// Copies what can be copied without blocking, in both directions.
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

    /// Copies one buffer of output; returns whether there was any.
    fn copy_output(&mut self) -> bool {
        let mut buffer = [0; BUFFER];
        match read_terminal(&self.master, &mut buffer) {
            Ok(0) => self.output_open = false,
            Ok(count) => {
                // If the reader of the output has exited, the process still keeps running.
                let _ = std::io::Write::write_all(&mut stdout(), &buffer[..count]);
                let _ = std::io::Write::flush(&mut stdout());
                return true;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
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
            // This fails only if the terminal no longer exists.
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&rustix::event::Timespec::default())), Ok(1))
}

/// Copies the window size of standard input to `terminal`, if standard input is a terminal.
pub(crate) fn copy_window_size(terminal: &OwnedFd) {
    if let Ok(size) = tcgetwinsize(stdin()) {
        // This fails only if the terminal is closed.
        let _ = tcsetwinsize(terminal, size);
    }
}

/// Reports whether the relayed output goes to a pipe or a file. Their readers expect line ends as the process wrote
/// them; a terminal expects them as the process's terminal converts them.
pub(crate) fn is_piped() -> bool {
    !stdout().is_terminal()
}

/// Makes this process a subreaper (PR_SET_CHILD_SUBREAPER), so that it can wait for the container's init.
pub(crate) fn become_subreaper() -> Result<(), Failure> {
    rustix::process::set_child_subreaper(Pid::from_raw(1)).map_err(|errno| Failure::io("become a subreaper", errno))
}

#[cfg(test)]
mod tests {
    use rustix::process::{PidfdFlags, pidfd_open};
    use testbed::{Namespaces, on_a_node};

    use super::*;

    #[test]
    fn an_exit_code_is_returned_although_orphans_are_reaped_at_that_moment() {
        // In a process of its own: what is reaped could be a child of another test.
        on_a_node(Namespaces::PROCESSES, || {
            for round in 0..500 {
                #[expect(clippy::zombie_processes, reason = "reaped below")]
                let child = std::process::Command::new("sh").args(["-c", "exit 17"]).spawn().expect("a child");
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
                let process = pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd");
                let exited = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                // As if the signals of orphans arrived without a pause.
                let code = loop {
                    if let Some(code) = reap(&process).or_else(|| exit_code(&process, exited).expect("a child")) {
                        break code;
                    }
                };
                assert_eq!(code, 17, "{round}");
            }
        });
    }
}
