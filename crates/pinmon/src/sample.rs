//! The program in the container of `pinion handlers check`: what it prints shows what the runtime has set up. It is in
//! no other container, and the monitor does not use it.

use std::{
    fs,
    io::{self, Write},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::Signal,
    termios::{isatty, tcgetwinsize},
};
use syscall::signal_fd::SignalFd;

/// Name of the subcommand.
pub(crate) const SUBCOMMAND: &str = "sample";
/// Exit code after SIGTERM.
const TERMINATED: u8 = 7;
/// Files with the memory limit of the container's cgroup: v2, v1.
const MEMORY_LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Does what the arguments request, and returns the exit code.
pub(crate) fn run(arguments: &[&str]) -> Result<u8, String> {
    let failed = |error: io::Error| format!("{SUBCOMMAND} {}: {error}", arguments.join(" "));
    match arguments {
        ["wait"] => wait().map_err(failed),
        ["exit", code] => code.parse().map_err(|_| format!("{code:?} is not an exit code")),
        ["echo", text] => print(text).map(|()| 0).map_err(failed),
        ["terminal"] => print(&terminal()).map(|()| 0).map_err(failed),
        ["user-map"] => {
            fs::read_to_string("/proc/self/uid_map").and_then(|map| print(map.trim())).map(|()| 0).map_err(failed)
        }
        ["memory-limit"] => {
            let limit = MEMORY_LIMITS.iter().find_map(|path| fs::read_to_string(path).ok());
            print(limit.as_deref().unwrap_or("unknown").trim()).map(|()| 0).map_err(failed)
        }
        _ => Err(format!("{SUBCOMMAND}: unknown arguments {arguments:?}")),
    }
}

/// Prints to both streams, and waits for SIGTERM.
fn wait() -> io::Result<u8> {
    let signals = SignalFd::block(&[Signal::TERM.as_raw()])?;
    print("output")?;
    io::stderr().write_all(b"error output\n")?;
    loop {
        poll(&mut [PollFd::new(&signals, PollFlags::IN)], None)?;
        if signals.read()?.is_some() {
            print("terminated")?;
            return Ok(TERMINATED);
        }
    }
}

/// Returns the size of the terminal, as `columns x rows`.
fn terminal() -> String {
    let stdout = io::stdout();
    match (isatty(&stdout), tcgetwinsize(&stdout)) {
        (true, Ok(size)) => format!("terminal {}x{}", size.ws_col, size.ws_row),
        _ => "no terminal".to_owned(),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}
