//! Signals with the default action to end the process.
//!
//! The kernel does not deliver them to the first process of a PID namespace, which the module usually is, unless that
//! handles them. A thread reads them and ends the process with 128 plus the number of the signal, whatever the module
//! does at that moment. So compiled code needs no check for an interruption, which would cost time in every loop.

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use syscall::signal_fd::SignalFd;
use wasmtime::{Result, error::Context};

/// Signals of signal(7) with the action `Term` that other processes send: SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2,
/// SIGALRM, SIGTERM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR. Faults stay with wasmtime, which turns them into traps.
const ENDING: [i32; 11] = [1, 2, 3, 10, 12, 14, 15, 26, 27, 29, 30];

/// Ends the process when one of the signals arrives. To be called before other threads exist.
pub(crate) fn handle() -> Result<()> {
    let signals = SignalFd::block(&ENDING).context("open a descriptor for signals")?;
    let thread = std::thread::Builder::new().name("signals".into()).stack_size(64 << 10);
    thread.spawn(move || wait(&signals)).context("start the thread for signals")?;
    Ok(())
}

fn wait(signals: &SignalFd) {
    loop {
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if let Ok(Some(signal)) = signals.read() {
            syscall::clone::exit_now(128 + signal);
        }
    }
}
